"""How long one request may still take, and a way to end it at once.

States: *running*, its end moved by ``extend``; *held*, its end put off while something is under way that must not be
cancelled; *interrupted*, final: nothing moves the end away again, so that an interruption is never lost to an
extension in the same turn of the loop; *over*, the task was cancelled by it; *closed* after the block. It ends its
block with ``TimeoutError``.

A request moves its end many times, nearly always to a later moment. So the timer stays where it is and is set again
only when it fires too early, or when the end moves before it. That is all it has beyond ``asyncio.timeout``, which
would set a timer each time; what a cancellation means at the end of the block is decided as there.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

_NEVER_S = float("inf")


class Deadline:
    """An asynchronous context manager for the task that enters it. Durations are seconds on the loop's clock."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._end_s = self._timer_s = _NEVER_S
        self._timer: asyncio.Handle | None = None
        self._lent_left_s = 0.0
        self._held = False
        self._interrupted = False
        self._over = False

    async def __aenter__(self) -> Deadline:
        self._task = asyncio.current_task()
        assert self._task is not None, "only a task can be ended"
        self._cancelling = self._task.cancelling()
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None, "it was entered"
        self._disarm()
        # A cancellation from elsewhere in the same turn goes first.
        if self._over and task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def extend(self, seconds: float) -> None:
        """Put the end so many seconds from now, earlier or later than it was."""
        self._end_s = end_s = self._loop.time() + seconds
        if end_s < self._timer_s:
            self._arm()

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
        self._arm()

    def hold(self) -> None:
        """Put the end off until ``release``; what is held must have a bound of its own."""
        self._held = True
        self._disarm()

    def release(self) -> None:
        """Let the end come again. Harmless when nothing is held."""
        if self._held:
            self._held = False
            self._arm()

    def _arm(self) -> None:
        self._disarm()
        if self._task is None or self._held or self._over:
            return
        if self._interrupted or self._end_s <= self._loop.time():
            self._timer_s, self._timer = -_NEVER_S, self._loop.call_soon(self._ring)
        elif self._end_s != _NEVER_S:
            self._timer_s, self._timer = self._end_s, self._loop.call_at(self._end_s, self._ring)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_s = None, _NEVER_S

    def _ring(self) -> None:
        self._timer, self._timer_s = None, _NEVER_S
        if not self._interrupted and self._end_s > self._loop.time():
            self._arm()
        elif self._task is not None:
            self._over = True
            self._task.cancel()
