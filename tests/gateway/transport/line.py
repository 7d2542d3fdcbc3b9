"""A transport with a scripted server at its other end, and the teardown that every test of it owes."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from gateway.transport.own import OwnTransport
from tests.fakes.shadow_server import Received, Script, ShadowServer, read_request

WAIT_S = 30.0


@dataclass
class Line:
    """Sends requests to one server."""

    transport: OwnTransport
    url: str
    server: ShadowServer | None = None
    opened: int = 0
    """Connections that were opened for requests, as the trace told."""
    defaults: dict[str, Any] = field(default_factory=dict)

    async def start(
        self,
        method: str = "GET",
        target: bytes = b"/",
        fields: list[tuple[bytes, bytes]] | None = None,
        body: httpx.AsyncByteStream | httpx.SyncByteStream | None = None,
        **extensions: Any,
    ) -> httpx.Response:
        """Send a request with exactly these fields after Host, and return its answer, still open."""
        request = httpx.Request(
            method,
            self.url,
            headers=[(b"Host", b"server.test"), *(fields or [])],
            stream=body or httpx.ByteStream(b""),
            extensions={"target": target, "trace": self._trace, **self.defaults, **extensions},
        )
        return await self.transport.handle_async_request(request)

    async def ask(self, *args: Any, **options: Any) -> tuple[int, bytes]:
        """Send a request, read its answer and close it; return status and body."""
        response = await self.start(*args, **options)
        return response.status_code, await read(response)

    @property
    def received(self) -> list[Received]:
        assert self.server is not None
        return self.server.received

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        assert event == "connection.open.started"
        self.opened += 1


async def read(response: httpx.Response) -> bytes:
    """Read the rest of an answer's raw body and close it."""
    try:
        return b"".join([chunk async for chunk in response.stream])  # type: ignore[union-attr]
    finally:
        await response.aclose()


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until the condition holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # sockets close in the kernel's time: there is no event to wait for


@asynccontextmanager
async def line(script: Script, url: str = "{url}", **options: Any) -> AsyncIterator[Line]:
    """Run a server with this script and a transport with these options; at the end nothing may be left."""
    before = open_sockets()
    async with closed(OwnTransport(**options)) as transport, ShadowServer(script) as server:
        yield Line(transport, url.format(url=server.url), server)
    await until(lambda: open_sockets() <= before)


@asynccontextmanager
async def closed(transport: OwnTransport) -> AsyncIterator[OwnTransport]:
    """Close the transport at the end and check that it holds nothing, and that no task of it runs on."""
    before = asyncio.all_tasks()
    try:
        async with asyncio.timeout(60):
            yield transport
    finally:
        await transport.aclose()
    assert (transport.pool.open, transport.pool.idle, transport.pool.waiting) == (0, 0, 0)
    await until(lambda: not [task for task in asyncio.all_tasks() - before if _is_ours(task)])


def _is_ours(task: asyncio.Task[Any]) -> bool:
    return task.get_name() == "upload"


def open_sockets() -> int:
    """Count the sockets of this process."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            count += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
        except FileNotFoundError:
            continue
    return count


def says(*pieces: bytes, then: str = "keep") -> Script:
    """Read a request, send the pieces one by one, then keep the connection for the next, close it or reset it."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        while True:
            received.append(await read_request(reader))
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if then == "reset":
                reset(writer)
            if then != "keep":
                return

    return script


def reset(writer: asyncio.StreamWriter) -> None:
    """Leave with a RST instead of a FIN."""
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class Pieces(httpx.AsyncByteStream):
    """A request body that comes piece by piece, as the test lets it."""

    def __init__(self, *pieces: bytes) -> None:
        self.queue: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.taken = 0
        self.ended = asyncio.Event()
        for piece in pieces:
            self.queue.put_nowait(piece)

    def end(self) -> Pieces:
        """Say that nothing more comes."""
        self.queue.put_nowait(None)
        return self

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while (piece := await self.queue.get()) is not None:
                if isinstance(piece, Exception):
                    raise piece
                self.taken += 1
                yield piece
        finally:
            self.ended.set()
