"""A toggle that is no file: a number for each route."""

from __future__ import annotations

from datetime import datetime


class PaperToggle:
    """Keeps the candidate's percents (``compare.ramps.ToggleWriter``); ``broken`` is what writing raises."""

    def __init__(self) -> None:
        self.shares: dict[str, int] = {}
        self.broken = ""

    def percent(self, route: str) -> int:
        return self.shares.get(route, 0)

    def move(self, route: str, percent: int, *, who: str, now: datetime) -> None:
        assert who
        assert now.tzinfo is not None
        if self.broken:
            raise OSError(self.broken)
        self.shares[route] = percent
