"""How many requests are stored, in all and in each of the last 24 hours. Blocks.

``Counts`` counts every stored request once, however often it is asked: rows are never deleted and appear in the order
of their sequence (``shadow/store/database.py``), so a total goes on from where it was, and an hour that is over stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, func, select

from compare.results import measurements
from shadow.store.reader import Reader
from shadow.store.rows import microseconds
from shadow.store.schema import exchanges

HOURS = 24
_OVERTAKING = 200
"""So many requests may have overtaken each other on their way into the store."""
_SETTLES_IN = timedelta(hours=1)
"""An answer that ended in an hour is stored at most so much later."""
_ASKS_FOR_A_PERSON = (2, 3, 4, 5)
"""Severities of what failed, differs, is broken or is critical (``compare.results.severity``)."""


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour: its beginning, how many requests were recorded, and how many of their pairs ask for a person."""

    at: datetime
    requests: int
    bad: int


class Counts:
    """Counts for the pages of one dashboard. Two threads at once may count the same twice, and come to the same."""

    def __init__(self, reader: Reader) -> None:
        self._engine = reader.engine
        self._totals: dict[str, tuple[int, int]] = {}
        self._hours: dict[tuple[str, datetime], int] = {}

    def total(self, route: str) -> int:
        """Return how many exchanges of a route are stored."""
        last, known = self._totals.get(route, (0, 0))
        later = select(func.count(), func.max(exchanges.c.sequence))
        with self._engine.connect() as connection:
            query = later.where(exchanges.c.route == route, exchanges.c.sequence > last)
            more, newest = connection.execute(query).one()
        self._totals[route] = (newest or last, known + more)
        return known + int(more)

    def trend(self, route: str, key: str, now: datetime) -> tuple[Hour, ...]:
        """Return the last hours, the oldest first; the last one is not over yet. ``key`` is the measurement key."""
        first = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
        starts = [first + timedelta(hours=n) for n in range(HOURS)]
        self._hours = {each: n for each, n in self._hours.items() if each[1] >= first}
        with self._engine.connect() as connection:
            edges = [_first_sequence(connection, at) for at in starts]
            places = list(zip(starts, edges, [*edges[1:], None], strict=True))
            hours = tuple(
                Hour(at, self._requests(connection, route, at, edge, end), _bad(connection, route, key, edge, end))
                for at, edge, end in places
            )
        settled = now - _SETTLES_IN - timedelta(hours=1)
        self._hours.update({(route, hour.at): hour.requests for hour in hours if hour.at <= settled})
        return hours

    def _requests(self, connection: Connection, route: str, at: datetime, first: int | None, end: int | None) -> int:
        known = self._hours.get((route, at))
        if known is not None:
            return known
        if first is None or first == end:
            return 0
        query = select(func.count()).where(exchanges.c.route == route, exchanges.c.sequence >= first)
        query = query if end is None else query.where(exchanges.c.sequence < end)
        return int(connection.execute(query).scalar_one())


def _first_sequence(connection: Connection, at: datetime) -> int | None:
    """Return the place in the record from which on requests were received after ``at``, ``None`` for no such.

    Requests are stored in the order in which their last answer ended, so of the first ones after ``at`` the earliest
    stored counts.
    """
    later = select(exchanges.c.sequence).where(exchanges.c.received_at_us >= microseconds(at))
    first = later.order_by(exchanges.c.received_at_us).limit(_OVERTAKING).subquery()
    found: int | None = connection.execute(select(func.min(first.c.sequence))).scalar_one()
    return found


def _bad(connection: Connection, route: str, key: str, first: int | None, end: int | None) -> int:
    if first is None or first == end:
        return 0
    pairs = select(func.count()).where(
        measurements.c.route == route,
        measurements.c.key == key,
        measurements.c.severity.in_(_ASKS_FOR_A_PERSON),
        measurements.c.sequence >= first,
    )
    pairs = pairs if end is None else pairs.where(measurements.c.sequence < end)
    return int(connection.execute(pairs).scalar_one())
