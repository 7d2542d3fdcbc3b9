"""Counters in this process: exact, bounded, on an injected clock. The same arithmetic as ``decide.lua``.

Theory of operation. There is one counter per key. A decision first *looks* at every counter, which changes nothing,
and only if no enforced rule refuses does it *charge* them all; nothing in between gives up the event loop, so it is
atomic. A key that is not charged is never made. At most ``max_keys`` counters are kept: the one that was charged
longest ago goes first, and with it what was counted there. Taken slots are kept apart and are never dropped.

Times are whole microseconds of ``clock``; what a rule calls seconds is a million of them.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gateway.limiting.rules import Charge, Rule, Strategy

MAX_KEYS = 100_000
NEVER_US = -1
SLACK = 1e-6
_LOOKED_AT = 2
_COMPACT_AT = 64


class Look(NamedTuple):
    """A counter as one request meets it. ``wait_us`` is how long until a refused request would be admitted
    (``NEVER_US`` when it costs more than the whole amount), or until more is left for one that is admitted."""

    refused: bool
    remaining: int
    wait_us: int


class Decision(NamedTuple):
    """What all counters say together, in the order of the charges. ``charged`` says whether they were charged;
    ``remaining`` is then what is left afterwards. ``healed`` counts broken keys of the store that were removed."""

    charged: bool
    looks: tuple[Look, ...]
    healed: int = 0


class Counters(Protocol):
    """Where counts are kept."""

    async def decide(self, charges: Sequence[Charge], lease: str, *, commit: bool) -> Decision:
        """Look at all counters and, with ``commit``, charge them unless one refuses. ``lease`` names the request in the
        slots that it takes."""

    def release(self, charge: Charge, lease: str) -> None:
        """Give a slot back. Never waits and never raises; releasing twice is as good as once."""

    async def aclose(self) -> None:
        """Let go of everything."""


class MemoryCounters:
    """Counters of this process alone. ``clock`` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float], *, max_keys: int = MAX_KEYS) -> None:
        self._clock = clock
        self._max_keys = max_keys
        self._counters: OrderedDict[str, _Log | _Windows] = OrderedDict()
        self._slots: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._counters)

    async def decide(self, charges: Sequence[Charge], lease: str, *, commit: bool) -> Decision:
        """Decide without waiting."""
        return self.decide_now(charges, lease, commit=commit)

    def decide_now(self, charges: Sequence[Charge], lease: str, *, commit: bool) -> Decision:
        """Decide."""
        now_us = int(self._clock() * 1_000_000)
        looks, refused = list[Look](), False
        for charge in charges:
            look = self._look(charge, now_us)
            refused = refused or (look.refused and not charge.rule.dry_run)
            looks.append(look)
        if refused or not commit:
            return Decision(False, tuple(looks))
        for place, charge in enumerate(charges):
            look = looks[place]
            if not look.refused:
                self._charge(charge, now_us, lease)
                looks[place] = Look(False, look.remaining - charge.cost, look.wait_us)
        return Decision(True, tuple(looks))

    def release(self, charge: Charge, lease: str) -> None:
        """Give a slot back."""
        taken = self._slots.get(charge.key)
        if taken is not None:
            taken.discard(lease)
            if not taken:
                del self._slots[charge.key]

    async def aclose(self) -> None:
        """Forget everything."""
        self._counters.clear()
        self._slots.clear()

    def _look(self, charge: Charge, now_us: int) -> Look:
        rule = charge.rule
        if rule.strategy is Strategy.SLOTS:
            left = rule.amount - len(self._slots.get(charge.key, ()))
            return Look(charge.cost > left, max(0, left), 0)
        counter = self._counters.get(charge.key)
        return (_fresh(rule) if counter is None else counter).look(rule, charge.cost, now_us)

    def _charge(self, charge: Charge, now_us: int, lease: str) -> None:
        if charge.rule.strategy is Strategy.SLOTS:
            self._slots.setdefault(charge.key, set()).add(lease)
            return
        counter = self._counters.get(charge.key)
        if counter is None:
            self._make_room(now_us)
            counter = self._counters[charge.key] = _fresh(charge.rule)
        else:
            self._counters.move_to_end(charge.key)
        counter.charge(charge.rule, charge.cost, now_us)

    def _make_room(self, now_us: int) -> None:
        """Drop the counter charged longest ago if there is no room, and a few spent ones in any case."""
        for _ in range(_LOOKED_AT):
            key = next(iter(self._counters), None)
            if key is None or (len(self._counters) < self._max_keys and not self._counters[key].is_spent(now_us)):
                return
            del self._counters[key]


