"""A shadow that fails is evidence: each way is recorded as what it is, within the deadline, never raised."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from shadow.exchange import FailureKind
from shadow.rule import MirrorLimits
from tests.fakes.shadow_server import (
    Received,
    Script,
    ShadowServer,
    answers,
    black_hole,
    endless,
    never_answers,
    read_request,
    refusing,
    resets,
    sends,
    waits,
)
from tests.shadow.bench import ALL, body_of, exchange_of, mirroring, targets_of

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("each_transport")]

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
CAP = replace(ALL, max_body_bytes=2**20)


def never_reads() -> Script:
    return waits(asyncio.Event(), answers())


@pytest.mark.parametrize(
    ("script", "kind", "status"),
    [
        (never_answers, FailureKind.TIMEOUT, None),
        (never_reads, FailureKind.TIMEOUT, None),
        (lambda: sends(HEAD + b"half", keep=True), FailureKind.TIMEOUT, 200),
        (lambda: sends(HEAD + b"half"), FailureKind.TRUNCATED, 200),
        (lambda: resets(HEAD + b"half"), FailureKind.TRUNCATED, 200),
        (resets, FailureKind.RESET, None),
        (endless, FailureKind.TOO_LARGE, 200),
        (lambda: answers(bytes(2**20 + 1)), FailureKind.TOO_LARGE, 200),
        (lambda: sends(b"SSH-2.0-x\r\n\r\n"), FailureKind.PROTOCOL, None),
        (lambda: sends(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000 + b"\r\n\r\n"), FailureKind.PROTOCOL, None),
        (lambda: sends(b"\r\n\r\n"), FailureKind.PROTOCOL, None),
    ],
    ids=[
        "never-answers",
        "never-reads",
        "stalls-half-way",
        "closes-half-way",
        "resets-half-way",
        "resets",
        "endless",
        "too-large",
        "not-http",
        "endless-header",
        "empty",
    ],
)
async def test_m13_a_failing_shadow_is_recorded_as_what_it_is(
    script: Callable[[], Script], kind: FailureKind, status: int | None
) -> None:
    body = body_of(*[bytes(65536)] * 16)
    timeout_s = 0.6 if kind is FailureKind.TIMEOUT else 30
    async with (
        ShadowServer(script()) as server,
        mirroring(targets_of(server.url, timeout_s=timeout_s), rule=CAP) as bench,
    ):
        started = time.monotonic()
        shadow = await bench.shadowed(exchange_of(body=body))
        assert time.monotonic() - started < 10
    assert shadow.failure is not None
    assert (shadow.failure.kind, shadow.status, shadow.failed) == (kind, status, True)
    assert (shadow.body is None) is (status is None)
    if shadow.body is not None:
        assert shadow.body.chunks is None  # a part of an answer is not an answer
    assert bench.skipped() == {}


async def test_m13_a_refused_connection_is_recorded_without_its_address() -> None:
    with refusing() as url:
        async with mirroring(targets_of(url)) as bench:
            shadow = await bench.shadowed()
    assert shadow.failure is not None
    assert (shadow.failure.kind, shadow.failure.detail) == (FailureKind.CONNECT, "ConnectError")


async def test_m01_a_black_hole_is_a_failure_to_connect_within_the_deadline() -> None:
    with black_hole() as url:
        async with mirroring(targets_of(url, timeout_s=0.4)) as bench:
            shadow = await bench.shadowed()
    assert shadow.failure is not None
    assert (shadow.failure.kind, shadow.failure.detail) == (FailureKind.CONNECT, "ConnectTimeout")
    assert shadow.total_s is not None
    assert shadow.total_s < 5


async def test_m13_a_name_that_does_not_resolve_is_a_failure_to_connect() -> None:
    async with mirroring(targets_of("http://no-such-host.invalid")) as bench:
        shadow = await bench.shadowed()
    assert shadow.failure is not None
    assert shadow.failure.kind is FailureKind.CONNECT


@pytest.mark.parametrize("status", [301, 404, 500, 503])
async def test_m13_a_whole_answer_of_any_status_is_no_failure_and_no_redirect_is_followed(status: int) -> None:
    script = answers(b"no", status=status, headers=b"Location: /elsewhere\r\n")
    async with ShadowServer(script) as server, mirroring(targets_of(server.url)) as bench:
        shadow = await bench.shadowed()
    assert (shadow.status, shadow.failure, shadow.failed) == (status, None, status >= 500)
    assert len(server.received) == 1


async def test_m01_tapping_costs_nothing_while_the_shadow_never_reads() -> None:
    limits = MirrorLimits(max_concurrent=3)
    async with (
        ShadowServer(never_reads()) as server,
        mirroring(targets_of(server.url, timeout_s=1.0), limits=limits) as bench,
    ):
        body = body_of(bytes(100 * 1024))
        for n in range(6):
            bench.send(exchange_of(f"id-{n}", body=body))
            await asyncio.sleep(0)
        assert bench.account().in_flight == 6, "all six before the first shadow call has even timed out"
        await bench.drained()
    assert [leg.shadow.failure.kind for leg in bench.store.saved if leg.shadow and leg.shadow.failure] == [
        FailureKind.TIMEOUT
    ] * 6


async def test_a_shadow_that_answers_before_it_has_read_is_recorded() -> None:
    early = sends(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
    async with ShadowServer(early) as server, mirroring(targets_of(server.url)) as bench:
        shadow = await bench.shadowed(exchange_of(body=body_of(*[bytes(65536)] * 64)))
    assert (shadow.status, shadow.failure) == (413, None)


async def test_a_failing_call_is_not_made_a_second_time() -> None:
    async with ShadowServer(resets()) as server, mirroring(targets_of(server.url)) as bench:
        await bench.mirrored(exchange_of())
    assert (len(server.received), server.connections) == (1, 1)


@pytest.mark.parametrize(
    "script",
    [
        lambda: sends(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello"),
        lambda: sends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"),
        lambda: resets(b"HTTP/1.0 200 OK\r\n\r\nhello"),
    ],
    ids=["short-of-its-length", "without-its-last-chunk", "reset-where-the-close-is-the-end"],
)
async def test_p16_a_cut_answer_of_the_shadow_is_recorded_as_truncated(script: Callable[[], Script]) -> None:
    async with ShadowServer(script()) as server, mirroring(targets_of(server.url)) as bench:
        shadow = await bench.shadowed()
    assert shadow.failure is not None
    assert (shadow.failure.kind, shadow.status, shadow.failed) == (FailureKind.TRUNCATED, 200, True)
    assert shadow.body is not None
    assert (shadow.body.size_bytes, shadow.body.chunks) == (5, None)


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_p17_a_reused_connection_that_dies_costs_the_shadow_one_call_and_never_two(method: str) -> None:
    async with ShadowServer(answers_then_hangs_up) as server, mirroring(targets_of(server.url)) as bench:
        first, second = [await bench.shadowed(exchange_of(f"id-{n}", method=method)) for n in range(2)]
    assert (first.status, first.failed) == (200, False)
    assert second.failed
    assert second.failure is not None
    assert second.failure.kind in (FailureKind.RESET, FailureKind.PROTOCOL)
    assert (len(server.received), server.connections) == (2, 1)


async def test_p17_a_connection_closed_while_idle_is_not_used_or_costs_one_call() -> None:
    closed = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"  # says nothing of the close that follows
    async with ShadowServer(sends(closed)) as server, mirroring(targets_of(server.url)) as bench:
        legs = [await bench.shadowed(exchange_of(f"id-{n}")) for n in range(3)]
    assert len(server.received) == sum(leg.status == 200 for leg in legs), "what had no answer was not executed"
    assert len(server.received) <= len(legs)
    assert legs[0].status == 200


async def answers_then_hangs_up(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]
) -> None:
    """Answer the first request and keep the connection; read the second whole and close without a word."""
    received.append(await read_request(reader))
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
    await writer.drain()
    received.append(await read_request(reader))


async def test_a_control_call_that_fails_is_recorded_beside_a_good_shadow() -> None:
    rule = replace(ALL, control_percent=100)
    async with ShadowServer(answers()) as server:
        with refusing() as url:
            async with mirroring(targets_of(server.url, url), rule=rule) as bench:
                stored = await bench.mirrored(exchange_of())
    assert stored.shadow is not None
    assert stored.control is not None
    assert stored.control.failure is not None
    assert (stored.shadow.failure, stored.control.failure.kind) == (None, FailureKind.CONNECT)
