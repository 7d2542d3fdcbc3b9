"""A bounded queue with a lane for each route, so that a busy route can neither starve nor displace the others.

First in, first out within a lane; lanes take turns, and one whose first item may not begin yet is passed over. When
the queue is full, the newest item of the longest lane gives way to a route that holds less than its equal share; a
route at or above its share loses its own newcomer. No call waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """Hold up to ``capacity`` items over all lanes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._lanes: dict[str, deque[T]] = {}  # waiting routes only, the next to be served first

    def __len__(self) -> int:
        return self._size

    def offer(self, route: str, item: T) -> T | None:
        """Queue the item; return the item that had to give way (maybe this very one), ``None`` when there was room.

        Costs one step, and one per waiting route when the queue is full.
        """
        displaced: T | None = None
        if self._size >= self._capacity:
            displaced = self._make_room(route)
            if displaced is None:
                return item
        self._lanes.setdefault(route, deque()).append(item)
        self._size += 1
        return displaced

    def take(self, may_begin: Callable[[T], bool] = lambda _: True) -> T | None:
        """Remove and return the next item that may begin; ``None`` when none does."""
        route = next((name for name, lane in self._lanes.items() if may_begin(lane[0])), None)
        if route is None:
            return None
        lane = self._lanes.pop(route)
        item = lane.popleft()
        if lane:
            self._lanes[route] = lane  # to the end: the other routes come first now
        self._size -= 1
        return item

    def drain(self) -> Iterator[T]:
        """Remove and yield everything."""
        while (item := self.take()) is not None:
            yield item

    def _make_room(self, route: str) -> T | None:
        held = len(self._lanes.get(route, ()))
        contenders = len(self._lanes.keys() | {route})
        longest = max(self._lanes, key=lambda name: len(self._lanes[name]), default=None)
        if longest is None or longest == route or (held + 1) * contenders > self._capacity:
            return None
        lane = self._lanes[longest]
        item = lane.pop()
        if not lane:
            del self._lanes[longest]
        self._size -= 1
        return item
