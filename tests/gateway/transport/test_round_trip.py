"""Requests and answers over real sockets: to the byte, whatever either side does, and nothing is left open."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from gateway.transport.answer import AnswerLimits, Reuse
from gateway.transport.chunked import AT_ONCE
from gateway.transport.own import OwnTransport
from tests.fakes.shadow_server import Received, Script, answers, read_request, sends
from tests.gateway.transport.line import Line, Pieces, closed, line, read, reset, says, until

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
BIG = bytes(range(256)) * 4096 * 8  # 8 MiB: more than the sockets' buffers hold


async def test_what_was_asked_goes_out_byte_for_byte_and_nothing_else() -> None:
    seen: list[bytes] = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(OK)

    async with line(script) as server:
        await server.ask("DELETE", b"/a%2Fb/%252e?b=2&a=1&bare&h=a+b", [(b"X-D", b"1"), (b"x-d", b"caf\xe9")])
    assert seen == [
        b"DELETE /a%2Fb/%252e?b=2&a=1&bare&h=a+b HTTP/1.1\r\nHost: server.test\r\nX-D: 1\r\nx-d: caf\xe9\r\n\r\n"
    ]


async def test_an_answers_raw_fields_reason_and_version_are_kept() -> None:
    wire = b"HTTP/1.1 200 Fine\r\nSet-Cookie: a=1\r\nset-cookie: b\r\nX-L: caf\xe9\r\nContent-Length: 0\r\n\r\n"
    async with line(says(wire)) as server:
        response = await server.start()
        assert response.headers.raw == [
            (b"Set-Cookie", b"a=1"), (b"set-cookie", b"b"), (b"X-L", b"caf\xe9"), (b"Content-Length", b"0"),
        ]  # fmt: skip
        assert response.extensions == {"reason_phrase": b"Fine", "http_version": b"HTTP/1.1"}
        await response.aclose()


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("chunked", [True, False])
async def test_a_body_arrives_whole(ready: bool, chunked: bool) -> None:
    body = (
        httpx.ByteStream(BIG)
        if ready
        else Pieces(b"", *(BIG[at : at + 60_000] for at in range(0, len(BIG), 60_000))).end()
    )
    framing = (b"Transfer-Encoding", b"chunked") if chunked else (b"Content-Length", b"%d" % len(BIG))
    async with line(answers(b"yes")) as server:
        assert await server.ask("POST", fields=[framing], body=body) == (200, b"yes")
        assert await server.ask("POST", fields=[framing], body=httpx.ByteStream(BIG)) == (200, b"yes")
        assert [request.body == BIG for request in server.received] == [True, True]
        assert server.opened == 1


@pytest.mark.parametrize("ready", [True, False])
async def test_a_chunked_body_may_be_empty(ready: bool) -> None:
    body = httpx.ByteStream(b"") if ready else Pieces().end()
    async with line(answers(b"yes")) as server:
        assert await server.ask("POST", fields=[(b"Transfer-Encoding", b"chunked")], body=body) == (200, b"yes")


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("fields", [[], [(b"Content-Length", b"4")], [(b"Content-Length", b"6")]])
async def test_a_body_of_another_length_than_announced_is_the_callers_fault(
    ready: bool, fields: list[tuple[bytes, bytes]]
) -> None:
    body = httpx.ByteStream(b"hello") if ready else Pieces(b"he", b"llo").end()
    async with line(answers(b"yes")) as server:
        with pytest.raises(httpx.LocalProtocolError):
            await server.start("POST", fields=fields, body=body)
        await until(lambda: server.transport.pool.open == 0)


async def test_an_error_of_the_body_is_the_callers_and_ends_the_connection() -> None:
    body = Pieces(b"he")
    body.queue.put_nowait(KeyError("the body"))
    async with line(answers()) as server:
        with pytest.raises(KeyError):
            await server.start("POST", fields=[(b"Content-Length", b"5")], body=body)
        await until(lambda: server.transport.pool.open == 0)


@pytest.mark.parametrize(
    ("method", "wire", "body"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n", b""),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\nContent-Length: 12345\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 P\r\nX: y\r\n\r\n" * 3 + OK, b"ok"),
        ("GET", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\nX-T: v\r\n\r\n", b"ok"),
        ("GET", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", b"ok"),
    ],
)
@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_an_answer_ends_where_it_ends_and_the_next_one_follows(
    method: str, wire: bytes, body: bytes, step: int
) -> None:
    pieces = [wire[at : at + step] for at in range(0, len(wire), step)]
    async with line(says(*pieces)) as server:
        for _ in range(3):
            assert (await server.ask(method))[1] == body
        assert (server.opened, server.transport.pool.idle) == (1, 1)
        assert server.transport.endings == {Reuse.YES: 3}


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.0 200 OK\r\nConnection: close\r\n\r\n"])
async def test_a_body_may_end_with_its_connection(head: bytes) -> None:
    async with line(says(head + b"hel", b"lo", then="close")) as server:
        assert await server.ask() == (200, b"hello")
        assert await server.ask() == (200, b"hello")
        assert server.opened == 2


@pytest.mark.parametrize(
    ("wire", "reuse"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", Reuse.ASKED_TO_CLOSE),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", Reuse.ASKED_TO_CLOSE),
        (OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen", Reuse.SURPLUS),
        (OK + b"\r\n", Reuse.SURPLUS),
    ],
)
async def test_a_connection_that_must_end_is_not_used_again(wire: bytes, reuse: Reuse) -> None:
    async with line(says(wire)) as server:
        for _ in range(2):
            assert await server.ask() == (200, b"ok")
            await until(lambda: server.transport.pool.open == 0)
        assert server.opened == 2
        assert server.transport.endings == {reuse: 2}


async def test_bytes_that_come_while_nobody_asked_end_the_connection() -> None:
    asked = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        received.append(await read_request(reader))
        writer.write(OK)
        await asked.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen")
        await reader.read()

    async with line(script) as server:
        assert await server.ask() == (200, b"ok")
        assert server.transport.pool.idle == 1
        asked.set()
        await until(lambda: server.transport.pool.open == 0)
        assert await server.ask() == (200, b"ok")


@pytest.mark.parametrize(
    ("wire", "then", "error"),
    [
        (b"", "close", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200", "close", httpx.RemoteProtocolError),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "close", httpx.RemoteProtocolError),
        (b"", "reset", httpx.ReadError),
        (b"junk", "keep", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, "keep", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 40_000, "keep", httpx.RemoteProtocolError),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 33 + OK, "keep", httpx.RemoteProtocolError),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
            "keep",
            httpx.RemoteProtocolError,
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
            "keep",
            httpx.RemoteProtocolError,
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "keep", httpx.RemoteProtocolError),
    ],
)
async def test_no_answer_is_an_error(wire: bytes, then: str, error: type[Exception]) -> None:
    async with line(says(wire, then=then)) as server:
        with pytest.raises(error):
            await server.start("POST", fields=[(b"Content-Length", b"1")], body=httpx.ByteStream(b"x"))
        await until(lambda: server.transport.pool.open == 0)


@pytest.mark.parametrize(
    ("head", "then", "error"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", "close", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n", "close", httpx.RemoteProtocolError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", "reset", httpx.ReadError),
        (b"HTTP/1.1 200 OK\r\n\r\n", "reset", httpx.ReadError),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nX\r\n",
            "keep",
            httpx.RemoteProtocolError,
        ),
    ],
)
async def test_p16_a_cut_answer_never_looks_whole(head: bytes, then: str, error: type[Exception]) -> None:
    go_on = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        received.append(await read_request(reader))
        writer.write(head + (b"" if then == "keep" else b"hello"))
        await go_on.wait()  # a reset would overtake what was not read yet
        if then == "reset":
            reset(writer)
        elif then == "keep":
            await reader.read()

    async with line(script) as server:
        response = await server.start()
        chunks = aiter(response.stream)  # type: ignore[arg-type]
        assert await anext(chunks) == b"hello"
        go_on.set()
        with pytest.raises(error):
            await anext(chunks)
        await response.aclose()


@pytest.mark.parametrize("then", ["go on", "close", "break the coding"])
async def test_a_flood_of_tiny_chunks_arrives_whole_a_few_at_a_time(then: str) -> None:
    count, end = 100_000, {"go on": b"0\r\n\r\n", "close": b"", "break the coding": b"X\r\n"}[then]
    wire = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * count + end
    async with line(sends(wire, keep=then != "close")) as server:
        for _ in range(2):
            response = await server.start()
            sizes: list[int] = []
            try:
                async for chunk in response.stream:  # type: ignore[union-attr]
                    sizes.append(len(chunk))  # noqa: PERF401 - what came before an error counts
            except httpx.RemoteProtocolError:
                assert then != "go on"
            await response.aclose()
            assert sum(sizes) == count
            assert max(sizes) <= AT_ONCE, "between two of them others have their turn"
        assert server.opened == (1 if then == "go on" else 2)


def refuses_early(status: bytes, *, reads: int, then: str) -> Script:
    """Answer after so many bytes of the request, and go on as told."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(reads)
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: 5\r\n\r\nearly" % status)
        if then == "wait":
            await writer.drain()
            while await reader.read(65536):
                pass

    return script


