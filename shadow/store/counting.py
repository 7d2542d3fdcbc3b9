"""How many exchanges of each route came in each UTC hour, kept beside the rows: no question ever counts history.

Theory of operation. ``counted_to`` says up to which sequence the rows are in the counts. Whoever writes exchanges takes
the counts further in the same transaction (``count_new``); rows behind ``counted_to`` are counted by each question
itself. So the numbers are exact at every moment, also while a process of an older version writes, which knows no
counts. A database that is older than the counts is counted once, when it is opened: by an index, in a transaction that
only reads, so that nobody waits however long it takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import Connection, Engine, Select, bindparam, func, insert, select

from shadow.store.database import insert_of, writing
from shadow.store.progress import Progress, logged
from shadow.store.schema import counted_to, exchange_hours, exchanges

HOUR_US = 3_600_000_000
_DAY_US = 24 * HOUR_US
_AT_ONCE = 5000
_THE_ONE = 1

_sequence, _arrival = exchanges.c.sequence, exchanges.c.received_at_us
_hour = (_arrival - _arrival % HOUR_US).label("hour_us")


def count_new(connection: Connection, newest: int) -> int:
    """Take the counts further towards the sequence ``newest``, by some thousand rows at most, under the write lock;
    return how far they are."""
    begin = _reached(connection) or 0
    end = min(newest, begin + _AT_ONCE)
    if end <= begin:
        return begin
    adding, moving = _statements(connection.dialect.name)
    connection.execute(adding, {"begin": begin, "end": end})
    connection.execute(moving, {"id": _THE_ONE, "sequence": end})
    return end


def count_old(engine: Engine) -> None:
    """Count what older versions have written. Blocks: for seconds per million rows once, else for no time."""
    with engine.connect() as connection:
        reached = _reached(connection)
        newest = _newest(connection)
    tell = logged("counting what an older version stored")
    if reached is None and newest:
        reached = _count_all(engine, tell)
    while (reached or 0) < newest:
        with writing(engine).begin() as connection:
            reached = count_new(connection, newest)
        tell(reached, newest)


@contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that sees one moment, as SQLite's all do: counts and what lies behind them belong together."""
    with engine.connect() as connection:
        if engine.dialect.name != "sqlite":
            connection = connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


def total(connection: Connection, route: str | None) -> int:
    """Return how many exchanges there are of a route, or in all. Wants a ``snapshot``."""
    counts = select(func.coalesce(func.sum(exchange_hours.c.exchanges), 0))
    # The place is given as a number: PostgreSQL would scan for one that it is to look up.
    behind = select(func.count()).select_from(exchanges).where(_sequence > (_reached(connection) or 0))
    if route is not None:
        counts = counts.where(exchange_hours.c.route == route)
        behind = behind.where(exchanges.c.route == route)
    return int(connection.execute(counts).scalar_one()) + int(connection.execute(behind).scalar_one())


def by_hour(connection: Connection, route: str, since_us: int) -> dict[int, int]:
    """Return how many exchanges of a route there are by hour, from the hour ``since_us`` on. Wants a ``snapshot``."""
    hours = select(exchange_hours.c.hour_us, exchange_hours.c.exchanges)
    hours = hours.where(exchange_hours.c.route == route, exchange_hours.c.hour_us >= since_us)
    behind = select(_hour, func.count()).where(exchanges.c.route == route, _sequence > (_reached(connection) or 0))
    found: Counter[int] = Counter()
    for query in (hours, behind.group_by(_hour)):  # no time in the second: SQLite would look for that by its index
        for hour_us, n in connection.execute(query):
            found[hour_us] += int(n)
    return {hour_us: n for hour_us, n in found.items() if hour_us >= since_us}


def stored_routes() -> Select[Any]:
    """Return the query of all routes with an exchange. It leaps through the index from one route to the next, where a
    DISTINCT would read every row."""
    first = select(func.min(exchanges.c.route).label("route")).cte("each_route", recursive=True)
    later = select(func.min(exchanges.c.route)).where(exchanges.c.route > first.c.route).scalar_subquery()
    each = first.union_all(select(later).where(first.c.route.is_not(None)))
    return select(each.c.route).where(each.c.route.is_not(None))


def _count_all(engine: Engine, tell: Progress) -> int:
    """Count every row as of one moment; return up to where."""
    with snapshot(engine) as connection:
        newest = _newest(connection)
        found, done = Counter[tuple[str, int]](), 0
        for route, hour_us, n in _hours_of_all(connection):
            found[route, hour_us] += n
            done += n
            tell(done, newest)
    rows = [{"route": route, "hour_us": hour_us, "exchanges": n} for (route, hour_us), n in found.items()]
    with writing(engine).begin() as connection:
        reached = _reached(connection)
        if reached is not None:  # another process was first
            return reached
        connection.execute(insert(exchange_hours), rows)
        connection.execute(_statements(connection.dialect.name)[1], {"id": _THE_ONE, "sequence": newest})
    return newest


def _hours_of_all(connection: Connection) -> Iterator[tuple[str, int, int]]:
    """Yield (route, hour, exchanges), a day of a route at a time, each read from an index alone."""
    for route in connection.execute(stored_routes()).scalars().all():
        of_route = exchanges.c.route == route
        first = select(func.min(_arrival)).where(of_route)
        at = connection.execute(first).scalar_one()
        while at is not None:
            end = at - at % _DAY_US + _DAY_US
            day = select(_hour, func.count()).where(of_route, _arrival >= at, _arrival < end).group_by(_hour)
            for hour_us, n in connection.execute(day):
                yield route, int(hour_us), int(n)
            at = connection.execute(first.where(_arrival >= end)).scalar_one()


def _reached(connection: Connection) -> int | None:
    """Return up to where the rows are counted, ``None`` where they never were."""
    return connection.execute(select(counted_to.c.sequence)).scalar_one_or_none()


def _newest(connection: Connection) -> int:
    return int(connection.execute(select(func.max(_sequence))).scalar_one() or 0)


@cache  # to build them takes as long as to run them
def _statements(dialect: str) -> tuple[Any, Any]:
    """Return what adds the rows in ``(begin, end]`` to the counts, and what says up to where they are."""
    new = select(exchanges.c.route, _hour, func.count()).group_by(exchanges.c.route, _hour)
    new = new.where(_sequence > bindparam("begin"), _sequence <= bindparam("end"))
    adding = insert_of(exchange_hours, dialect).from_select(["route", "hour_us", "exchanges"], new)
    more = {"exchanges": exchange_hours.c.exchanges + adding.excluded.exchanges}
    moving = insert_of(counted_to, dialect)
    return (
        adding.on_conflict_do_update(index_elements=["route", "hour_us"], set_=more),
        moving.on_conflict_do_update(index_elements=["id"], set_={"sequence": moving.excluded.sequence}),
    )
