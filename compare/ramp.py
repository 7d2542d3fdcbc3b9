"""The way across: when a route's traffic moves a step further, and when it comes back. Pure: values in, values out.

States of a ramp, and what changes them:

    running   at ``percent``. Forward one step when it has stayed there for the minimum time, the candidate has served
              enough requests there, and the verdict on the live pairs of this very step is promote.
    paused    keeps ``percent`` until a person goes on or gives up. A step back ends here, and so does a toggle that
              somebody else has moved.
    done      at the last step, which has passed, too. The roles have swapped; the watch goes on.
    aborted   the baseline serves everything: a person gave up, or something critical was found.

In running, paused and done everything is watched: the pairs, by e-CUSUMs and by the verdict on the step, and what has
no pair, by errors and latency of the requests that the candidate served. What harms now (errors, critical outputs, a
reject) brings the route all the way back; what is merely worse (slower, different) one step. No move can happen without
``by`` and ``reason``, because a move *is* a new value with both. What is not known (a gateway that does not answer)
never moves anything forward.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from compare.measurement import Measurement
from compare.plan import Plan
from compare.policy import Policy
from compare.stats import best_bet, log_e_cusum, rate_evidence
from compare.verdict import Decision, Verdict

_FEARED_LEAST, _FEARED_TIMES, _FEARED_MOST = 0.1, 5.0, 0.95
_FLOOR_FROM = 100
"""Requests of the baseline from which its own rate of errors is believed."""
MOST_UNWRITTEN_S = 60.0
"""How long the evidence for a step holds while the toggle cannot be written."""
BY_VERDICT, BY_WATCH, BY_TOGGLE = "verdict", "watch", "toggle"


class Phase(StrEnum):
    """Where a ramp is; the module says what changes it."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    ABORTED = "aborted"

    @property
    def watched(self) -> bool:
        """Whether the candidate may be serving because of this ramp."""
        return self is not Phase.ABORTED


@dataclass(frozen=True, slots=True)
class Served:
    """Requests that a backend answered to clients, as the gateway counts them: no pair is needed for these. ``slow``
    are those beyond the latency objective (0 where there is none)."""

    requests: int = 0
    errors: int = 0
    slow: int = 0

    def __add__(self, other: Served) -> Served:
        return Served(self.requests + other.requests, self.errors + other.errors, self.slow + other.slow)


