"""What each of the last 24 hours brought. Blocks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from compare.results import Results
from shadow.store.reader import Reader

HOURS = 24


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour: its beginning, how many requests were received in it and stored, and how many of their pairs ask for a
    person."""

    at: datetime
    requests: int
    bad: int


def read_trend(reader: Reader, results: Results, route: str, key: str, now: datetime) -> tuple[Hour, ...]:
    """Return the last hours, the oldest first; the last one is not over yet. ``key`` is the measurement key."""
    first = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    requests, bad = reader.hours(route, first), results.bad_since(route, key, first)
    starts = (first + timedelta(hours=n) for n in range(HOURS))
    return tuple(Hour(at, requests.get(at, 0), bad.get(at, 0)) for at in starts)
