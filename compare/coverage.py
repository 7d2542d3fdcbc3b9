"""Gate P0: how much of the traffic was really compared, with every loss named.

Two accounts stand side by side: the gateway's (``received = recorded + in_flight + sum(skipped)``) and the job's
(``recorded = compared + sum(not_comparable)``). Both run over the whole record.

The gate judges a *window* of them that ends now: the epoch, or, where losses lie behind, the part of the epoch with the
best coverage that still holds half of the pairs with an answer on both sides, the least number of pairs and the least
span. So an old trouble does not hold a route for ever, a present one always counts, and most of the evidence was
gathered under the coverage that is shown. The choice looks at counts of losses only, never at what the pairs say.

The job's own losses have a place in the record. The gateway's have none, as its account is a total of each run; a
``Mark`` is that total at a known moment, and what is lost since is the difference. Losses that no mark places count for
the window.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from compare.gates import GateResult, State, Unit
from compare.phrases import Phrase, joined, plain, plural, say
from compare.policy import Policy
from compare.state import RouteState
from compare.tally import Tally
from compare.timeline import Stretch
from shadow.exchange import SkipReason
from shadow.keeping import Bodies

DELIBERATE = frozenset(
    {SkipReason.NOT_SAMPLED, SkipReason.METHOD_NOT_ALLOWED, SkipReason.SERVED_BY_CANDIDATE, SkipReason.IS_A_COPY}
)
"""Skips that the configuration asked for. All others are losses."""
MISSING = "missing"
KEPT = {
    Bodies.MISMATCHES: say("the bodies of matches are deleted once judged"),
    Bodies.HASHES: say("only hashes are kept: outputs are equal or different, no pictures are compared"),
}
"""What the report says of a route that does not keep all bodies."""


class RouteAccount(Protocol):
    """The gateway's account of one route over all its runs."""

    @property
    def received(self) -> int:
        """Requests that matched the route and passed its limits."""
        ...

    @property
    def recorded(self) -> int:
        """Requests that became a stored exchange."""
        ...

    @property
    def in_flight(self) -> int:
        """Requests that are neither yet."""
        ...

    @property
    def skipped(self) -> Mapping[SkipReason, int]:
        """Requests that will never be recorded, by reason."""
        ...

    @property
    def refused(self) -> Mapping[str, int]:
        """Requests of the route that were turned away and so are not received, by the problem's code."""
        ...


@dataclass(frozen=True, slots=True)
class Mark:
    """What the gateway had lost in all by the moment ``at``, by the names of ``losses_of``."""

    at: datetime
    lost: Mapping[str, int]

    @property
    def total(self) -> int:
        """All losses."""
        return sum(self.lost.values())


def losses_of(account: RouteAccount | None, stored: int) -> Mapping[str, int]:
    """Return what the gateway lost so far, by reason; ``missing`` are exchanges it says to have recorded that are not
    among the ``stored``."""
    if account is None:
        return {}
    lost = {reason.value: n for reason, n in account.skipped.items() if n and reason not in DELIBERATE}
    missing = account.recorded - stored
    return {**lost, MISSING: missing} if missing > 0 else lost


@dataclass(frozen=True, slots=True)
class Window:
    """The stretch that P0 judges: everything from ``first_sequence`` on. ``sampled`` is what should have been compared
    in it; ``losses`` is every request of those that is not, by reason; ``part`` whether it is less than the epoch."""

    first_sequence: int
    since_at: datetime | None
    compared: int
    sampled: int
    losses: Mapping[str, int]
    part: bool = False


