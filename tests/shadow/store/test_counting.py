"""Counts that are kept beside the rows: the same as counting the rows, whoever wrote them."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import Engine, delete, insert, select

from shadow.exchange import Exchange
from shadow.store.database import writing
from shadow.store.progress import logged
from shadow.store.reader import Reader
from shadow.store.rows import microseconds
from shadow.store.schema import counted_to, exchange_hours, exchanges
from tests.shadow.bench import NOON, exchange_of
from tests.shadow.store.shelf import Shelf

pytestmark = pytest.mark.anyio
ROUTES = ("a", "b", "c")


def some(rng: random.Random, begin: int) -> list[Exchange]:
    """Return exchanges of several routes over two days."""
    return [
        replace(
            exchange_of(str(begin + number), route=rng.choice(ROUTES)),
            received_at=NOON + timedelta(minutes=rng.randrange(2880)),
        )
        for number in range(rng.randrange(1, 60))
    ]


def write_as_version_3(engine: Engine, made: Sequence[Exchange]) -> None:
    """Write rows as a process does that knows no counts."""
    with writing(engine).begin() as connection:
        like = dict(connection.execute(select(exchanges).limit(1)).mappings().one())
        del like["sequence"]
        new = [{"id": e.id, "route": e.route, "received_at_us": microseconds(e.received_at)} for e in made]
        connection.execute(insert(exchanges), [{**like, **row} for row in new])


def check(reader: Reader, made: Sequence[Exchange]) -> None:
    since = NOON + timedelta(hours=5)
    assert reader.count() == len(made)
    for route in ROUTES:
        of_route = [exchange for exchange in made if exchange.route == route]
        assert reader.count(route) == len(of_route)
        assert reader.hours(route, since) == Counter(
            exchange.received_at.replace(minute=0) for exchange in of_route if exchange.received_at >= since
        )


def counted(reader: Reader) -> int | None:
    with reader.engine.connect() as connection:
        return connection.execute(select(counted_to.c.sequence)).scalar_one_or_none()


async def test_counts_are_those_of_the_rows_also_beside_a_process_that_keeps_none(shelf: Shelf) -> None:
    rng, made, newest = random.Random(7), list[Exchange](), 0
    async with shelf.stored() as store:
        reader = store.reader()
        for step in range(12):
            new = some(rng, len(made))
            if step % 3 == 2:
                await asyncio.to_thread(write_as_version_3, reader.engine, new)
                assert counted(reader) == newest
            else:
                again = made[:5]  # what is stored already must not be counted twice
                newest = max(await asyncio.gather(*(store.save(exchange) for exchange in [*again, *new])))
                assert counted(reader) == newest
            made += new
            check(reader, made)


async def test_a_database_without_counts_is_counted_when_it_is_opened(shelf: Shelf) -> None:
    rng = random.Random(8)
    made = [exchange for _ in range(6) for exchange in some(rng, 0)]
    made = [replace(exchange, id=str(number)) for number, exchange in enumerate(made)]
    async with shelf.stored() as store:
        await asyncio.gather(*(store.save(exchange) for exchange in made))
        with writing(store.reader().engine).begin() as connection:
            connection.execute(delete(exchange_hours))
            connection.execute(delete(counted_to))
        check(store.reader(), made)
        assert counted(store.reader()) is None
    for _ in range(2):
        with shelf.reading() as reader:
            check(reader, made)
            assert counted(reader) == max(exchange.sequence for exchange in reader.exchanges(limit=len(made)))


async def test_all_routes_are_walked_through_in_the_order_of_arrival(shelf: Shelf) -> None:
    made = some(random.Random(9), 0)
    since, until = NOON + timedelta(hours=6), NOON + timedelta(hours=30)
    inside = [exchange for exchange in made if since <= exchange.received_at < until]
    async with shelf.stored() as store:
        for exchange in made:
            await store.save(exchange)
        reader, seen, after = store.reader(), list[Exchange](), None
        while page := reader.received(None, since, until, after=after, limit=3):
            seen += page
            after = page[-1].received_at, page[-1].sequence
        assert [e.id for e in seen] == [e.id for e in sorted(inside, key=_arrival)]
        assert reader.count_received(None, since, until) == len(inside) > 3


def _arrival(exchange: Exchange) -> tuple[datetime, int]:
    return exchange.received_at, int(exchange.id)


async def test_what_takes_long_says_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    tell = logged("counting", lambda: now_s)
    for now_s in (1.0, 4.9, 5.0, 6.0, 10.0):
        tell(int(now_s * 1000), 20_000)
    assert caplog.messages == ["counting: 5,000 of 20,000", "counting: 10,000 of 20,000"]
