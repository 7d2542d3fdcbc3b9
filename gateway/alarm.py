"""A timer for what is put off again and again and seldom comes: the end of a request, of a wait, of an idle connection.

States: *unset* ⇄ *set* → *closed*. Setting and unsetting the event loop's own timer costs more than most of what a
request does in between. So that timer stays where it is, is looked at when it fires, and is set again only then, or
when the alarm must ring before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_NEVER_S = float("inf")


class Alarm:
    """Calls ``ring`` once for each time that it was set and not unset before. Close it, or it keeps its owner alive."""

    __slots__ = ("_at_s", "_loop", "_timer", "_timer_s", "ring")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self.ring = ring
        self._loop = loop
        self._at_s = self._timer_s = _NEVER_S
        self._timer: asyncio.Handle | None = None

    def set(self, within_s: float) -> None:
        """Ring so many seconds from now, and no more when it was to ring before."""
        self._at_s = at_s = self._loop.time() + within_s
        if at_s < self._timer_s:
            self._arm()

    def set_at(self, at_s: float) -> None:
        """Ring at this moment on the loop's clock, and no more when it was to ring before; never in this turn."""
        self._at_s = at_s
        if at_s < self._timer_s:
            self._arm()

    def unset(self) -> None:
        """Do not ring."""
        self._at_s = _NEVER_S

    def close(self) -> None:
        """Let go of everything, the owner too."""
        self.unset()
        self.ring = _nothing
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
            self.ring()


class Alarms:
    """Lends alarms of a loop, the running one. An alarm that comes back keeps its timer, so that most of those who
    borrow it need not set one."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._idle: list[Alarm] = []
        self._closed = False

    def lend(self, ring: Callable[[], None]) -> Alarm:
        """Return an alarm that is not set."""
        if not self._idle:
            return Alarm(self.loop, ring)
        alarm = self._idle.pop()
        alarm.ring = ring
        return alarm

    def take_back(self, alarm: Alarm) -> None:
        """Take an alarm that is not needed any more."""
        if self._closed:
            alarm.close()
            return
        alarm.unset()
        alarm.ring = _nothing
        self._idle.append(alarm)

    def close(self) -> None:
        """Close those that are here, and from now on those that come."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()


def _nothing() -> None:
    """Wake nobody."""
