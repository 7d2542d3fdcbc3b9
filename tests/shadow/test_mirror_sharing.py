"""One mirror for the shadows of several routes: what hangs leaves the others their part."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from shadow.call import Target
from shadow.mirror import MirrorRoute
from shadow.rule import MirrorLimits, ShadowRule
from shadow.tee import Tee
from tests.fakes.shadow_server import Received, Script, ShadowServer, answers, never_answers, read_request
from tests.shadow.bench import ALL, Bench, exchange_of, mirroring, routes_of, targets_of

pytestmark = pytest.mark.anyio

MEBIBYTE = 2**20


@pytest.mark.parametrize(
    ("rule", "is_mirrored"),
    [
        (ShadowRule(), False),
        (ShadowRule(percent=1), True),
        (ShadowRule(back_percent=1), False),
        (ShadowRule(both_ways=True), False),
        (ShadowRule(both_ways=True, back_percent=1), True),
    ],
)
def test_only_who_may_get_copies_takes_part(rule: ShadowRule, is_mirrored: bool) -> None:
    assert MirrorRoute("cloud", "onprem", rule).is_mirrored is is_mirrored


@asynccontextmanager
async def two_shadows(limits: MirrorLimits) -> AsyncIterator[tuple[Bench, ShadowServer]]:
    """A mirror with the routes ``hangs`` and ``well``, and the shadow that hangs."""
    async with (
        ShadowServer(never_answers()) as hanging,
        ShadowServer(answers()) as well,
        mirroring(targets_of(hanging.url), limits=limits, deadline_s=0.1) as bench,
    ):
        targets = {**targets_of(hanging.url), "other": Target("other", (well.url,))}
        bench.mirror.configure({**routes_of(ALL, "hangs"), "well": MirrorRoute("cloud", "other", ALL)}, targets)
        yield bench, hanging


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("max_concurrent", [2, 4, 16])
async def test_a_shadow_that_hangs_leaves_places_for_the_shadows_of_other_routes(max_concurrent: int) -> None:
    async with two_shadows(MirrorLimits(max_concurrent=max_concurrent)) as (bench, hanging):
        for n in range(40):
            bench.send(exchange_of(f"hangs-{n}", route="hangs"))
        await until(lambda: len(hanging.received) >= max_concurrent * 3 // 4)
        for n in range(20):
            bench.send(exchange_of(f"well-{n}", route="well"))
        await until(lambda: bench.account("well").recorded == 20)
        assert len(hanging.received) == max(1, max_concurrent * 3 // 4)
        bench.mirror.configure(routes_of(ALL, "hangs"), targets_of(hanging.url))  # nobody else is left: all are its own
        await until(lambda: len(hanging.received) == max_concurrent)


async def test_a_route_that_hangs_leaves_places_for_others_at_the_same_shadow() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        while True:
            request = await read_request(reader)
            received.append(request)
            if request.target == b"/hangs":
                await asyncio.Event().wait()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    limits = MirrorLimits(max_concurrent=16)
    async with (
        ShadowServer(script) as server,
        mirroring(targets_of(server.url), limits=limits, deadline_s=0.1) as bench,
    ):
        bench.mirror.configure(routes_of(ALL, "hangs", "well"), targets_of(server.url))
        for n in range(40):
            bench.send(exchange_of(f"hangs-{n}", route="hangs", target=b"/hangs"))
        await until(lambda: len(server.received) >= 12)
        for n in range(20):
            bench.send(exchange_of(f"well-{n}", route="well"))
        await until(lambda: bench.account("well").recorded == 20)


@pytest.mark.parametrize("max_concurrent", [1, 2, 3, 7])
async def test_whatever_is_held_up_gets_its_turn(max_concurrent: int) -> None:
    """Three shadows of different speed, and settings that change between one and several of them."""
    limits, rng = MirrorLimits(max_concurrent=max_concurrent), random.Random(max_concurrent)
    async with AsyncExitStack() as stack:
        names = {"fast": 0.0, "slow": 0.01, "slower": 0.03}
        servers = {name: await stack.enter_async_context(ShadowServer(delays(s))) for name, s in names.items()}
        targets = {name: Target(name, (server.url,)) for name, server in servers.items()}
        targets["cloud"] = Target("cloud", ("http://127.0.0.1:9",))
        routes = {name: MirrorRoute("cloud", name, ALL) for name in names}
        bench = await stack.enter_async_context(mirroring(targets_of("http://127.0.0.1:9"), limits=limits))
        for n in range(150):
            if n % 10 == 0:
                chosen = rng.sample(sorted(names), rng.choice((1, 2, 3)))
                bench.mirror.configure({name: routes[name] for name in chosen}, targets)
            bench.send(exchange_of(f"id-{n}", route=rng.choice(chosen)))
            await asyncio.sleep(rng.choice((0, 0, 0.005)))
        await bench.drained()
        assert len(bench.store.saved) == 150


def delays(seconds: float) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        while True:
            received.append(await read_request(reader))
            await asyncio.sleep(seconds)
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    return script


@pytest.mark.parametrize(
    "limits",
    [
        MirrorLimits(byte_budget_bytes=4 * MEBIBYTE),
        MirrorLimits(byte_budget_bytes=4 * MEBIBYTE, spool_above_bytes=50_000, spool_budget_bytes=4 * MEBIBYTE),
    ],
    ids=["memory", "disk"],
)
async def test_a_shadow_that_hangs_leaves_room_for_the_bodies_of_other_routes(limits: MirrorLimits) -> None:
    async with two_shadows(limits) as (bench, _):
        for n in range(200):
            send(bench, f"hangs-{n}", "hangs")
            await asyncio.sleep(0.001)  # in which the disk catches up
        assert sum(bench.skipped("hangs").values()) > 100
        for n in range(20):
            send(bench, f"well-{n}", "well")
            await until(lambda: bench.account("well").in_flight == 0)
        assert (bench.account("well").recorded, bench.skipped("well")) == (20, {})


def send(bench: Bench, id: str, route: str) -> None:  # noqa: A002 - the field's name
    """Send 100 KB as the gateway does: with what the tee could keep of it."""
    tee = Tee(bench.budget, MEBIBYTE, bench.disk)
    tee.feed(bytes(100_000))
    exchange = exchange_of(id, route=route, body=tee.finish(), skipped=tee.lost)
    assert bench.budget.try_reserve(0 if exchange.primary.body is None else exchange.primary.body.held_bytes)
    bench.received[route] += 1
    bench.mirror.tap(exchange)
