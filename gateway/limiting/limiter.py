"""Decide whether a request may pass its limits, whatever the store does.

Theory of operation. The counters are in this process (``memory://``) or on Redis. Redis gets ``timeout_s`` to answer.
Each failure is counted, logged at most every ten seconds, and the policy decides: ``open`` lets the request pass,
``closed`` refuses it, ``local`` counts the same limits in this process, each gateway on its own and with the full
numbers, so N gateways may together admit up to N times as much. After ``BREAKER_FAILURES`` in a row Redis is not asked
for ``BREAKER_RESET_S``, then by one request at a time until one succeeds; nothing has to be restarted.

Slots: a request that only lacks a free slot waits for one (``queueing``), charged by nothing until it gets it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gateway.limiting.counting import Counters, Decision, MemoryCounters
from gateway.limiting.queueing import Queues
from gateway.limiting.rules import Charge, Strategy
from gateway.limiting.store import STORE_FAILURES, RedisCounters
from gateway.limiting.verdict import FREE, Admission, Refusal, admission_of, refusal_of
from gateway.settings import LimitSettings
from shadow.breaker import Breaker

LOG_EVERY_S = 10.0
BREAKER_FAILURES = 5
BREAKER_RESET_S = 1.0
POLL_S = 0.05
MEMORY = "memory://"
POLICIES = ("open", "closed", "local")

_log = logging.getLogger(__name__)


class _Said(NamedTuple):
    """A decision and the counters that made it."""

    decision: Decision
    counters: Counters


class Limiter:
    """Decides for all routes that share one storage. ``clock`` is monotonic seconds; ``count_failure`` is called for
    each decision that the storage could not make, and for each broken key that it had to remove.

    Raises ``ValueError`` for settings that mean nothing."""

    def __init__(
        self, settings: LimitSettings, *, clock: Callable[[], float], count_failure: Callable[[], None]
    ) -> None:
        if settings.on_failure not in POLICIES:
            raise ValueError(f"limits.on_failure: '{settings.on_failure}' is none of {', '.join(POLICIES)}")
        self._settings = settings
        self._clock = clock
        self._count_failure = count_failure
        self._memory = MemoryCounters(clock)
        self._redis = (
            RedisCounters(settings.storage, timeout_s=settings.timeout_s) if settings.storage != MEMORY else None
        )
        self._breaker = Breaker(BREAKER_FAILURES, BREAKER_RESET_S)
        self._queues = Queues()
        self._logged_at_s = -math.inf

    @property
    def waiting(self) -> int:
        """Requests that wait for a slot now."""
        return self._queues.waiting

    def admit_at_once(self, charges: Sequence[Charge], lease: str) -> Admission | None:
        """Count one request like ``admit``, where nothing has to be waited for; ``None`` where something may."""
        if not charges:
            return FREE
        if self._redis is not None:
            return None
        for charge in charges:
            if charge.rule.strategy is Strategy.SLOTS:
                return None
        return admission_of(charges, self._memory.decide_now(charges, lease, commit=True), checked=True)

    async def admit(
        self,
        charges: Sequence[Charge],
        lease: str,
        *,
        patience_s: float = math.inf,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> Admission:
        """Count one request, called ``lease``. Waits only for a slot, never longer than ``patience_s``, and not for a
        client that is gone.

        Never raises for the storage."""
        if not charges:
            return FREE
        slots = next((charge for charge in charges if _can_wait(charge)), None)
        if slots is None:
            return self._admission(charges, lease, await self._ask(charges, lease, commit=True))
        # Nobody overtakes those who wait, but who would be refused anyway is told so at once.
        queued = self._queues.length(slots.key)
        said = await self._ask(charges, lease, commit=not queued)
        refusal = refusal_of(charges, said.decision) if said is not None else None
        is_full = self._queues.length(slots.key) >= slots.rule.max_waiting
        if said is None or refusal in (Refusal.RATE, Refusal.COST) or said.decision.charged:
            return self._admission(charges, lease, said)
        if is_full:
            return self._admission(charges, lease, _without_slot(said, charges, slots))
        until_s = self._clock() + min(patience_s, slots.rule.max_wait_s)
        return await self._wait(charges, slots, lease, lambda: self._clock() >= until_s or is_gone())

    async def aclose(self) -> None:
        """Let go of counters and connections."""
        await self._memory.aclose()
        if self._redis is not None:
            await self._redis.aclose()

    async def _wait(
        self, charges: Sequence[Charge], slots: Charge, lease: str, is_over: Callable[[], bool]
    ) -> Admission:
        with self._queues.place(slots.key) as place:
            while True:
                await place.wait(POLL_S)
                over = is_over()
                if not place.is_first and not over:
                    continue
                said = await self._ask(charges, lease, commit=place.is_first and not over)
                if over or said is None or refusal_of(charges, said.decision) is not Refusal.SLOTS:
                    break
        if said is not None and not said.decision.charged:
            said = _without_slot(said, charges, slots)
        return self._admission(charges, lease, said)

    async def _ask(self, charges: Sequence[Charge], lease: str, *, commit: bool) -> _Said | None:
        """Return the decision, or ``None`` when the policy has to decide without one."""
        if self._redis is None:
            return _Said(await self._memory.decide(charges, lease, commit=commit), self._memory)
        decision = await self._ask_redis(self._redis, charges, lease, commit)
        if decision is not None:
            return _Said(decision, self._redis)
        if self._settings.on_failure == "local":
            return _Said(await self._memory.decide(charges, lease, commit=commit), self._memory)
        return None

    async def _ask_redis(
        self, redis: RedisCounters, charges: Sequence[Charge], lease: str, commit: bool
    ) -> Decision | None:
        turn = self._breaker.admit(self._clock())
        if not turn:
            self._count_failure()
            return None
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                decision = await redis.decide(charges, lease, commit=commit)
        except STORE_FAILURES as error:
            self._breaker.fail(turn, self._clock())
            # The class only: messages of the client library name the server.
            self._note_failure(f"limits cannot be checked ({type(error).__name__})")
            return None
        except asyncio.CancelledError:
            self._breaker.abandon(turn)
            raise
        self._breaker.succeed(turn)
        if decision.healed:
            self._note_failure("a counter that was none of ours was removed")
        return decision

    def _admission(self, charges: Sequence[Charge], lease: str, said: _Said | None) -> Admission:
        if said is None:
            return Admission(None if self._settings.on_failure == "open" else Refusal.UNAVAILABLE, checked=False)
        checked = self._redis is None or said.counters is self._redis
        if not said.decision.charged:
            return admission_of(charges, said.decision, checked=checked)
        taken = [
            charge
            for charge, look in zip(charges, said.decision.looks, strict=True)
            if charge.rule.strategy is Strategy.SLOTS and not look.refused
        ]
        if not taken:
            return admission_of(charges, said.decision, checked=checked)

        def release() -> None:
            for charge in taken:
                said.counters.release(charge, lease)
                self._queues.wake(charge.key)

        return admission_of(charges, said.decision, checked=checked, release=release)

    def _note_failure(self, what: str) -> None:
        self._count_failure()
        now_s = self._clock()
        if now_s - self._logged_at_s >= LOG_EVERY_S:
            self._logged_at_s = now_s
            _log.warning("%s; policy: %s", what, self._settings.on_failure)


def _can_wait(charge: Charge) -> bool:
    return charge.rule.strategy is Strategy.SLOTS and not charge.rule.dry_run


def _without_slot(said: _Said, charges: Sequence[Charge], slots: Charge) -> _Said:
    """Return the decision with the slot refused: one may be free, but it belongs to somebody who came before."""
    looks = tuple(
        type(look)(True, 0, 0) if charge is slots else look
        for charge, look in zip(charges, said.decision.looks, strict=True)
    )
    return _Said(type(said.decision)(False, looks), said.counters)
