"""Stop calling a target that refuses connections, and find out with single calls when it is back.

States: *closed* (calls pass), *open* (calls are skipped until ``reset_s`` after the failure that opened it),
*half-open* (exactly one call, the probe, is under way; all others are skipped). Each stretch in one state is a *turn*.
``admit`` starts a call, and each admitted call ends in exactly one of ``succeed``, ``fail`` or ``abandon``, so a probe
cannot be forgotten; what ends after its turn is over says nothing about the present one. Only failures to connect
count: a target that answers slowly or badly is evidence for the comparison and must go on being called.
"""

from __future__ import annotations

from enum import StrEnum


class BreakerState(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Decide for one target whether a call may start. Pure: ``now_s`` is a monotonic time given by the caller.
    ``opened_s`` is the time of the failure that opened it, ``None`` while calls pass."""

    def __init__(self, failures: int, reset_s: float) -> None:
        self._limit = failures
        self._reset_s = reset_s
        self._failures = 0
        self.opened_s: float | None = None
        self._probing = False
        self._turn = 1

    @property
    def state(self) -> BreakerState:
        """The state now; *open* also when the time for a probe has come but none was sent yet."""
        if self.opened_s is None:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._probing else BreakerState.OPEN

    def blocks(self, now_s: float) -> bool:
        """Say whether a call would not be admitted now; changes nothing."""
        return self.opened_s is not None and (self._probing or now_s - self.opened_s < self._reset_s)

    def admit(self, now_s: float) -> int:
        """Start a call if one may start, and return its turn, 0 if none may; when the breaker is open and its time has
        come, this call is the probe."""
        if self.blocks(now_s):
            return 0
        if self.opened_s is not None:
            self._turn += 1
            self._probing = True
        return self._turn

    def succeed(self, turn: int) -> None:
        """End a call that reached its target."""
        if turn == self._turn:
            self._failures = 0
            if self._probing:
                self._move(None)

    def fail(self, turn: int, now_s: float) -> None:
        """End a call that could not connect."""
        if turn == self._turn:
            self._failures += 1
            if self._failures >= self._limit:
                self._move(now_s)

    def abandon(self, turn: int) -> None:
        """End a call that was given up before it could show anything."""
        if turn == self._turn and self._probing:
            self._move(self.opened_s)

    def _move(self, opened_s: float | None) -> None:
        self._turn += 1
        self._probing, self.opened_s = False, opened_s
