"""How a route is to go across, as a frozen value from the config. No numpy here: the gateway reads configs without
it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Plan:
    """How to go across. ``steps`` are percents of the candidate, growing; ``alarm_after`` is the A of the e-CUSUMs: on
    average so many good observations pass before a false alarm. ``mirrors_back`` says whether what the candidate serves
    is mirrored to the baseline: without it there are no pairs to judge at 100 %. A first step needs a verdict whose
    newest pair is at most ``verdict_max_age_s`` old. Once evidence has been lacking for ``evidence_max_age_s``, a route
    keeps its place, or comes all the way back where ``back_unseen``."""

    steps: tuple[int, ...] = (1, 5, 25, 50, 100)
    min_stay_s: float = 3600.0
    min_requests: int = 60
    alarm_after: float = 10_000.0
    mirrors_back: bool = True
    verdict_max_age_s: float = 86_400.0
    evidence_max_age_s: float = 60.0
    back_unseen: bool = False

    def __post_init__(self) -> None:
        """Refuse steps that do not grow, or leave the range of a percent."""
        if (
            not self.steps
            or list(self.steps) != sorted({*self.steps})
            or not 0 < self.steps[0] <= self.steps[-1] <= 100
        ):
            raise ValueError(f"the steps of a ramp must grow and lie between 1 and 100, not {list(self.steps)}")

    def after(self, percent: int) -> int | None:
        """Return the next step, ``None`` beyond the last."""
        return next((step for step in self.steps if step > percent), None)

    def before(self, percent: int) -> int:
        """Return the step before, 0 before the first."""
        return max((step for step in self.steps if step < percent), default=0)
