"""Every reason that the mirror itself can give for not recording, each provoked."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import httpx
import pytest

from shadow.exchange import SkipReason
from shadow.mirror import SAVES_AT_ONCE
from shadow.rule import MirrorLimits
from tests.fakes.shadow_server import ShadowServer, answers, never_answers, refusing, sends, waits
from tests.ports import free_port
from tests.shadow.bench import ALL, exchange_of, mirroring, routes_of, targets_of

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("reason", SkipReason)
async def test_what_the_gateway_skipped_is_only_counted(reason: SkipReason) -> None:
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        bench.send(exchange_of(skipped=reason))
        assert bench.skipped() == {reason: 1}
        assert bench.budget.used_bytes == 0
    assert server.connections == 0


async def test_queue_full_drops_the_newest() -> None:
    gate = asyncio.Event()
    limits = MirrorLimits(max_concurrent=1, max_queued=2)
    async with (
        ShadowServer(waits(gate, answers())) as server,
        mirroring(targets_of(server.url), limits=limits) as bench,
    ):
        for n in range(5):
            bench.send(exchange_of(f"id-{n}"))
        assert bench.skipped() == {SkipReason.QUEUE_FULL: 3}
        gate.set()
        await bench.drained()
    assert [exchange.id for exchange in bench.store.saved] == ["id-0", "id-1"]


async def test_queue_full_spares_a_quiet_route() -> None:
    gate = asyncio.Event()
    limits = MirrorLimits(max_concurrent=1, max_queued=4)
    routes = ("busy", "quiet")
    async with (
        ShadowServer(waits(gate, answers())) as server,
        mirroring(targets_of(server.url), limits=limits, routes=routes) as bench,
    ):
        for n in range(10):
            bench.send(exchange_of(f"busy-{n}", route="busy"))
        bench.send(exchange_of("quiet", route="quiet"))
        assert bench.skipped("quiet") == {}
        gate.set()
        await bench.drained()
    assert bench.account("quiet").recorded == 1
    assert bench.skipped("busy") == {SkipReason.QUEUE_FULL: 7}


async def test_breaker_open_after_refusals_and_closed_again_by_one_probe() -> None:
    now = 0.0
    limits = MirrorLimits(max_concurrent=1, breaker_failures=3, breaker_reset_s=5.0)
    port = free_port()
    targets = targets_of(f"http://127.0.0.1:{port}")
    async with mirroring(targets, limits=limits, clock=lambda: now) as bench:
        for n in range(3):
            await bench.mirrored(exchange_of(f"refused-{n}"))
        assert bench.mirror.status()["breakers"] == {"cloud": "closed", "onprem": "open"}
        bench.send(exchange_of("skipped-at-the-door"))
        now = 5.0
        await bench.mirrored(exchange_of("failed-probe"))
        bench.send(exchange_of("skipped-again"))
        bench.mirror.configure(routes_of(ALL, "classify"), dict(targets))  # nothing new: the breaker stays as it is
        bench.send(exchange_of("skipped-after-reload"))
        assert bench.skipped() == {SkipReason.BREAKER_OPEN: 3}
        now = 10.0
        async with ShadowServer(answers(), port=port):
            shadow = await bench.shadowed(exchange_of("probe"))
            assert shadow.failure is None
            assert bench.mirror.status()["breakers"] == {"cloud": "closed", "onprem": "closed"}
            await bench.mirrored(exchange_of("after"))


async def test_breaker_open_also_empties_what_was_queued_before_it_opened() -> None:
    limits = MirrorLimits(max_concurrent=1, breaker_failures=3)
    with refusing() as url:
        async with mirroring(targets_of(url), limits=limits) as bench:
            for n in range(10):
                bench.send(exchange_of(f"id-{n}"))
            await bench.drained()
    assert bench.account().recorded == 3
    assert bench.skipped() == {SkipReason.BREAKER_OPEN: 7}


async def test_breaker_open_stays_open_though_a_call_from_before_it_opened_succeeds_late() -> None:
    gate, limits = asyncio.Event(), MirrorLimits(max_concurrent=2, breaker_failures=3, breaker_reset_s=3600)
    async with (
        ShadowServer(waits(gate, answers())) as server,
        mirroring(targets_of(server.url), limits=limits) as bench,
    ):
        bench.send(exchange_of("slow"))
        await server.connected.wait()
        server.refuse()
        for n in range(4):
            bench.send(exchange_of(f"refused-{n}"))
        async with asyncio.timeout(30):
            while not bench.skipped():  # noqa: ASYNC110 - a count has no event
                await asyncio.sleep(0.01)
        gate.set()
        await bench.drained()
        assert bench.mirror.status()["breakers"] == {"cloud": "closed", "onprem": "open"}
    assert bench.account().recorded == 4


async def test_fell_back_when_neither_of_the_pair_answered() -> None:
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        bench.send(exchange_of(served_by="emergency"))
        assert bench.skipped() == {SkipReason.FELL_BACK: 1}


async def test_not_sampled_when_the_route_was_removed_meanwhile() -> None:
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        bench.mirror.configure({}, {})
        bench.send(exchange_of())
        assert bench.skipped() == {SkipReason.NOT_SAMPLED: 1}


async def test_budget_full_when_the_request_was_not_kept() -> None:
    body = replace(exchange_of().request.body, chunks=None)
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        bench.send(exchange_of(body=body))
        assert bench.skipped() == {SkipReason.BUDGET_FULL: 1}
    assert server.connections == 0


@contextmanager
def no_file_left() -> Iterator[None]:
    """Use up all files that this process may open."""
    before, taken = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_budget_full_when_no_file_is_left_to_call_with_and_the_shadow_is_not_blamed(each_transport: str) -> None:
    limits = MirrorLimits(max_concurrent=2, breaker_failures=2)
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url), limits=limits) as bench:
        with no_file_left():
            for n in range(4):
                bench.send(exchange_of(f"id-{n}"))
            await bench.drained()
        assert (bench.account().recorded, bench.skipped()) == (0, {SkipReason.BUDGET_FULL: 4})
        assert bench.mirror.status()["breakers"] == {"cloud": "closed", "onprem": "closed"}
        await bench.mirrored(exchange_of("after"))


async def test_store_failed_is_counted_and_logged_once_however_often(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        bench.store.failing = True
        for n in range(5):
            bench.send(exchange_of(f"id-{n}"))
        await bench.drained()
        assert bench.skipped() == {SkipReason.STORE_FAILED: 5}
        bench.store.failing = False
        await bench.mirrored(exchange_of("after"))
    said = [record.getMessage() for record in caplog.records if record.name == "shadow.saving"]
    assert said == ["the store failed, exchanges are lost: the disk is full", "the store works again"]


class ScriptedTransport(httpx.AsyncBaseTransport):
    """Raises or answers, one outcome after the other."""

    def __init__(self, *outcomes: Exception | httpx.Response) -> None:
        self._outcomes = iter(outcomes)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        outcome = next(self._outcomes)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def test_lost_is_what_a_defect_of_ours_took_and_the_breaker_forgets_that_call() -> None:
    now = 0.0
    limits = MirrorLimits(max_concurrent=1, breaker_failures=1, breaker_reset_s=5.0)
    transport = ScriptedTransport(
        httpx.ConnectError("no"), RuntimeError("a defect"), httpx.Response(200, content=b"ok")
    )
    async with mirroring(targets_of("http://onprem"), limits=limits, clock=lambda: now, transport=transport) as bench:
        await bench.mirrored(exchange_of("opens-the-breaker"))
        now = 5.0
        bench.send(exchange_of("lost-probe"))
        await bench.drained()
        assert bench.skipped() == {SkipReason.LOST: 1}
        bench.expected_defects = 1
        shadow = await bench.shadowed(exchange_of("next-probe"))
        assert (shadow.status, shadow.failure) == (200, None)


async def test_shutdown_releases_what_of_an_answer_had_come() -> None:
    half = sends(b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + bytes(50_000), keep=True)
    async with ShadowServer(half) as server, mirroring(targets_of(server.url), deadline_s=0.2) as bench:
        exchange = exchange_of()
        bench.send(exchange)
        async with asyncio.timeout(30):
            while bench.budget.used_bytes <= exchange.held_bytes:  # noqa: ASYNC110 - a number has no event
                await asyncio.sleep(0.001)
    assert bench.skipped() == {SkipReason.SHUTDOWN: 1}


async def test_shutdown_is_what_the_deadline_cuts_and_what_still_waits() -> None:
    limits = MirrorLimits(max_concurrent=2)
    async with (
        ShadowServer(never_answers()) as server,
        mirroring(targets_of(server.url), limits=limits, deadline_s=0.2) as bench,
    ):
        for n in range(5):
            bench.send(exchange_of(f"id-{n}"))
    assert bench.skipped() == {SkipReason.SHUTDOWN: 5}
    assert bench.store.saved == []


async def test_a_slow_store_takes_no_place_of_a_call_and_is_given_no_more_than_it_can_write_at_once() -> None:
    limits = MirrorLimits(max_concurrent=2)
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url), limits=limits) as bench:
        bench.store.gate.clear()
        for n in range(SAVES_AT_ONCE + 20):
            bench.send(exchange_of(f"id-{n}"))
        called = SAVES_AT_ONCE + limits.max_concurrent  # the last ones are held by the workers
        async with asyncio.timeout(30):
            while bench.mirror.status()["queued"] != 20 - limits.max_concurrent or len(server.received) < called:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (len(server.received), bench.account().recorded) == (called, 0)
        bench.store.gate.set()
        await bench.drained()
        assert bench.account().recorded == SAVES_AT_ONCE + 20


async def test_shutdown_drains_what_can_be_done_within_the_deadline() -> None:
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        for n in range(50):
            bench.send(exchange_of(f"id-{n}"))
    assert (bench.account().recorded, bench.skipped()) == (50, {})


async def test_shutdown_refuses_newcomers() -> None:
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        await bench.mirror.aclose(1)
        bench.send(exchange_of())
        assert bench.skipped() == {SkipReason.SHUTDOWN: 1}


async def test_shutdown_counts_what_a_mirror_that_never_started_was_given() -> None:
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url), started=False) as bench:
        bench.send(exchange_of())
    assert bench.skipped() == {SkipReason.SHUTDOWN: 1}


async def test_shutdown_waits_for_a_save_that_has_begun() -> None:
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url)) as bench:
        bench.store.gate.clear()
        bench.send(exchange_of())
        await bench.store.entered.wait()
        closing = asyncio.create_task(bench.mirror.aclose(0.01), name="closing")
        await asyncio.wait({closing}, timeout=0.1)
        assert not closing.done()
        bench.store.gate.set()
        await closing
        assert (bench.account().recorded, bench.skipped()) == (1, {})