@dataclass(frozen=True, slots=True)
class Coverage:
    """Both accounts over the whole record, and the window that is judged.

    ``received`` is ``None`` where the gateway left no account. ``both_refused`` of the compared pairs were refused by
    both sides: they are accounted for and are no evidence. ``refused_at_door`` are requests that the gateway itself
    refused, by code: they were never received and stand beside both accounts.
    """

    received: int | None
    recorded_by_gateway: int | None
    in_flight: int
    skipped: Mapping[str, int]
    recorded: int
    compared: int
    not_comparable: Mapping[str, int]
    both_refused: int
    window: Window
    refused_at_door: Mapping[str, int] = field(default_factory=dict)

    @property
    def sampled(self) -> int:
        """What should have been compared in the window by now."""
        return self.window.sampled

    @property
    def share(self) -> float | None:
        """Compared of sampled in the window, ``None`` of nothing."""
        return min(1.0, self.window.compared / self.sampled) if self.sampled else None

    @property
    def losses(self) -> Mapping[str, int]:
        """Every request that was sampled in the window and is not compared, by reason."""
        return self.window.losses

    def equations(self) -> tuple[str, ...]:
        """Return both accounts as equations, for a person."""
        lost = "".join(f" + {n} {_words(name)}" for name, n in self.not_comparable.items())
        refused = f" ({self.both_refused} of them refused by both sides)" if self.both_refused else ""
        own = f"{self.recorded} recorded = {self.compared} compared{refused}{lost}"
        if self.received is None:
            return (own, "The gateway left no account of this route.")
        skipped = "".join(f" + {n} {_words(name)}" for name, n in self.skipped.items() if n)
        gateway = (
            f"{self.received} received = {self.recorded_by_gateway} recorded + {self.in_flight} in flight{skipped}"
        )
        if self.balanced:
            return (gateway, own)
        return (gateway, own, "These accounts do not add up: some requests are lost.")

    def beside(self) -> str:
        """Return in words what the gateway refused, which is in no account; empty when that is nothing."""
        if not self.refused_at_door:
            return ""
        named = sorted(self.refused_at_door.items(), key=lambda item: (-item[1], item[0]))
        codes = ", ".join(f"{n} {_words(code)}" for code, n in named)
        total = sum(self.refused_at_door.values())
        return f"Not among the received: {total} that the gateway itself refused ({codes})."

    @property
    def balanced(self) -> bool:
        """Whether both identities hold. The store may already be ahead of the gateway's last saved account."""
        own = self.recorded == self.compared + sum(self.not_comparable.values())
        if self.received is None or self.recorded_by_gateway is None:
            return own
        return own and self.received == self.recorded_by_gateway + self.in_flight + sum(self.skipped.values())


def _words(name: str) -> str:
    return name.replace("_", " ")


def cover(state: RouteState, account: RouteAccount | None, marks: Sequence[Mark], policy: Policy) -> Coverage:
    """Return the accounts of one route under one measurement key, with the window of its present epoch."""
    return Coverage(
        received=account.received if account else None,
        recorded_by_gateway=account.recorded if account else None,
        in_flight=account.in_flight if account else 0,
        skipped={reason.value: n for reason, n in account.skipped.items()} if account else {},
        recorded=state.recorded,
        compared=state.recorded - state.not_comparable.total(),
        not_comparable=dict(state.not_comparable),
        both_refused=state.both_refused,
        window=_window(state.tally.stretches.parts, losses_of(account, state.recorded), marks, policy),
        refused_at_door={code: n for code, n in account.refused.items() if n} if account else {},
    )


def _window(epoch: Sequence[Stretch], lost: Mapping[str, int], marks: Sequence[Mark], policy: Policy) -> Window:
    placed = _place(epoch, marks)
    start = _best_start(epoch, sum(lost.values()), placed, policy)
    members = epoch[start:]
    known = [mark for position, mark in placed if position <= start]
    before = max(known, key=lambda mark: mark.total).lost if known else {}
    losses = Counter({name: n - before.get(name, 0) for name, n in lost.items() if n > before.get(name, 0)})
    sampled = sum(part.rows for part in members) + losses.total()
    for part in members:
        losses.update(part.lost)
    return Window(
        first_sequence=members[0].first_sequence if members else 0,
        since_at=datetime.fromtimestamp(members[0].first_at_s, UTC) if members else None,
        compared=sum(part.compared for part in members),
        sampled=sampled,
        losses=dict(losses),
        part=start > 0,
    )


def _place(epoch: Sequence[Stretch], marks: Sequence[Mark]) -> list[tuple[int, Mark]]:
    """Return each mark with the first stretch of the epoch from which on nothing was received before it, in order."""
    earliest = np.array([part.earliest_s for part in epoch])
    earliest_after = np.minimum.accumulate(earliest[::-1])[::-1] if earliest.size else earliest
    ordered = sorted(marks, key=lambda mark: (mark.at, mark.total))
    return [(int(np.searchsorted(earliest_after, mark.at.timestamp())), mark) for mark in ordered]


