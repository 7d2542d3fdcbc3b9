"""A worker and a gateway's outlet while their database is away: a real Redis and a real PostgreSQL that is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from shadow.account import Stamp
from shadow.errors import StoreError
from shadow.exchange import Exchange
from shadow.outlet import Outlet
from shadow.store.opening import Place, open_parts
from shadow.stream import Stream
from shadow.tee import ByteBudget
from shadow.transit import pack
from shadow.worker import Worker
from tests.gateway.redis_server import RedisServer
from tests.shadow.bench import exchange_of
from tests.shadow.store.postgres_server import PostgresServer, postgres_server

pytestmark = pytest.mark.anyio


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    """A PostgreSQL of the test's own, which it may stop and start."""
    with postgres_server() as server:
        yield server


async def test_a_worker_that_cannot_read_a_key_gives_the_exchange_back_and_takes_it_when_the_database_is_back(
    redis_server: RedisServer, database: PostgresServer, tmp_path: Path
) -> None:
    stream = Stream(f"redis://127.0.0.1:{redis_server.port}/0", max_length=10, max_bytes=10**9)
    parts = open_parts(Place(database.new_database(), tmp_path / "bodies", key=f"file:{tmp_path}/key"))
    worker = Worker(stream, parts, ByteBudget(10**6), name="w", at_once=1, claim_after_s=0.1)
    tapped: list[str] = []

    def tap(exchange: Exchange) -> None:
        tapped.append(exchange.id)
        worker.stopping = True
        worker.settled(exchange, None)

    async with asyncio.timeout(60):
        await stream.found_group()
        await stream.add(pack(exchange_of(), Stamp("run", 1), parts), "run/r")
        await asyncio.to_thread(database.stop)
        running = asyncio.create_task(worker.run(tap))
        await asyncio.wait({running}, timeout=3)
        await asyncio.to_thread(database.start)
        assert not running.done(), running.exception()
        assert (tapped, worker.work.given_up) == ([], 0)
        await running
        assert tapped == ["id-1"]
    await stream.aclose()
    parts.engine.dispose()


async def test_an_outlet_that_cannot_found_the_key_of_a_new_day_says_so(
    redis_server: RedisServer, database: PostgresServer, tmp_path: Path
) -> None:
    stream = Stream(f"redis://127.0.0.1:{redis_server.port}/0", max_length=10, max_bytes=10**9)
    parts = open_parts(Place(database.new_database(), tmp_path / "bodies", key=f"file:{tmp_path}/key"))
    outlet = Outlet(stream, parts, "run", lambda _: {}, asyncio.get_running_loop().time)
    exchange = exchange_of()
    tomorrow = replace(exchange, received_at=exchange.received_at + timedelta(days=1))
    async with asyncio.timeout(60):
        await outlet.save(exchange)
        await asyncio.to_thread(database.stop)
        await outlet.save(exchange)
        with pytest.raises(StoreError):
            await outlet.save(tomorrow)
        await asyncio.to_thread(database.start)
        await outlet.save(tomorrow)
        assert await stream.length() == 3
    await outlet.aclose()
    parts.engine.dispose()
