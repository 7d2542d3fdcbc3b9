"""Load from raw sockets on asyncio: as little as possible between the clock and the wire."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """A request as bytes, and how many body bytes its answer has."""

    data: bytes
    answer_bytes: int


class _Caller(asyncio.Protocol):
    """One keep-alive connection that asks again as soon as it has its answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._got = bytearray()
        self._body_at = -1
        self._size = 0
        self._wanted = 0
        self._done: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionError("the peer closed the connection"))

    async def ask(self, ask: Ask) -> None:
        """Send the request and wait for the last byte of its answer, which must be a 200 with a Content-Length."""
        assert self._transport is not None
        self._done = asyncio.get_running_loop().create_future()
        self._wanted, self._size, self._body_at = ask.answer_bytes, 0, -1
        self._got.clear()
        self._transport.write(ask.data)
        await self._done

    def data_received(self, data: bytes) -> None:
        if self._body_at < 0:
            self._got += data
            end = self._got.find(b"\r\n\r\n")
            if end < 0:
                return
            if not self._got.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(bytes(self._got[:200]))
            self._body_at = end + 4
            self._size = len(self._got) - self._body_at
        else:
            self._size += len(data)
        if self._size >= self._wanted and self._done is not None and not self._done.done():
            self._done.set_result(None)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def _connect(port: int) -> _Caller:
    _, caller = await asyncio.get_running_loop().create_connection(_Caller, "127.0.0.1", port)
    return caller


async def closed_loop(port: int, ask: Ask, count: int, callers: int) -> None:
    """Ask ``count`` times, ``callers`` at once."""
    left = count

    async def work() -> None:
        nonlocal left
        caller = await _connect(port)
        while left > 0:
            left -= 1
            await caller.ask(ask)
        caller.close()

    await asyncio.gather(*(work() for _ in range(callers)))


async def open_loop(port: int, ask: Ask, count: int, rate: float) -> list[float]:
    """Ask ``rate`` times a second, whatever the answers do; return each answer's time in seconds from the moment when
    it was due."""
    loop, idle, seconds = asyncio.get_running_loop(), list[_Caller](), list[float]()

    async def once(due_s: float) -> None:
        caller = idle.pop() if idle else await _connect(port)
        await caller.ask(ask)
        seconds.append(time.perf_counter() - due_s)
        idle.append(caller)

    for caller in [await _connect(port) for _ in range(max(8, int(rate * 0.1)))]:
        idle.append(caller)
    began_s, tasks = time.perf_counter(), []
    for number in range(count):
        due_s = began_s + number / rate
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        tasks.append(loop.create_task(once(time.perf_counter())))
    await asyncio.gather(*tasks)
    for caller in idle:
        caller.close()
    return seconds