def _best_start(epoch: Sequence[Stretch], lost: int, placed: Sequence[tuple[int, Mark]], policy: Policy) -> int:
    """Return with which stretch of the epoch the window begins."""
    if not epoch:
        return 0
    compared, answered, rows = (
        _suffix_sums([getattr(part, name) for part in epoch]) for name in ("compared", "answered", "rows")
    )
    known = np.zeros(len(epoch) + 1, dtype=np.int64)
    for position, mark in placed:
        known[position] = max(known[position], mark.total)
    lost_since = np.maximum(0, lost - np.maximum.accumulate(known)[:-1])
    shares = compared / (rows + lost_since)
    if shares[0] >= policy.min_coverage:
        return 0
    begins = np.array([part.first_at_s for part in epoch])
    enough = (answered >= policy.min_pairs) & (2 * answered >= answered[0])
    enough &= max(part.latest_s for part in epoch) - begins >= policy.min_span_s
    return int(np.where(enough, shares, -1.0).argmax()) if enough.any() else 0


def _suffix_sums(counts: Sequence[int]) -> NDArray[np.int64]:
    sums: NDArray[np.int64] = np.cumsum(np.array(counts[::-1], dtype=np.int64))[::-1]
    return sums


def coverage_gate(coverage: Coverage, data: Tally, policy: Policy) -> GateResult:
    """P0: exact counts, no interval. Passes with enough coverage, pairs and time, and names what is lacking.

    Only pairs with a 2xx on both sides count towards ``min_pairs``: a 3xx is relayed as it is and has no output.
    """
    lacking, share = _lacking(coverage, data, policy), coverage.share
    return GateResult(
        "P0", say("coverage"), State.NODATA if data.pairs == 0 else State.OPEN if lacking else State.PASS, Unit.SHARE,
        policy.min_coverage, coverage.sampled, estimate=share, low=share, high=share,
        settle=None, note=joined("; ", [*lacking, *_remarks(coverage, data, policy, lacking=bool(lacking))]),
    )  # fmt: skip


def _lacking(coverage: Coverage, data: Tally, policy: Policy) -> list[Phrase]:
    """Return what coverage has too little of."""
    said, share = [], coverage.share
    if share is None:
        said.append(say("nothing was sampled yet"))
    elif share < policy.min_coverage:
        compared = say("only {share:.1f} % compared", share=math.floor(1000 * share) / 10)
        lost = joined(", ", (say("{n:,} {reason}", n=n, reason=plain(name)) for name, n in coverage.losses.items()))
        said.append(say("{compared} (lost: {lost})", compared=compared, lost=lost) if lost else compared)
    if data.answered < policy.min_pairs:
        wanted = policy.min_pairs
        said.append(say("{n:,} of {wanted:,} pairs that both sides answered", n=data.answered, wanted=wanted))
    if data.span_s < policy.min_span_s:
        seen, wanted_s = _duration(data.span_s), _duration(policy.min_span_s)
        said.append(say("{seen} of {wanted} observed", seen=seen, wanted=wanted_s))
    return said


def _remarks(coverage: Coverage, data: Tally, policy: Policy, *, lacking: bool) -> list[Phrase]:
    """Return what is to be said of the coverage whether it is enough or not."""
    said = [] if lacking else [say("mirroring {percent:g} %", percent=policy.mirror_percent)]
    if coverage.window.part and coverage.window.since_at is not None:
        said.append(say("since {at} UTC", at=f"{coverage.window.since_at.astimezone(UTC):%Y-%m-%d %H:%M}"))
    if policy.bodies is not Bodies.ALL:
        said.append(KEPT[policy.bodies])
    if data.both_refused:
        statuses = joined(", ", (say("{n:,} with {status}", n=n, status=s) for s, n in data.refused.most_common(3)))
        refused = plural(data.both_refused, "pair")
        said.append(say("no evidence, as both sides refused: {pairs} ({statuses})", pairs=refused, statuses=statuses))
    return said


def _duration(seconds: float) -> Phrase:
    if seconds >= 2 * 86_400:
        return say("{n:.1f} d", n=seconds / 86_400)
    if seconds >= 2 * 3_600:
        return say("{n:.1f} h", n=seconds / 3_600)
    return say("{n:.1f} min", n=seconds / 60) if seconds >= 120 else say("{n:.0f} s", n=seconds)
