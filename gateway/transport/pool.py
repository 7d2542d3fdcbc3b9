"""Lend connections out: the one that was used last first, never more than the caps allow, and nobody waits for ever.

Per server there is a stack of idle connections and a queue of those who wait. A *slot* is the right to have one
connection open; it is taken before connecting and given back when the socket is gone, so the number of sockets never
passes the caps. A slot or a connection is handed to a waiter directly; a waiter that is cancelled in the same turn
passes it on. An idle connection of one server makes room for another server's waiter when the total is reached.

One timer, armed only while there are idle connections, closes those that were idle for ``idle_s``. There are no tasks.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import httpx

from gateway.transport.connection import Connection


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """``idle_s`` must be below the time after which the backends close: many do after five seconds."""

    total: int = 1000
    per_server: int = 1000
    waiting: int = 10_000
    idle_s: float = 4.0


class Origin(NamedTuple):
    """Where a connection goes: what two requests must have in common to share one. ``socket_path`` is a Unix socket,
    ``name`` the host name that the certificate is checked against, ``context`` who is believed and what is shown (the
    transport's own where it is ``None``)."""

    host: str
    port: int
    name: str | None = None
    socket_path: str | None = None
    context: ssl.SSLContext | None = None


@dataclass(slots=True, eq=False)
class _Waiter:
    turn: int
    future: asyncio.Future[Connection | None]


@dataclass(slots=True, eq=False)
class _Line:
    """One server's idle connections, oldest first, its slots in use, and who waits for one."""

    idle: list[Connection] = field(default_factory=list)
    open: int = 0
    waiters: deque[_Waiter] = field(default_factory=deque)


Connect = Callable[[Callable[[Connection], None]], Awaitable[Connection]]
"""Opens a connection or raises. It must call what it is given, once, when the socket of a connection that it returned
is gone, and leave no socket when it raises or is cancelled."""


class Pool:
    """Owned by a transport. Times are seconds on the loop's clock."""

    def __init__(self, limits: PoolLimits) -> None:
        self._limits = limits
        self._lines: dict[Origin, _Line] = {}
        self._busy: dict[Connection, Origin] = {}
        self._open = 0
        self._waiting = 0
        self._turn = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._all_gone: asyncio.Future[None] | None = None

    @property
    def open(self) -> int:
        """Slots in use: connections that are open or being opened."""
        return self._open

    @property
    def idle(self) -> int:
        """Connections that are open and lent to nobody."""
        return sum(len(line.idle) for line in self._lines.values())

    @property
    def waiting(self) -> int:
        """Requests that wait for a connection."""
        return self._waiting

    def take_idle(self, origin: Origin, now_s: float) -> Connection | None:
        """Borrow the connection to the server that was used last, if one is idle."""
        line = self._lines.get(origin)
        while line is not None and line.idle:
            connection = line.idle.pop()
            self._busy[connection] = origin
            if connection.usable and now_s - connection.idle_since_s < self._limits.idle_s:
                return connection
            connection.abort()  # a timer that came late, or an end that the event loop has yet to tell of
        return None

    async def open_one(self, origin: Origin, connect: Connect, within_s: float | None) -> Connection:
        """Borrow a connection to the server when none is idle: a new one, or after a wait another's.

        Raises ``httpx.PoolTimeout`` after ``within_s``, or at once when too many wait already, and what ``connect``
        raises. Cancellation leaves no socket and no slot behind.
        """
        if self._closed:
            raise httpx.LocalProtocolError("the transport is closed")
        loop = asyncio.get_running_loop()
        end_s = None if within_s is None else loop.time() + within_s
        # The line anew at every turn: it goes when nothing is open on it and nobody waits.
        while not self._take_slot(line := self._lines.setdefault(origin, _Line())):
            handed = await self._wait(line, None if end_s is None else end_s - loop.time())
            if handed is None:
                break
            if handed.usable:
                return handed
            handed.abort()  # it was lost on the way
        return await self._fill_slot(origin, connect)

    def put_back(self, connection: Connection, now_s: float) -> None:
        """Return a connection that may be used again."""
        origin = self._busy.get(connection)
        if origin is None:
            return
        if self._closed or not connection.usable:
            connection.abort()
            return
        line = self._lines[origin]
        waiter = self._next(line)
        if waiter is not None:
            waiter.future.set_result(connection)
            return
        del self._busy[connection]
        connection.idle_since_s = now_s
        line.idle.append(connection)
        if self._waiting and self._starved() is not None:
            self._evict_one()
        elif self._timer is None:
            self._arm(self._limits.idle_s)

    async def aclose(self) -> None:
        """Drop every connection and refuse whoever waits; return when all sockets are gone."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for origin, line in self._lines.items():
            for connection in line.idle:
                self._busy[connection] = origin
            line.idle.clear()
            for waiter in line.waiters:
                if not waiter.future.done():
                    waiter.future.set_exception(httpx.PoolTimeout("the transport was closed"))
        for connection in list(self._busy):
            connection.abort()
        while self._busy:
            self._all_gone = asyncio.get_running_loop().create_future()
            await self._all_gone

    async def _fill_slot(self, origin: Origin, connect: Connect) -> Connection:
        try:
            connection = await connect(self._forget)
            if connection.lost:
                raise httpx.ConnectError("the server closed the connection before anything was sent")
        except BaseException:
            self._free_line(self._lines[origin])
            raise
        self._busy[connection] = origin
        if self._closed:
            connection.abort()
        return connection

    def _take_slot(self, line: _Line) -> bool:
        if line.open >= self._limits.per_server:
            return False
        if self._open >= self._limits.total:
            self._evict_one()
            return False
        line.open += 1
        self._open += 1
        return True

    def _evict_one(self) -> None:
        """Close the connection that is idle for longest; its slot goes to a waiter when the socket is gone."""
        idle = [line.idle[0] for line in self._lines.values() if line.idle]
        if idle:
            self._drop_idle(min(idle, key=lambda connection: connection.idle_since_s))

    def _drop_idle(self, connection: Connection) -> None:
        for origin, line in self._lines.items():
            if connection in line.idle:
                line.idle.remove(connection)
                self._busy[connection] = origin
        connection.abort()

    async def _wait(self, line: _Line, within_s: float | None) -> Connection | None:
        """Return a connection, or ``None`` for a slot."""
        if self._waiting >= self._limits.waiting:
            raise httpx.PoolTimeout("too many requests wait for a connection")
        loop = asyncio.get_running_loop()
        self._turn += 1
        waiter = _Waiter(self._turn, loop.create_future())
        line.waiters.append(waiter)
        self._waiting += 1
        timer = None if within_s is None else loop.call_later(max(within_s, 0.0), _expire, waiter.future)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled() and waiter.future.exception() is None:
                self._pass_on(line, waiter.future.result(), loop.time())
            raise
        finally:
            self._waiting -= 1
            if timer is not None:
                timer.cancel()
            if waiter in line.waiters:
                line.waiters.remove(waiter)

    def _pass_on(self, line: _Line, handed: Connection | None, now_s: float) -> None:
        if handed is not None:
            self.put_back(handed, now_s)
        else:
            self._free_line(line)

    def _forget(self, connection: Connection) -> None:
        """Take note that a connection's socket is gone."""
        origin = self._busy.pop(connection, None)
        if origin is None:
            for other, line in self._lines.items():
                if connection in line.idle:
                    line.idle.remove(connection)
                    origin = other
        if origin is not None:
            self._free_line(self._lines[origin])
        if not self._busy and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    def _free_line(self, line: _Line) -> None:
        line.open -= 1
        self._open -= 1
        while self._open < self._limits.total and (starved := self._starved()) is not None:
            waiter = self._next(starved)
            if waiter is not None:
                starved.open += 1
                self._open += 1
                waiter.future.set_result(None)
        for origin in [origin for origin, line in self._lines.items() if not line.open and not line.waiters]:
            del self._lines[origin]

    def _starved(self) -> _Line | None:
        """Return the line whose first waiter came first, of those that may still have a slot."""
        able = [line for line in self._lines.values() if line.waiters and line.open < self._limits.per_server]
        return min(able, key=lambda line: line.waiters[0].turn, default=None)

    def _next(self, line: _Line) -> _Waiter | None:
        while line.waiters:
            waiter = line.waiters.popleft()
            if not waiter.future.done():
                return waiter
        return None

    def _arm(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire_idle)

    def _expire_idle(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        for line in list(self._lines.values()):
            while line.idle and now_s - line.idle[0].idle_since_s >= self._limits.idle_s:
                self._drop_idle(line.idle[0])
        oldest = [line.idle[0].idle_since_s for line in self._lines.values() if line.idle]
        if oldest:
            self._arm(max(min(oldest) + self._limits.idle_s - now_s, 0.001))


def _expire(future: asyncio.Future[Connection | None]) -> None:
    if not future.done():
        future.set_exception(httpx.PoolTimeout("no connection was free in time"))
