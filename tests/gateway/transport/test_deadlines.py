"""Every wait has its bound, raises the error that httpx's own transport would, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from gateway.transport.own import OwnTransport
from gateway.transport.pool import PoolLimits
from tests.fakes.shadow_server import Received, Script, black_hole, never_answers, read_request, refusing
from tests.gateway.transport.line import Line, Pieces, closed, line, open_sockets, read, says, until

pytestmark = pytest.mark.anyio
SHORT_S = 0.1
SOON_S = 10.0


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
    """Read nothing and say nothing until the other side leaves."""
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.Event().wait()


def drips(head: bytes) -> Script:
    """Begin an answer with ``head`` and go on for ever, a byte at a time."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        await read_request(reader)
        writer.write(head)
        while True:
            writer.write(b"x")
            await asyncio.sleep(SHORT_S / 10)

    return script


async def fails(server: Line, error: type[Exception], **options: Any) -> None:
    """Send a request that must fail with exactly this error, soon."""
    started = time.monotonic()
    with pytest.raises(error) as caught:
        await server.ask(**options)
    assert type(caught.value) is error
    assert time.monotonic() - started < SOON_S


@pytest.mark.parametrize("bound", ["connect", "total"])
async def test_connecting_is_bounded(bound: str) -> None:
    before = open_sockets()
    with black_hole() as url:
        async with closed(OwnTransport()) as transport:
            server = Line(transport, url)
            for _ in range(3):
                await fails(server, httpx.ConnectTimeout, timeout={bound: SHORT_S})
                assert transport.pool.open == 0
    await until(lambda: open_sockets() <= before)


async def test_nobody_listening_is_a_connect_error() -> None:
    with refusing() as url:
        async with closed(OwnTransport()) as transport:
            await fails(Line(transport, url), httpx.ConnectError)
            assert transport.pool.open == 0


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 70 + ".test"])
async def test_a_name_that_means_nothing_is_a_connect_error(host: str) -> None:
    async with closed(OwnTransport()) as transport:
        await fails(Line(transport, f"http://{host}"), httpx.ConnectError)


@pytest.mark.parametrize("bound", ["read", "total"])
async def test_waiting_for_an_answer_is_bounded(bound: str) -> None:
    async with line(never_answers()) as server:
        await fails(server, httpx.ReadTimeout, timeout={bound: SHORT_S})
        await until(lambda: server.transport.pool.open == 0)


@pytest.mark.parametrize("bound", ["read", "total"])
async def test_waiting_for_the_rest_of_an_answer_is_bounded(bound: str) -> None:
    async with line(says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello")) as server:
        response = await server.start(timeout={bound: SHORT_S})
        with pytest.raises(httpx.ReadTimeout):
            await read(response)
        await until(lambda: server.transport.pool.open == 0)


async def test_the_head_of_an_answer_is_bounded_as_a_whole_not_by_the_byte() -> None:
    async with line(drips(b"HTTP/1.1 200 OK\r\nX: ")) as server:
        await fails(server, httpx.ReadTimeout, timeout={"read": SHORT_S})


async def test_an_answer_that_goes_on_for_ever_ends_with_the_total() -> None:
    async with line(drips(b"HTTP/1.1 200 OK\r\n\r\n")) as server:
        await fails(server, httpx.ReadTimeout, timeout={"read": SOON_S, "total": SHORT_S})


@pytest.mark.parametrize("bound", ["write", "total"])
@pytest.mark.parametrize("ready", [True, False])
async def test_a_server_that_does_not_read_is_bounded(ready: bool, bound: str) -> None:
    size = 64 * 1024 * 1024
    body = httpx.ByteStream(bytes(size)) if ready else Pieces(*[bytes(size // 16)] * 16).end()
    async with line(silent) as server:
        fields = [(b"Content-Length", b"%d" % size)]
        error = httpx.WriteTimeout if bound == "write" else httpx.TimeoutException
        with pytest.raises(error):
            await server.start("POST", fields=fields, body=body, timeout={bound: SHORT_S})
        await until(lambda: server.transport.pool.open == 0)


@pytest.mark.parametrize("bound", ["pool", "total"])
async def test_waiting_for_a_connection_is_bounded(bound: str) -> None:
    async with line(never_answers(), pool=PoolLimits(per_server=1)) as server:
        first = asyncio.create_task(server.ask())
        await until(lambda: bool(server.received))
        await fails(server, httpx.PoolTimeout, timeout={bound: SHORT_S})
        assert (server.transport.pool.open, server.transport.pool.waiting) == (1, 0)
        first.cancel()
        await asyncio.wait({first})
        await until(lambda: server.transport.pool.open == 0)


async def test_no_bound_is_no_bound() -> None:
    go_on = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        received.append(await read_request(reader))
        await go_on.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    async with line(script) as server:
        asking = asyncio.create_task(server.ask(timeout={"connect": None, "read": None, "write": None, "pool": None}))
        await until(lambda: bool(server.received))
        go_on.set()
        assert await asking == (200, b"")
