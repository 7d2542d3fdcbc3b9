"""Look host names up, on threads of its own: a name server that is silent holds up those who ask for its names, and
nobody else. What the loop itself offers shares a few threads among all names.

A name is looked up once at a time, for all who wait for it, so there are never more threads than names; nothing is
remembered. A numeric address needs no thread.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any

Address = tuple[socket.AddressFamily, Any]
"""A family, and what its sockets take to connect to."""
Lookup = Callable[[str, int], list[Address]]
"""Returns where a host's port is, the best first. Blocks. Raises ``OSError`` or ``UnicodeError``."""


def look_up(host: str, port: int, flags: int = 0) -> list[Address]:
    """Ask the system, which also knows which families are of use."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, where) for family, *_, where in found]


class Resolver:
    """Belongs to one event loop."""

    def __init__(self, lookup: Lookup = look_up) -> None:
        self._lookup = lookup
        self._under_way: dict[tuple[str, int], asyncio.Future[list[Address]]] = {}

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Return where a host's port is, the best first. Raises ``OSError`` or ``UnicodeError``."""
        try:
            return look_up(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # it is a name
        found = self._under_way.get((host, port)) or self._begin(host, port)
        return await asyncio.shield(found)  # others may wait for it when this one gives up

    def _begin(self, host: str, port: int) -> asyncio.Future[list[Address]]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[Address]] = loop.create_future()
        # No pool: its threads would be waited for when the process ends.
        Thread(target=self._ask, args=(host, port, found, loop), name="resolver", daemon=True).start()
        found.add_done_callback(partial(self._end, (host, port)))
        self._under_way[host, port] = found
        return found

    def _ask(self, host: str, port: int, found: asyncio.Future[list[Address]], loop: asyncio.AbstractEventLoop) -> None:
        try:
            told = partial(found.set_result, self._lookup(host, port))
        except Exception as error:
            told = partial(found.set_exception, error)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(told)

    def _end(self, asked: tuple[str, int], found: asyncio.Future[list[Address]]) -> None:
        del self._under_way[asked]
        found.exception()  # seen, also where nobody waits any more