@pytest.mark.parametrize("then", ["wait", "close"])
@pytest.mark.parametrize("status", [b"413 Too Large", b"200 OK"])
async def test_an_early_answer_is_delivered_and_the_upload_stopped(status: bytes, then: str) -> None:
    body = Pieces(b"x" * 1000)
    async with line(refuses_early(status, reads=1000, then=then)) as server:
        async with asyncio.timeout(20):
            seen = await server.ask("POST", fields=[(b"Content-Length", b"1000000")], body=body)
            assert seen == (int(status[:3]), b"early")
            await body.ended.wait()
        await until(lambda: server.transport.pool.open == 0)
        assert server.transport.endings == {Reuse.UNFINISHED: 1}


@pytest.mark.parametrize("ready", [True, False])
async def test_an_early_answer_arrives_though_the_server_then_closes_on_the_rest(ready: bool) -> None:
    """The kernel answers what we go on sending with a reset, and the write fails; the answer came before that."""
    step = 64 * 1024
    for _ in range(20):
        body = (
            httpx.ByteStream(BIG) if ready else Pieces(*(BIG[at : at + step] for at in range(0, len(BIG), step))).end()
        )
        async with line(refuses_early(b"413 Too Large", reads=10, then="close")) as server:
            fields = [(b"Content-Length", b"%d" % len(BIG))]
            assert await server.ask("POST", fields=fields, body=body) == (413, b"early")


