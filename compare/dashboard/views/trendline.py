"""The last 24 hours as a row of bars: how many requests, and how many of them ask for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compare.dashboard.trend import Hour
from compare.phrases import mark, plural, say


@dataclass(frozen=True, slots=True)
class Bar:
    """One hour. ``x`` in a box of 24; heights are percent of the busiest hour."""

    x: int
    height: float
    bad: float


@dataclass(frozen=True, slots=True)
class Trend:
    """The bars, and what they show in words."""

    bars: tuple[Bar, ...]
    text: str


def build_trend(hours: Sequence[Hour]) -> Trend | None:
    """Return the drawing, ``None`` where nothing happened."""
    most = max((hour.requests for hour in hours), default=0)
    if not most:
        return None
    bars = tuple(
        Bar(x, 100 * hour.requests / most, 100 * min(hour.bad, hour.requests) / most) for x, hour in enumerate(hours)
    )
    total, bad = sum(hour.requests for hour in hours), sum(hour.bad for hour in hours)
    worst = max(hours, key=lambda hour: hour.bad)
    requests = plural(total, "request")
    if not bad:
        return Trend(bars, say("24 hours: {requests}, none to look at", requests=requests))
    text = mark("24 hours: {requests}, {bad:,} to look at, most of them at {hour}:00 UTC")
    return Trend(bars, say(text, requests=requests, bad=bad, hour=f"{worst.at:%H}"))
