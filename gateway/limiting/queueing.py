"""Waiting for a slot: first come, first served, in a queue of bounded length, for a bounded time.

Theory of operation. One queue per key of slots. Only the first in a queue may try for a slot; it is woken when it
becomes the first, when a slot of this process was given back, and every ``poll_s`` where other processes give slots
back too. Whoever leaves, with a slot or without, wakes the next. A queue that nobody waits in does not exist.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Place:
    """One request's place in a queue."""

    def __init__(self, queue: deque[Place]) -> None:
        self._queue = queue
        self._woken = asyncio.Event()

    @property
    def is_first(self) -> bool:
        """Whether it is this one's turn to try."""
        return self._queue[0] is self

    def wake(self) -> None:
        """Let it look whether it is its turn."""
        self._woken.set()

    async def wait(self, timeout_s: float) -> None:
        """Wait until woken, at most so long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()


class Queues:
    """All queues of one limiter. ``waiting`` is how many wait in all of them."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Place]] = {}

    @property
    def waiting(self) -> int:
        """Requests that wait now."""
        return sum(len(queue) for queue in self._queues.values())

    def length(self, key: str) -> int:
        """Return how many wait for this key."""
        return len(self._queues.get(key, ()))

    def wake(self, key: str) -> None:
        """Tell the first in the queue that a slot may be free."""
        if key in self._queues:
            self._queues[key][0].wake()

    @contextmanager
    def place(self, key: str) -> Iterator[Place]:
        """Stand at the end of the queue for as long as the block runs."""
        queue = self._queues.setdefault(key, deque())
        place = Place(queue)
        queue.append(place)
        try:
            yield place
        finally:
            queue.remove(place)
            if queue:
                queue[0].wake()
            else:
                del self._queues[key]
