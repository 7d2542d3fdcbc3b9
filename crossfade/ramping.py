"""The driver of ramps: looks every two seconds, decides by ``compare.ramp``, records, and then moves the toggle.

It is a process of its own (``crossfade ramp run``), not a part of the dashboard: what moves production's traffic should
not end with a page, and the page then needs no right to write. Several may run; one owns the ramps (a lease in the
store) and the others stand by.

A look is short: the counts of the gateways, at most ``PAIRS`` new pairs measured here, then the decision. What harms
clients now is seen by the counts, which need no measuring.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy.exc import DBAPIError

from compare.coverage import losses_of
from compare.job import measure_some
from compare.measurement import Measurement
from compare.plan import Plan
from compare.policy import Policy, measurement_key, policy_hash
from compare.ramp import Ramp, Seen, Served, decide, give_up
from compare.rampbook import Entry, Outrun, RampBook
from compare.ramps import ToggleWriter
from compare.results import Results
from compare.state import RouteState, fold
from compare.verdict import Verdict, judge_state
from crossfade.served import By, ServedMeter
from shadow.account import RouteAccount
from shadow.errors import StoreError
from shadow.exchange import SkipReason
from shadow.store.reader import Reader

log = logging.getLogger(__name__)
INTERVAL_S = 2.0
LEASE_S = 20.0
PAIRS = 8
_JUDGE_EVERY_S = 5.0
_READ = 1000
_NOTHING = Served()

Situation = Callable[[], tuple[Mapping[str, Policy], Mapping[str, Plan]]]
Tell = Callable[[str], None]


@dataclass(slots=True)
class _Step:
    """What is known of the present step of one route, kept between looks so that a look reads only what is new. Pairs
    are folded and not kept: a step may last for weeks. ``new`` are those of the last look."""

    entered_at: datetime
    key: str
    sequence: int
    state: RouteState = field(default_factory=RouteState)
    new: list[Measurement] = field(default_factory=list)
    more: bool = False
    verdict: Verdict | None = None
    judged_at: datetime | None = None
    judged: tuple[int, int] = (0, 0)


class Driver:
    """Drives every ramp in the book. Blocks; for one thread."""

    def __init__(
        self,
        reader: Reader,
        writer: ToggleWriter,
        meter: ServedMeter,
        situation: Situation,
        *,
        owner: str,
        now: Callable[[], datetime],
        tell: Tell,
    ) -> None:
        self._reader, self._writer, self._meter, self._situation = reader, writer, meter, situation
        self._owner, self._now, self._tell = owner, now, tell
        self._results, self._book = Results(reader.engine), RampBook(reader.engine)
        self._steps: dict[str, _Step] = {}
        self._missed: dict[str, By] = {}  # counts of looks that failed: they are read once only
        self._other = ""

    def look(self) -> bool:
        """Look at every ramp once; return whether there is more to measure at once. Raises nothing that a later look
        may mend: it is logged."""
        owner = self._book.claim(self._owner, self._now(), LEASE_S)
        if owner != self._owner:
            if owner != self._other:
                self._tell(f"{owner} drives the ramps; standing by")
            self._other = owner
            return False
        self._other = ""
        policies, plans = self._situation()
        served = self._meter.read(policies)
        busy = False
        for route, entry in self._book.all().items():
            if route in policies and route in plans:
                busy = self._drive(entry, policies[route], plans[route], served) or busy
        return busy

    def close(self) -> None:
        """Give the ownership back."""
        self._book.release(self._owner)

    def _drive(self, entry: Entry, policy: Policy, plan: Plan, served: By | None) -> bool:
        missed = self._missed.pop(policy.route, {})
        if not entry.ramp.phase.watched and entry.ramp.settled:
            return False
        counts = {pair: n for pair, n in (served or {}).items() if pair[0] == policy.route}
        known = {pair: missed.get(pair, _NOTHING) + counts.get(pair, _NOTHING) for pair in {*missed, *counts}}
        try:
            if not entry.ramp.settled:
                self._settle(entry)
                return False
            measured = self._measure(policy)
            ramp, seen = self._see(entry.ramp, policy, known, complete=served is not None)
            after = decide(ramp, plan, policy, seen, self._now())
            saved = self._book.save(after, entry, self._now()) if after != entry.ramp else entry
            if served is None:
                self._missed[policy.route] = known
            known = {}
            if (after.percent, after.phase) != (entry.ramp.percent, entry.ramp.phase):
                self._tell(describe(after))
            if not after.settled:
                self._settle(saved)
            return measured == PAIRS or self._steps[policy.route].more
        except Outrun:
            log.info("the ramp of %s was changed by somebody else; looking again", policy.route)
        except (OSError, ValueError, StoreError) as error:  # the file, the API server: the next look tries again
            log.error("the ramp of %s: %s", policy.route, error)
        except DBAPIError as error:
            log.error("the ramp of %s: the store failed: %s", policy.route, type(error.orig).__name__)
        self._missed[policy.route] = known
        return False

    def _measure(self, policy: Policy) -> int:
        """Measure a few new pairs; return how many. Bodies that cannot be read now must not end the watch: the counts
        of the gateways still say when a candidate fails."""
        try:
            return measure_some(self._reader, self._results, policy, PAIRS)
        except (OSError, StoreError) as error:
            log.error("pairs of %s cannot be measured: %s", policy.route, error)
            return 0

    def _settle(self, entry: Entry) -> None:
        """Make the toggle say what the ramp says, which is on record by now; or give the move up. Raises ``Outrun``."""
        ramp, moves = entry.ramp, self._book.moves(entry.ramp.route, 1)
        before = moves[0].before if moves else ramp.percent
        given_up = give_up(ramp, before, self._writer.percent(ramp.route), self._now())
        if given_up is not None:
            self._book.save(given_up, entry, self._now())
            self._tell(describe(given_up))
            return
        self._write(ramp)
        try:
            self._book.save(replace(ramp, settled=True), entry, self._now())
        except Outrun:
            newest = self._book.read(ramp.route)
            if newest is not None and newest.ramp.percent < ramp.percent:
                self._write(newest.ramp)  # brought back while this was being written: that word was the last
            raise

    def _write(self, ramp: Ramp) -> None:
        self._writer.move(ramp.route, ramp.percent, who=f"ramp, by {ramp.by}", now=self._now())

    def _see(self, ramp: Ramp, policy: Policy, served: By, *, complete: bool) -> tuple[Ramp, Seen]:
        """Return the ramp with the account of its step begun, and what is new. ``served`` is not ``complete`` where a
        gateway did not answer."""
        account = self._reader.accounts().get(policy.route)
        stored = self._reader.count(policy.route)
        if ramp.lost_before is None:
            ramp = replace(ramp, lost_before=losses_of(account, stored))
        step = self._step(ramp, policy)
        new = [m for m in step.new if m.sequence > ramp.sequence]
        standing = self._results.latest_verdict(policy.route, policy_hash(policy))
        verdict = standing
        if ramp.percent:
            verdict = self._judge(step, ramp, policy, losses_of(account, stored))
        return ramp, Seen(
            found=self._writer.percent(policy.route),
            pairs=new,
            candidate=served.get((policy.route, policy.candidate), _NOTHING) if complete else None,
            baseline=served.get((policy.route, policy.baseline), _NOTHING) if complete else None,
            verdict=verdict,
            noise=noise_of(standing),
        )

    def _step(self, ramp: Ramp, policy: Policy) -> _Step:
        """Return the present step, taken further by what was measured since the last look."""
        key, step = measurement_key(policy), self._steps.get(policy.route)
        if step is None or (step.entered_at, step.key) != (ramp.entered_at, key):
            step = self._steps[policy.route] = _Step(ramp.entered_at, key, ramp.first_sequence)
        found = self._results.measurements(policy.route, key, step.sequence, limit=_READ)
        step.more = len(found) == _READ
        step.new = [m for m in found if m.received_at >= ramp.entered_at]
        if found:
            step.sequence = found[-1].sequence
            fold(step.new, policy, step.state)
        return step

    def _judge(self, step: _Step, ramp: Ramp, policy: Policy, lost: Mapping[str, int]) -> Verdict | None:
        """Return the verdict on the step's own pairs, not older than a few seconds."""
        now, recorded = self._now(), step.state.recorded
        known = (recorded, sum(lost.values()))  # new losses make a good verdict as old as new pairs do
        due = step.judged_at is None or (now - step.judged_at).total_seconds() >= _JUDGE_EVERY_S
        if due and recorded and known != step.judged:
            span_s = min(policy.min_span_s, (now - ramp.entered_at).total_seconds() / 2)
            account = _account_since(lost, ramp.lost_before or {}, recorded)
            step.verdict = judge_state(step.state, replace(policy, min_span_s=span_s), account, now=now)
            step.judged_at, step.judged = now, known
        return step.verdict


def _account_since(lost: Mapping[str, int], before: Mapping[str, int], stored: int) -> RouteAccount:
    """Return the account of one step: its pairs, and what was lost since it began."""
    known = {reason.value for reason in SkipReason}
    skipped: dict[SkipReason, int] = {}
    for name, n in lost.items():
        reason = SkipReason(name) if name in known else SkipReason.LOST
        if n > before.get(name, 0):
            skipped[reason] = skipped.get(reason, 0) + n - before.get(name, 0)
    return RouteAccount(stored + sum(skipped.values()), stored, 0, skipped)


def noise_of(verdict: Verdict | None) -> float:
    """Return how often the baseline differs from itself, by the control calls of a verdict; 0 without any."""
    if verdict is None or not verdict.controls:
        return 0.0
    judged, above = sum(verdict.classes.values()), verdict.gate("G6").estimate
    if not judged or above is None:
        return 0.0
    raw = sum(n for found, n in verdict.classes.items() if found.mismatch) / judged
    return min(1.0, max(0.0, raw - above))


def describe(ramp: Ramp) -> str:
    """Return a ramp in one line."""
    return f"{ramp.route}: {ramp.phase.value} at {ramp.percent} %, by {ramp.by}: {ramp.reason}"
