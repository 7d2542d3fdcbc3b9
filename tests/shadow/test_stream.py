"""The stream against a real Redis that people and memory limits treat badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import OutOfMemoryError

from shadow.account import Stamp
from shadow.delivery import Delivery
from shadow.errors import StreamFull
from shadow.exchange import Exchange, SkipReason
from shadow.outlet import Outlet
from shadow.store.opening import Place, open_parts
from shadow.stream import BYTES, GROUP, PENDING, STREAM, Stream
from shadow.tee import ByteBudget
from shadow.transit import Parcel, pack
from shadow.worker import Worker
from tests.gateway.redis_server import RedisServer
from tests.shadow.bench import exchange_of

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def stream_in(redis: RedisServer, *, max_length: int = 100, max_bytes: int = 10**9) -> AsyncIterator[Stream]:
    stream = Stream(f"redis://127.0.0.1:{redis.port}/0", max_length=max_length, max_bytes=max_bytes)
    try:
        async with asyncio.timeout(30):
            yield stream
    finally:
        await stream.aclose()


def vanish(redis: Any, how: str) -> None:
    """Take two of three entries, or all, out of the stream as a person or an eviction does."""
    match how:
        case "trim":
            redis.xtrim(STREAM, maxlen=1, approximate=False)
        case "delete":
            redis.xdel(STREAM, *[key for key, _ in redis.xrange(STREAM)[1:]])
        case "drop":
            redis.delete(STREAM)
        case "flush":
            redis.flushall()
        case "ungroup":
            redis.xgroup_destroy(STREAM, GROUP)


@pytest.mark.parametrize("in_hands", [False, True])
@pytest.mark.parametrize(("how", "left"), [("trim", 1), ("delete", 1), ("drop", 0), ("flush", 0)])
async def test_what_vanishes_from_the_stream_is_lost_and_leaves_room(
    redis_server: RedisServer, tmp_path: Path, how: str, left: int, in_hands: bool
) -> None:
    parts = open_parts(Place(f"sqlite:///{tmp_path}/s.db", tmp_path / "bodies"))
    clock, route = asyncio.get_running_loop().time, exchange_of().route
    size_bytes = pack(exchange_of(), Stamp("run", 0), parts).size_bytes
    async with stream_in(redis_server, max_bytes=size_bytes * 7 // 2) as stream:
        outlet, other = (Outlet(stream, parts, run, lambda _: {}, clock) for run in ("run", "two"))
        await stream.found_group()
        for _ in range(3):
            await outlet.save(exchange_of())
        taken = await stream.read("w", 1, 0.1) if in_hands else []
        with redis_server.connect() as redis:
            vanish(redis, how)
            await outlet.settle()
            assert outlet.deliveries(route) == Delivery(3, 0, 3 - left)
            for entry in taken:
                await stream.done(entry, SkipReason.BREAKER_OPEN)
            await outlet.settle()
            found, length = outlet.deliveries(route), redis.xlen(STREAM)
            assert found.lost + sum(found.skipped.values()) == 3 - length
            await other.settle()  # a gateway that has handed over nothing yet
            for _ in range(3 - length):
                await other.save(exchange_of())
            with pytest.raises(StreamFull):
                await other.save(exchange_of())
            assert (redis.xlen(STREAM), int(redis.get(BYTES))) == (3, 3 * size_bytes)
    parts.engine.dispose()


@pytest.mark.parametrize("how", ["drop", "flush", "ungroup"])
async def test_a_worker_goes_on_when_its_stream_or_group_was_taken_away(
    redis_server: RedisServer, tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    parts = open_parts(Place(f"sqlite:///{tmp_path}/s.db", tmp_path / "bodies"))
    async with stream_in(redis_server) as stream:
        worker, tapped = Worker(stream, parts, ByteBudget(10**6), name="w", at_once=9, claim_after_s=60), list[str]()

        def tap(exchange: Exchange) -> None:
            tapped.append(exchange.id)
            if exchange.id == "after":
                worker.stopping = True
                worker.settled(exchange, None)

        running = asyncio.create_task(worker.run(tap))
        assert await stream.add(pack(exchange_of("before"), Stamp("run", 1), parts), "run/r")
        while not tapped:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
        with redis_server.connect() as redis:
            vanish(redis, how)
        assert await stream.add(pack(exchange_of("after"), Stamp("run", 1), parts), "run/r")
        await running
        await worker.flush()
        assert set(tapped) == {"before", "after"}
        assert len(caplog.records) <= 4, "one line for each change of state"
    parts.engine.dispose()


async def test_the_backlog_counts_nothing_that_vanished(redis_server: RedisServer) -> None:
    async with stream_in(redis_server) as stream:
        await stream.found_group()
        for _ in range(3):
            assert await stream.add(Parcel("id", "2026-01-01", b"sealed", 6), "run/r")
        await stream.read("w", 3, 0.1)
        with redis_server.connect() as redis:
            vanish(redis, "trim")
        assert await stream.backlog() == (1, 0)


async def test_a_stream_that_was_evicted_leaves_no_bytes_behind(redis_server: RedisServer) -> None:
    """Also where the next entry comes before anybody looks, with the counts of owners evicted as well."""
    async with stream_in(redis_server, max_bytes=20) as stream:
        for _ in range(2):
            assert await stream.add(Parcel("id", "2026-01-01", b"sealed", 9), "run/r")
            assert await stream.add(Parcel("id", "2026-01-01", b"sealed", 9), "run/r")
            assert not await stream.add(Parcel("id", "2026-01-01", b"sealed", 9), "run/r")
            with redis_server.connect() as redis:
                assert int(redis.get(BYTES)) == 18
                redis.delete(STREAM, PENDING)


async def test_bytes_that_were_evicted_are_counted_anew(redis_server: RedisServer) -> None:
    async with stream_in(redis_server, max_length=1000) as stream:
        for _ in range(250):
            assert await stream.add(Parcel("id", "2026-01-01", b"sealed", 6), "run/r")
        with redis_server.connect() as redis:
            redis.delete(BYTES, PENDING)
            assert (await stream.held(["run/r"]))["run/r"].waiting == 250
            assert int(redis.get(BYTES)) == 250 * 6


@pytest.mark.parametrize("has_group", [True, False])
async def test_a_worker_that_starts_while_redis_is_full_empties_it(
    redis_server: RedisServer, tmp_path: Path, has_group: bool
) -> None:
    parts = open_parts(Place(f"sqlite:///{tmp_path}/s.db", tmp_path / "bodies"))
    async with stream_in(redis_server, max_length=1000) as stream:
        worker = Worker(stream, parts, ByteBudget(10**6), name="w", at_once=1, claim_after_s=60)

        def tap(exchange: Exchange) -> None:
            worker.stopping = True
            worker.settled(exchange, None)

        assert await stream.add(pack(exchange_of(), Stamp("run", 1), parts), "run/r")
        with redis_server.connect() as redis:
            if has_group:
                redis.xgroup_create(STREAM, GROUP, id="0")
            redis.config_set("maxmemory", 1)
            with pytest.raises(OutOfMemoryError):
                redis.set("key", "value")
        await worker.run(tap)
        await worker.flush()
        assert await stream.length() == 0
    parts.engine.dispose()
