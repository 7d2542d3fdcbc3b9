"""What both of uvicorn's parsers lack at a client's connection: bounds in time, and a refusal that can be read.

States of a guard: *waiting* for a head (the timer runs) ⇄ *serving* → *refused*, final: nothing that comes is looked at
any more. A refusal ends our side at once and the connection a little later: closing it over bytes that were not read
makes the kernel reset it, which can take the refusal from a client that is still sending.

A close waits until the client has taken what was written for it. Whoever takes nothing would keep the connection and
its buffers for ever, so that is watched too, whenever no more is written: while writing is paused, and after a close.
"""

from __future__ import annotations

import asyncio
import select
import socket
import struct
from collections.abc import Callable

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gateway.arrival import Leaving
from gateway.head import HeadLimits
from gateway.problem import (
    FIRST_BYTE_TIMEOUT,
    HEAD_TIMEOUT,
    LINGER_BYTES,
    LINGER_IDLE_S,
    LINGER_S,
    Problem,
    encode_problem,
)

GOODBYE_S = 1.0
WATCH_S = 0.4

Date = Callable[[], bytes]


class Guard:
    """Guards one connection, from ``begin`` to ``let_go``. ``on_late`` is called with the problem of a head that does
    not come in time. ``leaving`` tells whoever listens that the client has gone."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: HeadLimits,
        date: Date,
        on_late: Callable[[Problem], None],
    ) -> None:
        self.leaving = Leaving()
        self.refused = False
        self.head_begun = False
        self._loop = loop
        self._limits = limits
        self._date = date
        self._on_late = on_late
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._late_bytes = 0
        self._linger_end_s = 0.0

    def begin(self, transport: asyncio.Transport) -> None:
        """Wait for the first head."""
        self._transport = transport
        self.wait_for_head()

    def wait_for_head(self) -> None:
        """Give a head its time, if it does not run already."""
        if self._timer is None and not self.refused:
            self._timer = self._loop.call_later(self._limits.timeout_s, self._end_of_time)

    def end_of_head(self) -> None:
        """Take note that the head is whole."""
        self.head_begun = False
        self._stop()

    def refuse(self, problem: Problem, *, silently: bool = False) -> None:
        """Answer with the problem and close; ``silently`` where it would be written into another answer."""
        if self.refused or self._transport is None:
            return
        self.refused = True
        self._stop()
        if silently:
            self._transport.close()
        elif not self._transport.is_closing():
            fields, body = encode_problem(problem)
            fields = (*fields, (b"date", self._date()), (b"connection", b"close"))
            lines = b"".join(b"%b: %b\r\n" % field for field in fields)
            self._transport.write(STATUS_LINE[problem.status] + lines + b"\r\n" + body)
            self._linger(self._transport)
        self.watch_unread()
        self.leaving.tell()

    def part(self) -> None:
        """Close after an answer that came before its request was whole: the rest, of whatever length and at whatever
        pace, is not waited for."""
        if self._transport is not None and not self.refused and not self._transport.is_closing():
            self.refused = True
            self._stop()
            self._linger(self._transport)
            self.watch_unread()

    def ignore(self, data: bytes | memoryview) -> None:
        """Take what comes after a refusal, within ``LINGER_BYTES``."""
        self._late_bytes += len(data)
        if self._transport is None or self._transport.is_closing():
            return
        if self._late_bytes > LINGER_BYTES:
            self._transport.close()
        elif self.refused:
            self._close_later(self._transport)

    def watch(self, is_paused: Callable[[], bool]) -> None:
        """Look now and then whether the client is still there, for as long as its socket is not read: only reading
        would tell otherwise. One that has gone loses its connection."""
        if self._watch is None:
            self._watch = self._loop.call_later(WATCH_S, self._look, is_paused)

    def watch_unread(self) -> None:
        """Break the connection if the client takes nothing of what waits for it. Call it when no more is written."""
        waiting_bytes = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if waiting_bytes and self._unread is None:
            self._unread = self._loop.call_later(self._limits.unread_s, self._look_at_unread, waiting_bytes)

    def forget_unread(self) -> None:
        """Watch no longer what waits for the client, because it takes it."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def say_goodbye(self, transport: asyncio.Transport) -> None:
        """Break a connection that is being closed, if it is not gone soon after its last byte went: under TLS a close
        waits for the other side to say goodbye too, which an idle client does not."""
        if transport.is_closing():
            self._loop.call_later(GOODBYE_S, self._end_goodbye, transport)

    def let_go(self) -> None:
        """Guard no longer: the connection is gone, or another protocol's."""
        self.refused = True
        self._on_late = _ignore
        self._stop()
        if self._watch is not None:
            self._watch.cancel()
        self.forget_unread()
        self.leaving.tell()

    def _look(self, is_paused: Callable[[], bool]) -> None:
        self._watch = None
        if self._transport is None or self._transport.is_closing() or not is_paused():
            return
        if has_left(self._transport):
            self._transport.abort()
        else:
            self.watch(is_paused)

    def _look_at_unread(self, before_bytes: int) -> None:
        self._unread = None
        assert self._transport is not None, "it was watched"
        if self._transport.get_write_buffer_size() < before_bytes:
            self.watch_unread()
        else:
            _break(self._transport)

    def _end_goodbye(self, transport: asyncio.Transport) -> None:
        if transport.get_write_buffer_size():
            self.say_goodbye(transport)
        else:
            transport.abort()

    def _linger(self, transport: asyncio.Transport) -> None:
        if transport.can_write_eof():
            transport.write_eof()
            self._linger_end_s = self._loop.time() + LINGER_S
            self._close_later(transport)
        else:
            transport.close()

    def _close_later(self, transport: asyncio.Transport) -> None:
        self._stop()
        wait_s = min(LINGER_IDLE_S, self._linger_end_s - self._loop.time())
        self._timer = self._loop.call_later(max(0.0, wait_s), transport.close)

    def _end_of_time(self) -> None:
        self._timer = None
        self._on_late(HEAD_TIMEOUT if self.head_begun else FIRST_BYTE_TIMEOUT)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _ignore(problem: Problem) -> None:
    """Take no notice: the connection is gone."""


def reset(transport: asyncio.Transport) -> None:
    """Break the connection, so that the other side cannot take it for an end."""
    if not transport.is_closing():  # else the descriptor may be gone, or somebody else's by now
        _break(transport)


def _break(transport: asyncio.Transport) -> None:
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


class Guarded(asyncio.Protocol):
    """What the protocols on both parsers do alike, before uvicorn's class. ``_guard`` is the connection's."""

    _guard: Guard
    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._guard.begin(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        super().connection_lost(exc)
        self._guard.let_go()

    def pause_writing(self) -> None:
        """Take note that the client is slow to read."""
        super().pause_writing()
        self._guard.watch_unread()

    def resume_writing(self) -> None:
        """Take note that the client reads."""
        super().resume_writing()
        self._guard.forget_unread()
        if self.transport.is_closing():
            self._guard.watch_unread()


def has_left(transport: asyncio.Transport) -> bool:
    """Say whether the other side has ended or broken the connection, also where bytes of it wait to be read."""
    poll = select.poll()
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLRDHUP)
    return bool(poll.poll(0))
