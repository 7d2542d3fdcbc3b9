"""An event loop whose clock jumps to the next timer when nothing else is to be done: hours of load in seconds, exactly.

Nothing in it waits for real time, so whatever runs here must not use threads or sockets.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class _Selector(selectors.DefaultSelector):
    """Polls without waiting, and moves the clock by what the loop would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("the virtual loop waits for something that no timer will bring")
            self.now_s += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its ``time()`` starts at 0 and has nothing to do with any wall."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s

    def stall(self, seconds: float) -> None:
        """Let time pass while nothing runs, as a callback that blocks would."""
        self._virtual.now_s += seconds
