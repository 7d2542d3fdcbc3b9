"""The places of calls and the room for bodies, shared so that a route whose calls hang can't hold them all.

Nobody can take back what a call that has begun holds, so some stays free beforehand (the dynamic threshold of
shared-memory switches, Choudhury and Hahne 1998). A route with calls under way gets another place only while it holds
less than three times the places that are then left besides one, and is given no more bodies once it holds more than
three times the bytes that are left. Of sixteen places one route gets twelve at most; the more routes are busy, the
fewer each. Where only one is mirrored it gets all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

SHARE = 3


class Places:
    """Counts who holds how many of ``count`` places. ``shared`` says that more than one route is mirrored."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: Counter[str] = Counter()
        self.shared = False

    def may_take(self, route: str) -> bool:
        """Whether the route may have one more."""
        held = self._held[route]
        return not (self.shared and held) or held < SHARE * (self._count - self._held.total() - 1)

    def take(self, route: str) -> None:
        """Count a call that begins."""
        self._held[route] += 1

    def give_back(self, route: str) -> None:
        """Count a call that ended."""
        self._held[route] -= 1


class Room:
    """Counts whose bodies wait in a budget of which ``free_bytes`` tells what is left."""

    def __init__(self, free_bytes: Callable[[], int]) -> None:
        self._free_bytes = free_bytes
        self._held_bytes: Counter[str] = Counter()

    def is_filled_by(self, route: str) -> bool:
        """Whether what waits for the route leaves others too little."""
        return self._held_bytes[route] > SHARE * self._free_bytes()

    def take(self, route: str, size_bytes: int) -> None:
        """Count bytes that wait from now on."""
        self._held_bytes[route] += size_bytes

    def give_back(self, route: str, size_bytes: int) -> None:
        """Count bytes that were let go."""
        self._held_bytes[route] -= size_bytes
