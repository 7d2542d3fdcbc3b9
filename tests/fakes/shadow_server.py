"""A backend made of a bare socket and a script: it speaks the real protocol, well or badly, exactly as told."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came over the wire; ``headers`` keep order, case and bytes."""

    method: bytes
    target: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def values(self, name: bytes) -> list[bytes]:
        """Return the values of all fields with the (lower-case) name."""
        return [value for key, value in self.headers if key.lower() == name]

    @property
    def sha256(self) -> str:
        """The hash of the body."""
        return hashlib.sha256(self.body).hexdigest()


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter, list[Received]], Awaitable[None]]


class ShadowServer:
    """Runs one script per connection; an async context manager that ends every connection with it."""

    def __init__(self, script: Script, port: int = 0) -> None:
        self.received: list[Received] = []
        self.connections = 0
        self.connected = asyncio.Event()
        self._port = port
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def authority(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The base URL."""
        return f"http://{self.authority}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def refuse(self) -> None:
        """Take no more connections; those that are there go on."""
        self._server.close()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.connected.set()
        task = asyncio.create_task(self._serve(reader, writer), name="shadow-server-connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self._script(reader, writer, self.received)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def read_request(reader: asyncio.StreamReader) -> Received:
    """Read one request with any HTTP/1.1 framing. Raises ``IncompleteReadError`` at the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    line, *fields = head[:-4].split(b"\r\n")
    method, target, _version = line.split(b" ")
    headers = tuple((name, value.strip(b" \t")) for name, value in (field.split(b":", 1) for field in fields))
    length = [value for name, value in headers if name.lower() == b"content-length"]
    chunked = any(name.lower() == b"transfer-encoding" for name, _ in headers)
    body = await _read_chunked(reader) if chunked else await reader.readexactly(int(length[0]) if length else 0)
    return Received(method, target, headers, body)


async def _read_chunked(reader: asyncio.StreamReader) -> bytes:
    pieces = []
    while size := int(await reader.readline(), 16):
        pieces.append(await reader.readexactly(size))
        await reader.readline()
    await reader.readline()
    return b"".join(pieces)


def answers(
    body: bytes = b"{}", *, status: int = 200, headers: bytes = b"Content-Type: application/json\r\n"
) -> Script:
    """Answer every request whole and at once, keeping the connection."""
    head = b"HTTP/1.1 %d Scripted\r\n%bContent-Length: %d\r\n\r\n" % (status, headers, len(body))
    return sends(head + body, keep=True)


def sends(wire: bytes, *, keep: bool = False) -> Script:
    """After each request send these very bytes; close then, unless ``keep``."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        while True:
            request = await read_request(reader)
            received.append(request)
            # A HEAD request is answered without a body.
            writer.write(wire[: wire.index(b"\r\n\r\n") + 4] if request.method == b"HEAD" else wire)
            await writer.drain()
            if not keep:
                return

    return script


def waits(gate: asyncio.Event, then: Script) -> Script:
    """Accept, read nothing until the gate opens, then follow the other script."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        await gate.wait()
        await then(reader, writer, received)

    return script


def never_answers() -> Script:
    """Read every request and stay silent."""

    async def script(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, received: list[Received]) -> None:
        while True:
            received.append(await read_request(reader))

    return script


def endless() -> Script:
    """Begin an answer and never stop sending."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        received.append(await read_request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
            await writer.drain()

    return script


def resets(wire: bytes = b"") -> Script:
    """Send these bytes and reset the connection (RST, not FIN)."""

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        received.append(await read_request(reader))
        writer.write(wire)
        await writer.drain()
        raw: socket.socket = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    return script


@contextmanager
def refusing() -> Iterator[str]:
    """A base URL where every connection is refused."""
    with socket.socket() as bound:  # bound and never listening: nobody else can take the port meanwhile
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


@contextmanager
def black_hole() -> Iterator[str]:
    """A base URL whose host drops every SYN: the accept queue of a socket that nobody serves is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
