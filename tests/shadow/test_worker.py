"""A worker between the stream and the mirror, with a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from shadow.account import Stamp
from shadow.delivery import Delivery, Held
from shadow.exchange import Exchange, SkipReason
from shadow.outlet import Outlet
from shadow.store.objects import ObjectFolder
from shadow.store.opening import Place, open_parts
from shadow.stream import BYTES, SKIPPED, STREAM, Stream
from shadow.tee import ByteBudget
from shadow.transit import Parcel, pack
from shadow.worker import MAX_DELIVERIES, Worker
from tests.gateway.redis_server import RedisServer
from tests.shadow.bench import body_of, exchange_of

pytestmark = pytest.mark.anyio


class _WatchedFolder(ObjectFolder):
    """A folder that tells before it reads."""

    def __init__(self, root: Path, tell: Callable[[], object]) -> None:
        super().__init__(root)
        self._tell = tell

    def get(self, name: str) -> bytes | None:
        self._tell()
        return super().get(name)


async def test_what_others_reserve_while_an_exchange_is_loaded_is_never_released_for_them(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    stream = Stream(f"redis://127.0.0.1:{redis_server.port}/0", max_length=10, max_bytes=10**9)
    parts = open_parts(Place(f"sqlite:///{tmp_path}/s.db", tmp_path / "bodies"))
    exchange = exchange_of()
    exchange = replace(exchange, request=replace(exchange.request, body=body_of(b"x" * 300_000)))
    parcel = pack(exchange, Stamp("run", 1), parts)
    budget, others = ByteBudget(parcel.size_bytes + 10), list[int]()

    def reserve_the_rest() -> None:
        others.append(budget.total_bytes - budget.used_bytes)
        assert budget.try_reserve(others[-1])

    watched = replace(parts, objects=_WatchedFolder(tmp_path / "bodies", reserve_the_rest))
    worker = Worker(stream, watched, budget, name="w", at_once=1, claim_after_s=60)
    tapped: list[Exchange] = []

    def tap(exchange: Exchange) -> None:
        tapped.append(exchange)
        budget.release(exchange.held_bytes)
        worker.stopping = True
        worker.settled(exchange, None)

    await stream.found_group()
    assert await stream.add(parcel, "run/r")
    async with asyncio.timeout(10):
        await worker.run(tap)
    await stream.aclose()
    parts.engine.dispose()
    assert [len(exchange.request.body.chunks or ()) for exchange in tapped] == [1]
    assert budget.used_bytes == sum(others)


@pytest.mark.parametrize("reason", [SkipReason.STORE_FAILED, SkipReason.SHUTDOWN, SkipReason.QUEUE_FULL])
async def test_what_the_store_could_not_take_is_given_back_and_never_given_up(
    redis_server: RedisServer, tmp_path: Path, reason: SkipReason
) -> None:
    stream = Stream(f"redis://127.0.0.1:{redis_server.port}/0", max_length=10, max_bytes=10**9)
    parts = open_parts(Place(f"sqlite:///{tmp_path}/s.db", tmp_path / "bodies"))
    worker = Worker(stream, parts, ByteBudget(10**6), name="w", at_once=1, claim_after_s=0)

    def tap(exchange: Exchange) -> None:
        worker.stopping = True
        worker.settled(exchange, reason)

    async with asyncio.timeout(20):
        await stream.found_group()
        assert await stream.add(pack(exchange_of(), Stamp("run", 1), parts), "run/r")
        (entry,) = await stream.read("died", 1, 1)
        for _ in range(MAX_DELIVERIES - 2):
            await stream.claim("died", 1, 0)
        await worker.run(tap)
        assert await stream.deliveries(entry) == MAX_DELIVERIES
        await worker.flush()
        assert await stream.deliveries(entry) == 0
        assert await stream.claim("next", 1, 0) == [entry]
    await stream.aclose()
    parts.engine.dispose()


async def test_what_another_version_wrote_stops_no_worker_and_stays_counted(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """In a rolling update: an entry of other fields, a parcel of another make, and a reason to skip."""
    stream = Stream(f"redis://127.0.0.1:{redis_server.port}/0", max_length=10, max_bytes=10**9)
    parts = open_parts(Place(f"sqlite:///{tmp_path}/s.db", tmp_path / "bodies"))
    known, route = pack(exchange_of("known"), Stamp("run", 3), parts), exchange_of().route
    sealed = parts.vault.seal(known.day, "newer/parcel", b'{"v": 9}')
    worker = Worker(stream, parts, ByteBudget(10**6), name="w", at_once=9, claim_after_s=60)
    outlet = Outlet(stream, parts, "run", lambda _: {}, asyncio.get_running_loop().time)
    tapped: list[str] = []

    def tap(exchange: Exchange) -> None:
        tapped.append(exchange.id)
        worker.stopping = True
        worker.settled(exchange, SkipReason.BREAKER_OPEN)

    async with asyncio.timeout(20):
        await stream.found_group()
        with redis_server.connect() as redis:
            redis.xadd(STREAM, {"post": "card"})
            await stream.add(Parcel("newer", known.day, sealed, len(sealed)), f"run/{route}")
            await outlet.save(exchange_of("known"), stamp=Stamp("run", 3))
            await worker.run(tap)
            await worker.flush()
            redis.hset(f"{SKIPPED}run/{route}", "wind_of_change", 2)
        assert tapped == ["known"]
        assert (worker.work.given_up, worker.work.returned) == (1, 1)
        (left,) = await stream.claim("newer", 9, 0)
        assert left.parcel.exchange_id == "newer"
        held = (await outlet.held("run", [route]))[route]
    assert held == Held(1, {SkipReason.BREAKER_OPEN: 1, SkipReason.LOST: 2})
    await stream.aclose()
    await outlet.aclose()
    parts.engine.dispose()


async def test_what_is_still_in_hand_is_taken_over_by_nobody_however_long_it_lasts(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """A stream that the shadow answers for ten minutes, say, or one that waits for room in the budget."""
    stream = Stream(f"redis://127.0.0.1:{redis_server.port}/0", max_length=10, max_bytes=10**9)
    parts = open_parts(Place(f"sqlite:///{tmp_path}/s.db", tmp_path / "bodies"))
    parcels = [pack(exchange_of(name), Stamp("run", 1), parts) for name in ("called", "waits for room")]
    budget = ByteBudget(sum(parcel.size_bytes for parcel in parcels))
    assert budget.try_reserve(budget.total_bytes - parcels[0].size_bytes - 10)
    worker = Worker(stream, parts, budget, name="w", at_once=2, claim_after_s=0.6)
    tapped: list[Exchange] = []
    async with asyncio.timeout(20):
        await stream.found_group()
        for parcel in parcels:
            assert await stream.add(parcel, "run/r")
        running, holding = asyncio.create_task(worker.run(tapped.append)), asyncio.create_task(worker.hold())
        for _ in range(20):
            await asyncio.sleep(0.1)
            assert await stream.claim("other", 9, 0.6) == []
        assert [exchange.id for exchange in tapped] == ["called"]
        worker.settled(tapped[0], None)
        worker.stopping = True
        await running
        holding.cancel()
        await asyncio.wait({holding})
        await asyncio.sleep(0.7)
        assert len(await stream.claim("other", 9, 0.6)) == 2, "a worker that is gone holds nothing"
    await stream.aclose()
    parts.engine.dispose()


async def test_a_worker_that_ends_leaves_its_name_only_where_something_is_given_to_it(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    """Each start has a name of its own, and a group forgets none by itself."""
    stream = Stream(f"redis://127.0.0.1:{redis_server.port}/0", max_length=10, max_bytes=10**9)
    parts = open_parts(Place(f"sqlite:///{tmp_path}/s.db", tmp_path / "bodies"))

    async def work(name: str, reason: SkipReason | None) -> None:
        worker = Worker(stream, parts, ByteBudget(10**6), name=name, at_once=1, claim_after_s=60)

        def tap(exchange: Exchange) -> None:
            worker.stopping = True
            worker.settled(exchange, reason)

        assert await stream.add(pack(exchange_of(), Stamp("run", 1), parts), "run/r")
        await worker.run(tap)
        await worker.flush()

    async with asyncio.timeout(20):
        await work("stores", None)
        await work("gives back", SkipReason.SHUTDOWN)
        with redis_server.connect() as redis:
            redis.xgroup_createconsumer(STREAM, "workers", "was killed")
            assert [each["name"] for each in redis.xinfo_consumers(STREAM, "workers")] == [b"gives back", b"was killed"]
            (entry,) = await stream.claim("next", 1, 0)
            await stream.done(entry)
            await asyncio.sleep(0.05)
            await stream.leave("next", gone_after_s=0.01)
            assert redis.xinfo_consumers(STREAM, "workers") == []
    await stream.aclose()
    parts.engine.dispose()


@pytest.mark.parametrize("given_before", [False, True])
async def test_what_nobody_can_read_is_given_up_and_stops_no_worker(
    redis_server: RedisServer, tmp_path: Path, given_before: bool
) -> None:
    stream = Stream(f"redis://127.0.0.1:{redis_server.port}/0", max_length=10, max_bytes=10**9)
    parts = open_parts(Place(f"sqlite:///{tmp_path}/s.db", tmp_path / "bodies"))
    known = pack(exchange_of(), Stamp("run", 1), parts)
    worker = Worker(stream, parts, ByteBudget(10**6), name="w", at_once=9, claim_after_s=0)

    def tap(exchange: Exchange) -> None:
        worker.stopping = True
        worker.settled(exchange, None)

    async with asyncio.timeout(20):
        await stream.found_group()
        with redis_server.connect() as redis:
            for garbage in (b"\xff", b"\0", b"-1", b"1e3", "٣".encode(), b"9" * 99, b""):
                redis.xadd(STREAM, dict.fromkeys(("id", "day", "owner", "size", "sealed"), garbage))
            if given_before:
                redis.xreadgroup("workers", "died", {STREAM: ">"})
            await stream.add(known, "run/r")
            redis.delete(BYTES)
            assert (await stream.held(["run/r"]))["run/r"].waiting == 1
            await worker.run(tap)
            await worker.flush()
            assert worker.work.given_up == 7
            assert redis.xlen(STREAM) == 0
    await stream.aclose()
    parts.engine.dispose()


async def test_what_is_given_up_is_counted_as_lost_unless_it_is_stored_after_all(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    stream = Stream(f"redis://127.0.0.1:{redis_server.port}/0", max_length=10, max_bytes=10**9)
    parts = open_parts(Place(f"sqlite:///{tmp_path}/s.db", tmp_path / "bodies"))
    recorded: dict[str, int] = {}
    outlet, route = (
        Outlet(stream, parts, "run", lambda _: recorded, asyncio.get_running_loop().time),
        exchange_of().route,
    )
    worker = Worker(stream, parts, ByteBudget(10**6), name="w", at_once=1, claim_after_s=0)
    async with asyncio.timeout(20):
        await stream.found_group()
        await outlet.save(exchange_of())
        await stream.read("slow", 1, 1)
        for _ in range(MAX_DELIVERIES - 1):
            await stream.claim("slow", 1, 0)
        await outlet.settle()
        assert outlet.deliveries(route) == Delivery(1, 0, 0)
        running = asyncio.create_task(worker.run(lambda _: None))
        while await stream.length():  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.01)
        worker.stopping = True
        await running
        await outlet.settle()
        assert outlet.deliveries(route) == Delivery(1, 0, 1)
        recorded[route] = 1
        await outlet.settle()
        assert outlet.deliveries(route) == Delivery(1, 1, 0)
    await stream.aclose()
    parts.engine.dispose()
