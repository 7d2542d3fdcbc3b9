"""The places of calls, shared so that a target whose calls hang can't hold them all.

Nobody can take a place back from a call that has begun, so some stay free beforehand: a target with calls under way
gets another place only while it holds less than three times the places that are then left besides one (the dynamic
threshold of shared-memory switches, Choudhury and Hahne 1998). Of sixteen one target gets twelve at most; the more
targets are busy, the fewer each. Where only one is ever called it gets all.
"""

from __future__ import annotations

from collections import Counter

SHARE = 3


class Places:
    """Counts who holds how many of ``count`` places. ``shared`` says that more than one target may be called."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: Counter[str] = Counter()
        self.shared = False

    def may_take(self, target: str) -> bool:
        """Whether the target may have one more."""
        held = self._held[target]
        return not (self.shared and held) or held < SHARE * (self._count - self._held.total() - 1)

    def take(self, target: str) -> None:
        """Count a call that begins."""
        self._held[target] += 1

    def give_back(self, target: str) -> None:
        """Count a call that ended."""
        self._held[target] -= 1
