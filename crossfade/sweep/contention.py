"""What a function loses when others run beside it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from crossfade.sweep.figures import Cell


@dataclass(frozen=True, slots=True)
class Contention:
    """One function at the same rate and schedule: alone, and with all the others at once."""

    alone: Cell
    together: Cell

    @property
    def slowdown(self) -> float | None:
        """How many times longer the mean answer takes beside the others; ``None`` where one was never answered."""
        if self.alone.mean_s is None or self.together.mean_s is None:
            return None
        return self.together.mean_s / self.alone.mean_s


MIXED_SHARE = 0.6
"""How much of the machine all functions together are given."""


def shared_rates(per_second: dict[str, float]) -> dict[str, float]:
    """Return a rate per function such that all at once use ``MIXED_SHARE`` of the machine, an equal part each.

    ``per_second`` is what each can do at most when it runs alone: at a rate r it uses ``r / per_second`` of the
    machine.
    """
    return {name: MIXED_SHARE * most / len(per_second) for name, most in per_second.items()}
