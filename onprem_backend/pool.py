"""Sessions of one model, each used by one request at a time, in worker threads of their own.

Theory of operation. A model's weights are loaded once and shared; a *session* is what one request may change while it
runs. A pool has ``size`` slots, each with a session (built in the slot's first use) and one worker thread. ``run``
waits for a slot in order of arrival, runs the work in a thread, and the slot goes back when the *thread* has ended,
not when the caller stops waiting: a session is never lent to a second request while the first still computes on it. A
caller that is cancelled or runs out of time sets the work's stop event and leaves. Work that raises anything but
``Problem`` or ``Stopped`` may have left its session half changed: the slot drops it and builds a new one at its next
use, so the number of slots never shrinks.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from onprem_backend.problems import Problem, Stopped
from onprem_backend.turnstile import Turnstile
from onprem_backend.workers import start_workers

S = TypeVar("S")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Timed(Generic[R]):
    """What work returned, how long it waited for its turn and how long it ran."""

    value: R
    queue_s: float
    run_s: float


class Slot(Generic[S]):
    """A place for one session, opaque to who holds it. ``session`` is ``None`` before its first use and after it was
    poisoned."""

    def __init__(self) -> None:
        self.session: S | None = None


class SessionPool(Generic[S]):
    """``size`` sessions made by ``make``, lent first come, first served."""

    def __init__(
        self,
        name: str,
        make: Callable[[], S],
        *,
        size: int,
        max_waiting: int,
        wait_s: float,
        timeout_s: float,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.name = name
        self._make = make
        self._timeout_s = timeout_s
        self._clock = clock
        self._turnstile: Turnstile[Slot[S]] = Turnstile(
            name, [Slot() for _ in range(size)], max_waiting=max_waiting, wait_s=wait_s, clock=clock
        )
        self._executor = start_workers(size, f"session-{name}")

    @property
    def size(self) -> int:
        """How many sessions can run at the same time; never changes."""
        return self._turnstile.size

    @property
    def idle(self) -> int:
        """How many slots nobody uses."""
        return self._turnstile.idle

    @property
    def waiting(self) -> int:
        """How many callers wait for a slot."""
        return self._turnstile.waiting

    async def run(self, work: Callable[[S, threading.Event], R]) -> Timed[R]:
        """Run ``work(session, stop)`` in a worker thread.

        Raises ``Problem`` with code ``overloaded`` (no turn) or ``inference_timeout``, and whatever ``work`` raises.
        """
        asked = self._clock()
        slot = await self.acquire()
        return await self.run_on(slot, work, asked)

    async def acquire(self) -> Slot[S]:
        """Wait for a slot, which must then go to ``run_on`` or ``give_back``. Raises ``Problem("overloaded")``."""
        return await self._turnstile.acquire()

    def give_back(self, slot: Slot[S]) -> None:
        """Return a slot on which nothing was run."""
        self._turnstile.release(slot, None)

    async def run_on(self, slot: Slot[S], work: Callable[[S, threading.Event], R], asked: float) -> Timed[R]:
        """Run ``work`` on a slot from ``acquire``, which this call gives back; ``asked`` is when waiting for it began.
        Raises as ``run`` does."""
        began = self._clock()
        stop = threading.Event()
        future = asyncio.get_running_loop().run_in_executor(self._executor, self._work, slot, work, stop)
        future.add_done_callback(lambda done: self._ended(slot, began, done))
        try:
            async with asyncio.timeout(self._timeout_s) as limit:
                value = await asyncio.shield(future)
        except TimeoutError:
            if not limit.expired():
                raise
            stop.set()
            raise Problem(
                "inference_timeout", f"{self.name}: no result within {self._timeout_s:g} s", retry_after_s=10
            ) from None
        except asyncio.CancelledError:
            stop.set()
            raise
        return Timed(value, began - asked, self._clock() - began)

    def warm_up(self, work: Callable[[S, threading.Event], object], *, times: int) -> None:
        """Run ``work`` on a session of its own, in the calling thread and before any ``run``. Raises what it raises."""
        session = self._make()
        for _ in range(times):
            work(session, threading.Event())

    def close(self) -> None:
        """Let threads end as their work ends; nothing is started any more. Does not block."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _ended(self, slot: Slot[S], began: float, done: asyncio.Future[R]) -> None:
        if not done.cancelled():
            done.exception()  # the caller may have left: then nobody else looks at it
        self._turnstile.release(slot, self._clock() - began)

    def _work(self, slot: Slot[S], work: Callable[[S, threading.Event], R], stop: threading.Event) -> R:
        if stop.is_set():
            raise Stopped
        try:
            if slot.session is None:
                slot.session = self._make()
            return work(slot.session, stop)
        except (Problem, Stopped):
            raise
        except BaseException:
            slot.session = None
            raise
