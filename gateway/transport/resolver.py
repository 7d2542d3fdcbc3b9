"""Look host names up, on threads of its own: a name server that is silent holds up those who ask for its names, and
nobody else. What the loop itself offers shares a few threads among all names.

A name is looked up once at a time, for all who wait for it; nothing is remembered. A numeric address needs no thread.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

MAX_NAMES = 64
"""Looked up at once; there are as many as the settings name hosts."""

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
        self._threads = ThreadPoolExecutor(MAX_NAMES, thread_name_prefix="resolver")
        self._under_way: dict[tuple[str, int], asyncio.Future[list[Address]]] = {}

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Return where a host's port is, the best first. Raises ``OSError`` or ``UnicodeError``."""
        try:
            return look_up(host, port, socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass  # it is a name
        found = self._under_way.get((host, port))
        if found is None:
            found = asyncio.get_running_loop().run_in_executor(self._threads, self._lookup, host, port)
            self._under_way[host, port] = found
            found.add_done_callback(partial(self._end, (host, port)))
        return await asyncio.shield(found)  # others may wait for it when this one gives up

    def close(self) -> None:
        """Begin no lookup any more, and wait for none."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _end(self, asked: tuple[str, int], found: asyncio.Future[list[Address]]) -> None:
        del self._under_way[asked]
        if not found.cancelled():
            found.exception()  # seen, also where nobody waits any more
