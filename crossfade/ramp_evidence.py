"""What the store says of a ramp's present step: new pairs, measured here, and the verdict on them.

What is known is kept between looks, so that a look reads only what is new; pairs are folded and not kept, as a step
may last for weeks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from compare.coverage import losses_of
from compare.epochs import Epoch
from compare.job import measure_some
from compare.measurement import Measurement
from compare.policy import Policy, measurement_key, policy_hash
from compare.ramp import Ramp, Seen
from compare.results import Results
from compare.state import RouteState, fold
from compare.states import States
from compare.verdict import Verdict, judge_state
from shadow.account import RouteAccount, skips_of
from shadow.errors import StoreError
from shadow.store.reader import Reader

log = logging.getLogger(__name__)
PAIRS = 8
"""Pairs that one look at a route measures at most."""
_JUDGE_EVERY_S = 5.0
_READ = 1000


@dataclass(slots=True)
class _Step:
    """What is known of the present step of one route. ``new`` are the pairs that no saved look has watched,
    ``more`` says whether there are more to read."""

    entered_at: datetime
    key: str
    sequence: int
    state: RouteState = field(default_factory=RouteState)
    new: list[Measurement] = field(default_factory=list)
    more: bool = False
    verdict: Verdict | None = None
    judged_at: datetime | None = None
    judged: tuple[int, int] = (0, 0)


class Evidence:
    """Reads the store for the driver. Every method blocks and raises what the store raises."""

    def __init__(self, reader: Reader, now: Callable[[], datetime]) -> None:
        """Use the store of ``reader``, and create the comparison's tables where they are missing."""
        self._reader, self._now, self._results = reader, now, Results(reader.engine)
        self._states = States(reader.engine, self._results)
        self._steps: dict[str, _Step] = {}
        self._standing: dict[tuple[str, str], RouteState] = {}

    def measure(self, policy: Policy) -> bool:
        """Measure a few new pairs; return whether there may be more. Bodies that cannot be read now must not end the
        watch: the counts of the gateways still say when a candidate fails."""
        try:
            return measure_some(self._reader, self._results, policy, PAIRS) == PAIRS
        except (OSError, StoreError) as error:
            log.error("pairs of %s cannot be measured: %s", policy.route, error)
            return False

    def see(self, ramp: Ramp, policy: Policy, found: int) -> tuple[Ramp, Seen, bool]:
        """Return the ramp with the account of its step begun, what is new (without the gateways' counts), and whether
        there is more to read. ``found`` is the candidate's percent in the toggle."""
        account = self._reader.accounts().get(policy.route)
        lost = losses_of(account, self._reader.count(policy.route))
        if ramp.lost_before is None:
            ramp = replace(ramp, lost_before=lost)
        step = self._step(ramp, policy)
        standing = self._results.latest_verdict(policy.route, policy_hash(policy))
        seen = Seen(
            found=found,
            pairs=list(step.new),
            verdict=self._judge(step, ramp, policy, lost) if ramp.percent else standing,
            noise=noise_of(standing),
            epoch=None if ramp.percent else self._epoch(policy),
        )
        return ramp, seen, step.more

    def _epoch(self, policy: Policy) -> Epoch:
        key = (policy.route, measurement_key(policy))
        self._standing[key] = self._states.advance(policy, self._standing.get(key))
        return self._standing[key].epochs.present

    def _step(self, ramp: Ramp, policy: Policy) -> _Step:
        """Return the present step, taken further by what was measured since the last look."""
        key, step = measurement_key(policy), self._steps.get(policy.route)
        if step is None or (step.entered_at, step.key) != (ramp.entered_at, key):
            step = self._steps[policy.route] = _Step(ramp.entered_at, key, ramp.first_sequence)
        found = self._results.measurements(policy.route, key, step.sequence, limit=_READ)
        step.more = len(found) == _READ
        if found:
            step.sequence = found[-1].sequence
        new = [m for m in found if m.received_at >= ramp.entered_at]
        fold(new, policy, step.state)
        # What a look has read and could not save is still to be watched.
        step.new = [m for m in (*step.new, *new) if m.sequence > ramp.sequence]
        return step

    def _judge(self, step: _Step, ramp: Ramp, policy: Policy, lost: Mapping[str, int]) -> Verdict | None:
        """Return the verdict on the step's own pairs, not older than a few seconds."""
        now, recorded = self._now(), step.state.recorded
        known = (recorded, sum(lost.values()))  # new losses make a good verdict as old as new pairs do
        due = step.judged_at is None or abs((now - step.judged_at).total_seconds()) >= _JUDGE_EVERY_S
        if due and recorded and known != step.judged:
            span_s = min(policy.min_span_s, (now - ramp.entered_at).total_seconds() / 2)
            account = _account_since(lost, ramp.lost_before or {}, recorded)
            step.verdict = judge_state(step.state, replace(policy, min_span_s=span_s), account, now=now)
            step.judged_at, step.judged = now, known
        return step.verdict


def _account_since(lost: Mapping[str, int], before: Mapping[str, int], stored: int) -> RouteAccount:
    """Return the account of one step: its pairs, and what was lost since it began."""
    skipped = skips_of({name: n - before.get(name, 0) for name, n in lost.items() if n > before.get(name, 0)})
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
