"""How long one request may still take, and a way to end it at once.

States: *running*, its end moved by ``extend``; *held*, its end put off while something is under way that must not be
cancelled; *interrupted*, final: nothing moves the end away again, so that an interruption is never lost to an
extension in the same turn of the loop; *over*, the task was cancelled by it; *closed* after the block. It ends its
block with ``TimeoutError``.

A request moves its end many times, nearly always to a later moment, so an ``Alarm`` keeps the time, and it is borrowed:
the next request finds its timer set. That is all it has beyond ``asyncio.timeout``, which would set a timer each time;
what a cancellation means at the end of the block is decided as there.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from gateway.alarm import Alarm, Alarms

_NEVER_S = float("inf")


class Deadline:
    """A context manager for the task that enters it. Durations are seconds on the loop's clock. The ``alarms`` are
    lent."""

    _alarm: Alarm | None = None
    _task: asyncio.Task[object] | None = None
    _end_s = _NEVER_S
    _lent_left_s = 0.0
    _held = False
    _interrupted = False
    _over = False

    def __init__(self, alarms: Alarms) -> None:
        self._alarms = alarms
        self._loop = alarms.loop

    def __enter__(self) -> Deadline:
        self._task = task = asyncio.current_task(self._loop)
        assert task is not None, "only a task can be ended"
        self._cancelling = task.cancelling()
        self._alarm = self._alarms.lend(self._ring)
        if self._end_s != _NEVER_S or self._interrupted:
            self._set()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        alarm, self._alarm = self._alarm, None
        assert task is not None and alarm is not None, "it was entered"  # noqa: PT018
        self._alarms.take_back(alarm)
        # A cancellation from elsewhere in the same turn goes first.
        if self._over and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def extend(self, seconds: float) -> None:
        """Put the end so many seconds from now, earlier or later than it was."""
        self._end_s = end_s = self._loop.time() + seconds
        alarm = self._alarm
        if alarm is not None and not (self._interrupted or self._held or self._over):
            alarm.set_at(end_s)

    def lend(self, seconds: float) -> None:
        """Let somebody else's time run, at most so many seconds; ``take_back`` puts the end where it leaves as much as
        now."""
        self._lent_left_s = self._end_s - self._loop.time()
        self.extend(seconds)

    def take_back(self) -> None:
        """Let the own time run again."""
        self.extend(self._lent_left_s)

    def interrupt(self) -> None:
        """End the block at its next wait, or as soon as it is no longer held."""
        self._interrupted = True
        self._set()

    def hold(self) -> None:
        """Put the end off until ``release``; what is held must have a bound of its own."""
        self._held = True
        if self._alarm is not None:
            self._alarm.unset()

    def release(self) -> None:
        """Let the end come again. Harmless when nothing is held."""
        if self._held:
            self._held = False
            self._set()

    def _set(self) -> None:
        if self._alarm is None or self._held or self._over:
            return
        self._alarm.set_at(self._loop.time() if self._interrupted else self._end_s)

    def _ring(self) -> None:
        if self._task is not None:
            self._over = True
            self._task.cancel()
