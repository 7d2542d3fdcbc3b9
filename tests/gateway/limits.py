"""What the tests of limits share: a clock that a test moves, a limiter, charges."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from gateway.limiting.limiter import Limiter
from gateway.limiting.rules import Charge, Strategy, Visit, charges_of, make_rules
from gateway.limiting.verdict import Admission
from gateway.settings import Limit, LimitSettings

STRATEGIES = [strategy.value for strategy in Strategy if strategy is not Strategy.SLOTS]


@dataclass
class Clock:
    """Monotonic seconds that stand still until a test moves them."""

    now_s: float = 1_000_000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s

    def advance(self, seconds: float) -> None:
        """Move on."""
        self.now_s += seconds


def charges(
    *limits: str | Limit, key: str = "k", cost: int = 1, size: int = 0, strategy: str = "moving-window"
) -> tuple[Charge, ...]:
    """Return what one request of the caller ``key`` costs."""
    rules = make_rules(limits, realm="route test", default_strategy=strategy)
    identities = {rule.per: "" if rule.per == "everyone" else key for rule in rules}
    return charges_of(rules, Visit(identities, cost, size), spread=True)


@dataclass
class Bench:
    """A limiter and the clock it counts by in memory."""

    limiter: Limiter
    clock: Clock
    failures: list[None]
    leases: Any = field(default_factory=itertools.count)

    async def admit(self, charges: Sequence[Charge]) -> Admission:
        """Admit one request."""
        return await self.limiter.admit(charges, f"lease-{next(self.leases)}")

    async def admit_many(self, charges: Sequence[Charge], count: int) -> list[Admission]:
        """Admit so many requests, one after the other."""
        return [await self.admit(charges) for _ in range(count)]


@asynccontextmanager
async def limiter(
    storage: str = "memory://", *, clock: Callable[[], float] | None = None, **options: Any
) -> AsyncIterator[Bench]:
    """Make a limiter; its clock stands still unless another is given."""
    own, failures = Clock(), list[None]()
    settings = LimitSettings(storage=storage, **{"timeout_s": 5.0, **options})
    made = Limiter(settings, clock=clock or own, count_failure=lambda: failures.append(None))
    try:
        yield Bench(made, own, failures)
    finally:
        await made.aclose()


def allowed(admissions: Sequence[Admission]) -> list[bool]:
    """Return which passed."""
    return [admission.allowed for admission in admissions]
