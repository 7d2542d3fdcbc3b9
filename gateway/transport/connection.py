"""One connection to a server: bytes in, bytes out, and a pause either way when the other side is slower.

States: *opening* → *idle* ⇄ *busy* (an ``Answer`` is being read) → *lost*, final and reached exactly once. While idle
nothing may come: a byte or an end then loses the connection. While busy the first thing that goes wrong is kept in
``failure`` and wakes whoever waits; a connection that failed is never idle again.

A backend that answers early and closes makes our next write fail, and the event loop then drops what it has not read
yet. The answer is still in the socket: it is fetched in ``connection_lost``, for as long as the socket is open there.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import cast

import httpx

from gateway.alarm import Alarm
from gateway.transport.answer import Answer

MAX_WAITING_BYTES = 256 * 1024
"""Body bytes that may wait for the reader before the socket is not read any more."""

_SALVAGE_BYTES = 64 * 1024
_SALVAGE_READS = 16
_INTERNET = (socket.AF_INET, socket.AF_INET6)


class Connection(asyncio.Protocol):
    """The asyncio protocol of one connection. ``on_lost`` is called once, when the socket is gone."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_lost: Callable[[Connection], None]) -> None:
        self.failure: httpx.TransportError | None = None
        self.lost = False
        self.is_clogged = False
        self.idle_since_s = 0.0
        self.answer: Answer | None = None
        self._loop = loop
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._unwanted = False
        self._paused_reading = False
        self._late = Alarm(loop, self._end_wait)
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    @property
    def usable(self) -> bool:
        """Whether another request may be sent."""
        return self.answer is None and self.failure is None and not self.lost and not self._unwanted

    def finish(self) -> None:
        """Become idle; only after a whole answer that lets the connection be used again."""
        self.answer = None
        if self._paused_reading and self._transport is not None:
            self._paused_reading = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Drop the connection now. Also right before it was made, and any number of times."""
        self._unwanted = True
        if self._transport is not None:
            self._transport.abort()

    def write(self, parts: Sequence[bytes]) -> None:
        """Hand bytes to the socket. A connection that is lost swallows them; ``failure`` tells."""
        if self._transport is not None and not self._transport.is_closing():
            if len(parts) == 1:
                self._transport.write(parts[0])
            else:
                self._transport.writelines(parts)

    async def drain(self, within_s: float | None, *, unless_answered: bool = False) -> None:
        """Wait until the server takes more, the connection fails, or, where asked for, the head of an answer is there.

        Raises ``httpx.WriteTimeout``.
        """
        while self.is_clogged and not self.lost and self.failure is None:
            if unless_answered and self.answer is not None and self.answer.head is not None:
                return
            self._writer = self._loop.create_future()
            await self._wait(self._writer, within_s, httpx.WriteTimeout)

    async def arrival(self, within_s: float | None) -> None:
        """Wait until something came: a final head, body bytes, the end, or a failure.

        Raises ``httpx.ReadTimeout``.
        """
        self._reader = self._loop.create_future()
        if within_s is not None:
            self._late.set(max(within_s, 0.0))
        try:
            await self._reader
        finally:
            self._late.unset()

    def wake(self) -> None:
        """Let whoever waits look again."""
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def resume(self) -> None:
        """Read on, where reading was paused and the reader has caught up."""
        answer = self.answer
        if self._paused_reading and answer and not answer.rest and answer.waiting_bytes < MAX_WAITING_BYTES // 2:
            self._paused_reading = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Become idle."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's do not inherit from it
        if self._unwanted:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        answer = self.answer
        if answer is None:
            self.abort()  # nobody asked
            return
        if self.failure is not None:
            return
        try:
            answer.feed(data)
        except httpx.RemoteProtocolError as error:
            self._fail(error)
            self.abort()
            return
        if (answer.rest or answer.waiting_bytes > MAX_WAITING_BYTES) and not self._paused_reading and self._transport:
            self._paused_reading = True
            self._transport.pause_reading()
        if answer.rest:
            self._loop.call_soon(self._go_on, answer)
        if answer.head is not None:
            self.wake()

    def eof_received(self) -> bool:
        """Take note of the server's end; the connection closes."""
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note that the socket is gone."""
        if exc is not None and self._is_pending:
            self._salvage()
        self._catch_up()
        if self._is_pending:
            self._fail(httpx.ReadError("the connection broke" if exc is not None else "the connection was closed"))
        self.lost = True
        self._late.close()
        self.wake()
        self._on_lost(self)

    def pause_writing(self) -> None:
        """Take note that the server is slow to read."""
        self.is_clogged = True

    def resume_writing(self) -> None:
        """Take note that the server reads again."""
        self.is_clogged = False
        self.wake()

    @property
    def _is_pending(self) -> bool:
        return self.answer is not None and not self.answer.complete and self.failure is None

    def _go_on(self, answer: Answer) -> None:
        """Decode more of what came, now that others had their turn."""
        if answer is self.answer and answer.rest and not self.lost:
            self.data_received(b"")
            if not answer.rest:
                self.resume()

    def _catch_up(self) -> None:
        """Decode all that came: nothing more will."""
        while self._is_pending and self.answer is not None and self.answer.rest:
            self.data_received(b"")

    def _end(self) -> None:
        self._unwanted = True
        self._catch_up()
        if self._is_pending and self.answer is not None:
            try:
                self.answer.feed_end()
            except httpx.RemoteProtocolError as error:
                self._fail(error)
            self.wake()

    def _salvage(self) -> None:
        """Read what the socket still holds, without waiting. Not over TLS, where it would be cipher text."""
        assert self._transport is not None
        shown = self._transport.get_extra_info("socket")
        if shown is None or self._transport.get_extra_info("sslcontext") is not None:
            return
        with suppress(OSError), socket.socket(fileno=os.dup(shown.fileno())) as raw:
            # An event loop may show the number of a descriptor that is someone else's by now: a local port is not.
            if raw.family not in _INTERNET or raw.getsockname() != self._transport.get_extra_info("sockname"):
                return
            for _ in range(_SALVAGE_READS):
                data = raw.recv(_SALVAGE_BYTES, socket.MSG_DONTWAIT)
                if not data:
                    return  # no orderly end: after a reset that was already told of, a socket reads as ended
                self.data_received(data)

    def _fail(self, error: httpx.TransportError) -> None:
        if self.failure is None:
            self.failure = error.with_traceback(None)  # which leads back here
        self.wake()

    def _end_wait(self) -> None:
        assert self._reader is not None, "the alarm is set for a wait"
        _expire(self._reader, httpx.ReadTimeout)

    async def _wait(
        self, future: asyncio.Future[None], within_s: float | None, error: type[httpx.TimeoutException]
    ) -> None:
        if within_s is None:
            await future
            return
        timer = self._loop.call_later(max(within_s, 0.0), _expire, future, error)
        try:
            await future
        finally:
            timer.cancel()


def _expire(future: asyncio.Future[None], error: type[httpx.TimeoutException]) -> None:
    if not future.done():
        future.set_exception(error("the server took too long"))
