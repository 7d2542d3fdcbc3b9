"""A first-come, first-served turnstile over a fixed set of tokens.

Theory of operation. A token is either idle (in ``_idle``) or held by exactly one caller; their number never changes.
While someone waits, nothing is idle: a released token goes straight to the longest waiting caller, so nobody
overtakes. At most ``max_waiting`` callers wait, each at most ``wait_s``; one more, or one too long, is a 503 with
Retry-After. A caller that is cancelled leaves the queue, and a token that reached it in the same instant is passed
on. Only the event loop's thread touches this state.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Generic, TypeVar

from onprem_backend.problems import Problem

T = TypeVar("T", bound=Hashable)

_SMOOTHING = 0.2
_LONGEST_RETRY_S = 60


class Turnstile(Generic[T]):
    """Lends ``tokens`` to callers, in the order they came."""

    def __init__(
        self, name: str, tokens: Iterable[T], *, max_waiting: int, wait_s: float, clock: Callable[[], float]
    ) -> None:
        self.name = name
        self._idle: deque[T] = deque(tokens)
        self._waiters: deque[asyncio.Future[T]] = deque()
        self._watchers: list[asyncio.Future[None]] = []
        self._clock = clock
        self._max_waiting = max_waiting
        self._wait_s = wait_s
        self._lent_at: dict[T, float] = {}
        self._mean_hold_s: float | None = None
        self.size = len(self._idle)

    @property
    def idle(self) -> int:
        """How many tokens nobody holds."""
        return len(self._idle)

    @property
    def held(self) -> int:
        """How many tokens are held."""
        return self.size - len(self._idle)

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return sum(not waiter.done() for waiter in self._waiters)

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[T]:
        """Hold a token for the length of a ``with`` block."""
        token = await self.acquire()
        held_since = self._clock()
        try:
            yield token
        finally:
            self.release(token, self._clock() - held_since)

    async def acquire(self) -> T:
        """Return a token that the caller must give back with ``release``. Raises ``Problem("overloaded")``."""
        if self._idle:
            token = self._idle.popleft()
            self._lent_at[token] = self._clock()
            return token
        if len(self._waiters) >= self._max_waiting:
            raise self._overloaded(f"{self.name}: {self._max_waiting} requests are waiting already")
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout(self._wait_s):
                return await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                self._hand_on(waiter.result())
            else:
                with suppress(ValueError):  # a release in this very instant may have dropped it already
                    self._waiters.remove(waiter)
            if isinstance(error, TimeoutError):
                raise self._overloaded(f"{self.name}: no turn within {self._wait_s:g} s") from None
            raise

    def release(self, token: T, held_s: float | None) -> None:
        """Give a token back. ``held_s`` feeds the estimate behind Retry-After; ``None``: it was held for nothing."""
        if held_s is not None:
            before_s = held_s if self._mean_hold_s is None else self._mean_hold_s
            self._mean_hold_s = before_s + _SMOOTHING * (held_s - before_s)
        self._hand_on(token)

    async def drained(self) -> None:
        """Wait until nobody holds or waits for a token. Whoever wants that keeps new callers away."""
        while self.idle < self.size:
            left = asyncio.get_running_loop().create_future()
            self._watchers.append(left)
            await left

    def _hand_on(self, token: T) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                self._lent_at[token] = self._clock()
                waiter.set_result(token)
                return
        self._lent_at.pop(token, None)
        self._idle.append(token)
        if len(self._idle) == self.size:
            for watcher in self._watchers:
                if not watcher.done():
                    watcher.set_result(None)
            self._watchers.clear()

    def _overloaded(self, detail: str) -> Problem:
        now = self._clock()
        longest_s = max((now - lent_at for lent_at in self._lent_at.values()), default=0.0)
        hold_s = max(self._mean_hold_s or 0.0, longest_s)  # what is held now may be slower than what went before
        expected_s = (len(self._waiters) + 1) * hold_s / self.size
        return Problem("overloaded", detail, retry_after_s=min(_LONGEST_RETRY_S, max(1, math.ceil(expected_s))))