async def test_an_answer_may_follow_its_request_while_both_run() -> None:
    body = Pieces(b"one")

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n")
        writer.write(await reader.readexactly(3))
        writer.write(await reader.readexactly(3))
        await reader.read()

    async with line(echo) as server:
        response = await server.start("POST", fields=[(b"Content-Length", b"6")], body=body)
        chunks = aiter(response.stream)  # type: ignore[arg-type]
        assert await anext(chunks) == b"one"
        body.queue.put_nowait(b"two")
        body.end()
        assert await anext(chunks) == b"two"
        assert [chunk async for chunk in chunks] == []
        assert server.transport.endings == {Reuse.YES: 1}


async def test_a_slow_server_slows_the_upload() -> None:
    go_on = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        await go_on.wait()
        received.append(await read_request(reader))
        writer.write(OK)

    body = Pieces(*[bytes(65536)] * 1000).end()
    async with line(script) as server:
        asking = asyncio.create_task(server.ask("POST", fields=[(b"Content-Length", b"65536000")], body=body))
        await until(lambda: body.taken > 0)
        seen = -1
        while seen != body.taken:  # until the buffers of both sockets are full
            seen = body.taken
            await asyncio.sleep(0.05)
        assert seen < 500
        go_on.set()
        assert await asking == (200, b"ok")
        assert len(server.received[0].body) == 65536000


async def test_a_slow_reader_slows_the_server() -> None:
    sent = 0

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        nonlocal sent
        received.append(await read_request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (65536 * 1000))
        for _ in range(1000):
            writer.write(bytes(65536))
            await writer.drain()
            sent += 1

    async with line(script) as server:
        response = await server.start()
        seen = -1
        while seen != sent:
            seen = sent
            await asyncio.sleep(0.05)
        assert seen < 500
        assert len(await read(response)) == 65536000
        assert server.transport.endings == {Reuse.YES: 1}


async def test_an_answer_that_is_left_early_ends_its_connection() -> None:
    async with line(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", keep=True)) as server:
        response = await server.start()
        await response.aclose()
        await until(lambda: server.transport.pool.open == 0)
        await response.aclose()


async def test_closing_the_transport_ends_requests_that_are_under_way() -> None:
    async with line(says(b"")) as server:
        asking = asyncio.create_task(server.ask())
        await until(lambda: bool(server.received))
        await server.transport.aclose()
        with pytest.raises(httpx.ReadError):
            await asking
        with pytest.raises(httpx.LocalProtocolError):
            await server.start()


async def test_only_http_is_spoken() -> None:
    async with closed(OwnTransport(answers=AnswerLimits())) as transport:
        with pytest.raises(httpx.UnsupportedProtocol):
            await Line(transport, "ftp://server.test").start()
