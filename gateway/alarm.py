"""A timer for what is put off again and again and seldom comes: the end of a wait, of an idle connection.

States: *unset* ⇄ *set* → *closed*. Setting and unsetting the event loop's own timer costs more than most of what a
request does in between. So that timer stays where it is, is looked at when it fires, and is set again only then, or
when the alarm must ring before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_NEVER_S = float("inf")


class Alarm:
    """Calls ``ring`` once for each time that it was set and not unset before. Close it, or it keeps its owner alive."""

    __slots__ = ("_at_s", "_loop", "_ring", "_timer", "_timer_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._at_s = self._timer_s = _NEVER_S
        self._timer: asyncio.TimerHandle | None = None

    def set(self, within_s: float) -> None:
        """Ring so many seconds from now, and no more when it was to ring before."""
        self._at_s = self._loop.time() + within_s
        if self._at_s < self._timer_s:
            self._arm()

    def unset(self) -> None:
        """Do not ring."""
        self._at_s = _NEVER_S

    def close(self) -> None:
        """Let go of everything."""
        self.unset()
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_s = None, _NEVER_S

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_s = self._loop.call_at(self._at_s, self._fire), self._at_s

    def _fire(self) -> None:
        self._timer, self._timer_s = None, _NEVER_S
        if self._at_s == _NEVER_S:
            return
        if self._loop.time() < self._at_s:
            self._arm()
        else:
            self.unset()
            self._ring()