@dataclass(frozen=True, slots=True)
class Ramp:
    """One route's ramp. ``percent`` is what the candidate is to serve, ``settled`` whether the toggle is known to say
    so. ``by`` is who or what made the last change: a person, ``verdict`` or ``watch``. ``alarms`` is log W by watch;
    ``sequence`` the place in the record up to which pairs were watched, ``first_sequence`` the one where this step
    began, ``lost_before`` what the gateway had lost by then (``None`` until the first look); ``candidate`` and
    ``baseline`` what each served since ``entered_at``; ``waiting`` why it does not go on yet."""

    route: str
    phase: Phase
    percent: int
    entered_at: datetime
    by: str
    reason: str
    settled: bool = True
    alarms: Mapping[str, float] = field(default_factory=dict)
    sequence: int = 0
    first_sequence: int = 0
    lost_before: Mapping[str, int] | None = None
    candidate: Served = Served()
    baseline: Served = Served()
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen since the last look. ``found`` is the candidate's percent in the toggle. ``pairs`` are new, in
    order of sequence. ``candidate`` and ``baseline`` are ``None`` while the gateway's counts cannot be read.
    ``verdict`` is on the pairs since the step was entered; at 0 percent, the route's standing one. ``noise`` is how
    often the baseline differs from itself."""

    found: int
    pairs: Sequence[Measurement] = ()
    candidate: Served | None = None
    baseline: Served | None = None
    verdict: Verdict | None = None
    noise: float = 0.0


@dataclass(frozen=True, slots=True)
class Watch:
    """One e-CUSUM: alarm when ``title`` happens more often than ``rate``. ``critical`` brings the route all the way
    back."""

    title: str
    rate: float
    critical: bool
    feared: float | None = None

    @property
    def bet(self) -> float:
        """The bet that finds fastest what is feared: five times the rate, and one in ten at the least."""
        feared = max(_FEARED_LEAST, _FEARED_TIMES * self.rate)
        return best_bet(self.rate, self.feared or min(_FEARED_MOST, feared))


ERRORS, CRITICAL, OUTPUTS = "candidate alone failed", "critical outputs", "different outputs"
RATIO, OBJECTIVE = "pairs slower than allowed", "pairs beyond the latency objective"
SERVED_ERRORS, SERVED_SLOW = "errors of served requests", "served requests beyond the latency objective"


def watches(policy: Policy, noise: float, floor: float) -> tuple[Watch, ...]:
    """Return what is watched on a route. ``noise`` and ``floor`` are the baseline's own rates of differing outputs and
    of errors, which the margins are above of."""
    rules = policy.margins
    found = [
        Watch(ERRORS, rules.errors, critical=True),
        Watch(CRITICAL, rules.critical, critical=True),
        Watch(OUTPUTS, min(0.8, rules.outputs + noise), critical=False),
        Watch(RATIO, 0.5, critical=False, feared=0.8),
        Watch(SERVED_ERRORS, min(0.8, rules.errors + floor), critical=True),
    ]
    if policy.latency_slo_s is not None:
        found += [Watch(title, policy.slo_margin, critical=False) for title in (OBJECTIVE, SERVED_SLOW)]
    return tuple(found)


def begin(route: str, percent: int, who: str, now: datetime, sequence: int = 0) -> Ramp:
    """Return a ramp that a person starts where the toggle is now; the next look makes the first move."""
    return Ramp(route, Phase.RUNNING, percent, now, who, "started", sequence=sequence, first_sequence=sequence)


def resume(ramp: Ramp, who: str, now: datetime) -> Ramp:
    """Go on after a pause: at the same step, whose time begins anew."""
    return _enter(ramp, Phase.RUNNING, ramp.percent, now, who, "went on")


def pause(ramp: Ramp, who: str, now: datetime) -> Ramp:
    """Stay where it is until a person goes on."""
    return replace(_enter(ramp, Phase.PAUSED, ramp.percent, now, who, "paused"), alarms=ramp.alarms)


def abort(ramp: Ramp, who: str, now: datetime) -> Ramp:
    """Bring everything back to the baseline."""
    return replace(_enter(ramp, Phase.ABORTED, 0, now, who, "aborted"), settled=False)


def decide(ramp: Ramp, plan: Plan, policy: Policy, seen: Seen, now: datetime) -> Ramp:
    """Return the ramp after one look. A changed ``percent`` comes with ``settled`` false: it is to be written."""
    if not ramp.phase.watched:
        return ramp
    if seen.found != ramp.percent:
        return _follow(ramp, ramp.percent, seen.found, now)
    looked = _look(ramp, policy, seen)
    found = next(_findings(looked, plan, policy, seen), None)
    if found is not None:
        return _retreat(looked, plan, *found, now)
    if looked.phase is not Phase.RUNNING:
        return replace(looked, waiting=())
    waiting = tuple(_waits(looked, plan, seen, now))
    return replace(looked, waiting=waiting) if waiting else _advance(looked, plan, seen, now)


def give_up(ramp: Ramp, before: int, found: int, now: datetime) -> Ramp | None:
    """Return the ramp where its last move, which the toggle does not show yet, must not be written any more; ``None``
    where it is to be written. ``before`` is where that move began, ``found`` what the toggle says.

    Somebody else's toggle is never overruled, except to bring everything back; and what let a route go forward holds
    for ``MOST_UNWRITTEN_S`` only.
    """
    if not ramp.percent or found == ramp.percent:
        return None
    if found != before:
        return _follow(ramp, before, found, now)
    if found > ramp.percent or (now - ramp.entered_at).total_seconds() <= MOST_UNWRITTEN_S:
        return None
    said = f"the move to {ramp.percent} % could not be written for {MOST_UNWRITTEN_S:.0f} s; see why, then go on"
    return replace(_enter(ramp, Phase.PAUSED, found, now, BY_WATCH, said), settled=True)


def _follow(ramp: Ramp, before: int, found: int, now: datetime) -> Ramp:
    """Take up what somebody else has made of the toggle."""
    said = f"somebody else moved the toggle from {before} to {found} %"
    phase = Phase.PAUSED if found else Phase.ABORTED
    return replace(_enter(ramp, phase, found, now, BY_TOGGLE, said), settled=True)


def _enter(ramp: Ramp, phase: Phase, percent: int, now: datetime, by: str, reason: str) -> Ramp:
    """Return the ramp at a new place, where everything is counted from the beginning."""
    return Ramp(
        ramp.route, phase, percent, now, by, reason, settled=percent == ramp.percent and ramp.settled,
        sequence=ramp.sequence, first_sequence=ramp.sequence,
    )  # fmt: skip


def _advance(ramp: Ramp, plan: Plan, seen: Seen, now: datetime) -> Ramp:
    percent = plan.after(ramp.percent)
    said = seen.verdict.reason if seen.verdict is not None else ""
    if percent is None:
        return _enter(ramp, Phase.DONE, ramp.percent, now, BY_VERDICT, f"the last step has passed: {said}")
    return _enter(ramp, Phase.RUNNING, percent, now, BY_VERDICT, said)


def _retreat(ramp: Ramp, plan: Plan, reason: str, critical: bool, now: datetime) -> Ramp:
    percent = 0 if critical else plan.before(ramp.percent)
    moved = _enter(ramp, Phase.PAUSED if percent else Phase.ABORTED, percent, now, BY_WATCH, reason)
    # Already at 0, a ramp that is given up has nothing to write.
    return replace(moved, settled=moved.percent == ramp.percent)


def _look(ramp: Ramp, policy: Policy, seen: Seen) -> Ramp:
    """Fold what is new into the watches and counts."""
    candidate, baseline = ramp.candidate + (seen.candidate or Served()), ramp.baseline + (seen.baseline or Served())
    alarms = dict(ramp.alarms)
    for watch in watches(policy, seen.noise, _floor(baseline)):
        log_w = alarms.get(watch.title, 0.0)
        for events, trials in _steps(watch.title, policy, seen):
            log_w = log_e_cusum(log_w, events, trials, watch.rate, watch.bet)
        alarms[watch.title] = log_w
    sequence = max([ramp.sequence, *(m.sequence for m in seen.pairs)])
    return replace(ramp, alarms=alarms, sequence=sequence, candidate=candidate, baseline=baseline)


def _floor(baseline: Served) -> float:
    return baseline.errors / baseline.requests if baseline.requests >= _FLOOR_FROM else 0.0


def _steps(title: str, policy: Policy, seen: Seen) -> Iterator[tuple[int, int]]:
    """Yield (events, trials) of one watch, a step each."""
    if title in (SERVED_ERRORS, SERVED_SLOW):
        if seen.candidate is not None:
            yield getattr(seen.candidate, "errors" if title == SERVED_ERRORS else "slow"), seen.candidate.requests
        return
    for m in seen.pairs:
        event = _event(title, policy, m)
        if event is not None:
            yield int(event), 1


def _event(title: str, policy: Policy, m: Measurement) -> bool | None:
    """Whether a pair shows what a watch looks for, ``None`` where it says nothing about it."""
    if m.baseline is None or m.candidate is None or m.both_refused:
        return None
    old, new = m.baseline.wait_s, m.candidate.wait_s
    if title == ERRORS:
        return math.isinf(new) and not math.isinf(old)
    if title in (CRITICAL, OUTPUTS):
        found = m.judgement.output_class
        if found is None:
            return None
        return m.judgement.critical is not None if title == CRITICAL else found.mismatch
    if not m.timed:
        return None
    if title == OBJECTIVE:
        return policy.latency_slo_s is not None and new > policy.latency_slo_s
    return None if math.isinf(old) and math.isinf(new) else new > policy.margins.median_ratio * old


def _findings(ramp: Ramp, plan: Plan, policy: Policy, seen: Seen) -> Iterator[tuple[str, bool]]:
    """Yield (what is wrong, whether it is critical), the critical ones first."""
    fired = [w for w in watches(policy, seen.noise, _floor(ramp.baseline)) if _fires(ramp, plan, w)]
    for watch in sorted(fired, key=lambda w: not w.critical):
        yield f"alarm: {watch.title}, above {100 * watch.rate:.2g} % at {ramp.percent} %", watch.critical
    if seen.verdict is not None and seen.verdict.decision is Decision.REJECT:
        yield f"rejected: {seen.verdict.reason}", True
    served = ramp.candidate
    for title, events, margin, critical in (
        (SERVED_ERRORS, served.errors, policy.margins.errors + _floor(ramp.baseline), True),
        (SERVED_SLOW, served.slow, policy.slo_margin, False),
    ):
        if served.requests and _surely_above(events, served.requests, margin, policy):
            yield f"gate: {title}, {events:,} of {served.requests:,} at {ramp.percent} %", critical


def _fires(ramp: Ramp, plan: Plan, watch: Watch) -> bool:
    return ramp.alarms.get(watch.title, 0.0) >= math.log(plan.alarm_after)


def _surely_above(events: int, trials: int, margin: float, policy: Policy) -> bool:
    if events <= margin * trials:
        return False
    evidence = float(rate_evidence(events, trials, margin, policy.rate_t_opt(margin), policy.alpha))
    return evidence > math.log(1 / policy.alpha)


def _waits(ramp: Ramp, plan: Plan, seen: Seen, now: datetime) -> Iterator[str]:
    """Yield why the ramp cannot go on yet."""
    if ramp.percent:
        left_s = plan.min_stay_s - (now - ramp.entered_at).total_seconds()
        if left_s > 0:
            yield f"stays at {ramp.percent} % for another {left_s:.0f} s at least"
        if seen.candidate is None:
            yield "the gateway's counts cannot be read"
        elif ramp.candidate.requests < plan.min_requests:
            yield f"the candidate served {ramp.candidate.requests:,} of {plan.min_requests:,} requests at this step"
    if seen.verdict is None:
        yield "no pair of this step has been judged yet"
    elif seen.verdict.decision is not Decision.PROMOTE:
        yield f"the verdict is {seen.verdict.decision.value}: {seen.verdict.reason}"
