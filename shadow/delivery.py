"""What became of the exchanges that a gateway handed to the workers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of the exchanges of one route that were handed over."""

    handed_over: int = 0
    recorded: int = 0
    lost: int = 0

    @property
    def under_way(self) -> int:
        """Those that are neither recorded nor lost yet."""
        return self.handed_over - self.recorded - self.lost
