"""Connections to Redis that are made to the end, however little time the decision that wanted them had.

A connection takes several round trips (TCP, TLS, a password, a database), a decision takes one. If each connection were
given up with its decision, a Redis a little further away would never be connected to at all, though it could answer
every decision in time. So a task makes it, and whoever is lent the same connection next waits for the same task: for
half of its time at most, because an answer that comes too late for its decision ends the connection too.
"""

from __future__ import annotations

import asyncio
from typing import Any

from redis.asyncio import BlockingConnectionPool
from redis.exceptions import ConnectionError as NotConnected

CONNECT_S = 2.0
"""How long making a connection may take."""


class PatientPool(BlockingConnectionPool):
    """Lends connections, and owns the tasks that make them. Nobody waits longer than ``patience_s`` for one that is
    being made."""

    def __init__(self, *args: Any, patience_s: float, **options: Any) -> None:
        super().__init__(*args, **options)
        self._patience_s = patience_s
        self._making: dict[Any, asyncio.Task[None]] = {}

    async def ensure_connection(self, connection: Any) -> None:
        """Wait until the connection is there; make it, if nobody does already. Raises ``ConnectionError`` where it is
        not there in time."""
        if connection.is_connected and connection not in self._making:
            await super().ensure_connection(connection)
            return
        making = self._making.get(connection)
        if making is None:
            making = asyncio.create_task(self._make(connection), name="connection to redis")
            self._making[connection] = making
        await asyncio.wait({making}, timeout=self._patience_s)
        if not making.done():
            raise NotConnected("the connection is still being made")
        making.result()

    async def disconnect(self, inuse_connections: bool = True) -> None:
        """Close the connections, and with all of them make no more."""
        if inuse_connections and self._making:
            tasks = set(self._making.values())
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await super().disconnect(inuse_connections)

    async def _make(self, connection: Any) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await super().ensure_connection(connection)
        finally:
            task = self._making.pop(connection)
            task.add_done_callback(_look_at)


def _look_at(task: asyncio.Task[None]) -> None:
    """Take note of how it ended, where nobody waits any more."""
    if not task.cancelled():
        task.exception()
