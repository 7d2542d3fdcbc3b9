"""When each recorded request is sent again. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

_FACTOR = re.compile(r"(\d+(?:\.\d+)?)x")
_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/s)?")
_HOW = "a speed is 1x (the recorded gaps), 10x (ten times closer), 50/s (so many a second) or max"


@dataclass(frozen=True, slots=True)
class Speed:
    """``factor`` divides the recorded gaps; ``rate_per_s`` sends evenly instead; with neither nothing is waited for."""

    factor: float | None = None
    rate_per_s: float | None = None


@dataclass(slots=True)
class Schedule:
    """Gives each request its time, in seconds from the start, never before the one before it."""

    speed: Speed
    _first: datetime | None = None
    _count: int = 0
    _base_s: float = 0.0
    _last_s: float = 0.0

    def due_s(self, received_at: datetime) -> float:
        """Return when the next request is due."""
        self._first = self._first or received_at
        if self.speed.rate_per_s is not None:
            due_s = self._count / self.speed.rate_per_s
        elif self.speed.factor is not None:
            due_s = self._base_s + (received_at - self._first).total_seconds() / self.speed.factor
        else:
            due_s = 0.0
        self._count += 1
        self._last_s = max(self._last_s, due_s)
        return self._last_s

    def again(self) -> None:
        """Begin another pass: its first request is due one mean gap after the last one of the pass before."""
        self._base_s, self._first = self._last_s + (self._last_s / self._count if self._count else 0.0), None


def parse_speed(text: str) -> Speed:
    """Return the speed that a person wrote. Raises ``ValueError``."""
    factor, rate = _FACTOR.fullmatch(text), _RATE.fullmatch(text)
    number = float((factor or rate or ["", "0"])[1])
    if text == "max":
        return Speed()
    if (factor is None and rate is None) or not 0 < number <= 1e6:
        raise ValueError(f"'{text}' is no speed: {_HOW}")
    return Speed(factor=number) if factor is not None else Speed(rate_per_s=number)