@dataclass(slots=True)
class _Log:
    """A moving window: when each charge came, and the sum of costs up to and with it. Entries before ``head`` are
    gone; ``before_head`` is the sum up to them. 16 bytes an entry."""

    times: array[int] = field(default_factory=lambda: array("q"))
    sums: array[int] = field(default_factory=lambda: array("q"))
    head: int = 0
    base: int = 0
    ends_us: int = 0

    def look(self, rule: Rule, cost: int, now_us: int) -> Look:
        window_us = rule.window_s * 1_000_000
        times, sums, head = self.times, self.sums, self.head
        if head < len(times) and times[head] <= now_us - window_us:
            self.head = head = bisect_right(times, now_us - window_us, head)
        used = sums[-1] - self._before_head() if head < len(sums) else 0
        if used + cost <= rule.amount:
            first_us = times[head] if used else now_us
            return Look(False, rule.amount - used, first_us + window_us - now_us)
        if cost > rule.amount:
            return Look(True, max(0, rule.amount - used), NEVER_US)
        last = bisect_left(sums, self._before_head() + used + cost - rule.amount, head)
        return Look(True, max(0, rule.amount - used), times[last] + window_us - now_us)

    def charge(self, rule: Rule, cost: int, now_us: int) -> None:
        if self.head > _COMPACT_AT and self.head * 2 > len(self.times):
            self.base = self._before_head()
            del self.times[: self.head]
            del self.sums[: self.head]
            self.head = 0
        self.sums.append((self.sums[-1] if self.sums else self.base) + cost)
        self.times.append(now_us)
        self.ends_us = now_us + rule.window_s * 1_000_000

    def is_spent(self, now_us: int) -> bool:
        return self.ends_us <= now_us

    def _before_head(self) -> int:
        return self.sums[self.head - 1] if self.head else self.base


@dataclass(slots=True)
class _Windows:
    """A fixed window, or a sliding counter: the sums of the window with this index and of the one before it."""

    index: int = -1
    current: int = 0
    previous: int = 0
    ends_us: int = 0

    def look(self, rule: Rule, cost: int, now_us: int) -> Look:
        window_us = rule.window_s * 1_000_000
        current, previous = self._sums_at(now_us // window_us)
        left_us = window_us - now_us % window_us
        weight = previous * left_us / window_us if rule.strategy is Strategy.SLIDING else 0.0
        remaining = max(0, math.floor(rule.amount - current - weight + SLACK))
        if current + weight + cost <= rule.amount + SLACK:
            return Look(False, remaining, left_us)
        if cost > rule.amount:
            return Look(True, remaining, NEVER_US)
        if rule.strategy is Strategy.FIXED:
            return Look(True, remaining, left_us)
        free = rule.amount - cost - current
        if free >= 0:  # the previous window's share must fall to what is free
            return Look(True, remaining, left_us - math.floor(window_us * free / previous))
        share = min(1.0, (rule.amount - cost) / current)  # of what is current now, in the next window
        return Look(True, remaining, left_us + window_us - math.floor(window_us * share))

    def charge(self, rule: Rule, cost: int, now_us: int) -> None:
        window_us = rule.window_s * 1_000_000
        index = now_us // window_us
        self.current, self.previous = self._sums_at(index)
        self.index, self.current = index, self.current + cost
        self.ends_us = (index + (2 if rule.strategy is Strategy.SLIDING else 1)) * window_us

    def is_spent(self, now_us: int) -> bool:
        return self.ends_us <= now_us

    def _sums_at(self, index: int) -> tuple[int, int]:
        if index == self.index:
            return self.current, self.previous
        return (0, self.current) if index == self.index + 1 else (0, 0)


def _fresh(rule: Rule) -> _Log | _Windows:
    return _Log() if rule.strategy is Strategy.MOVING else _Windows()
