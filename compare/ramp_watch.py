"""What is watched while a candidate serves, and what is found. Pure: values in, values out.

Each watch is an e-CUSUM: a bet that one kind of event happens more often than its margin allows, settled with every
pair or count that is new; it rings when it has won often enough (``compare.stats.log_e_cusum``). Beside them stand the
gates of a step: errors and latency of all that the candidate served there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from compare.measurement import Measurement
from compare.phrases import say
from compare.policy import Policy
from compare.stats import best_bet, log_e_cusum, rate_evidence

_FEARED_LEAST, _FEARED_TIMES, _FEARED_MOST = 0.1, 5.0, 0.95
_FLOOR_FROM = 100
"""Requests of the baseline from which its own rate of errors is believed."""


@dataclass(frozen=True, slots=True)
class Served:
    """Requests that a backend answered to clients, as the gateway counts them: no pair is needed for these. ``slow``
    are those beyond the latency objective (0 where there is none)."""

    requests: int = 0
    errors: int = 0
    slow: int = 0

    def __add__(self, other: Served) -> Served:
        return Served(self.requests + other.requests, self.errors + other.errors, self.slow + other.slow)


NOTHING = Served()


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


ERRORS, CRITICAL, OUTPUTS = say("candidate alone failed"), say("critical outputs"), say("different outputs")
RATIO, OBJECTIVE = say("pairs slower than allowed"), say("pairs beyond the latency objective")
SERVED_ERRORS, SERVED_SLOW = say("errors of served requests"), say("served requests beyond the latency objective")


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


def fold_alarms(
    alarms: Mapping[str, float],
    policy: Policy,
    noise: float,
    baseline: Served,
    pairs: Sequence[Measurement],
    candidate: Served | None,
) -> Mapping[str, float]:
    """Return log W by watch after what is new: ``pairs`` in order of sequence, and what the ``candidate`` served
    (``None`` where that is not known). ``baseline`` is all that it served at this step."""
    found = dict(alarms)
    for watch in watches(policy, noise, error_floor(baseline)):
        log_w = found.get(watch.title, 0.0)
        for events, trials in _steps(watch.title, policy, pairs, candidate):
            log_w = log_e_cusum(log_w, events, trials, watch.rate, watch.bet)
        found[watch.title] = log_w
    return found


def error_floor(baseline: Served) -> float:
    """Return the baseline's own rate of errors, 0 while it has served too little."""
    return baseline.errors / baseline.requests if baseline.requests >= _FLOOR_FROM else 0.0


def ringing(
    alarms: Mapping[str, float], alarm_after: float, policy: Policy, noise: float, baseline: Served
) -> list[Watch]:
    """Return the watches that ring, the critical ones first."""
    fired = [
        watch
        for watch in watches(policy, noise, error_floor(baseline))
        if alarms.get(watch.title, 0.0) >= math.log(alarm_after)
    ]
    return sorted(fired, key=lambda watch: not watch.critical)


def failing(served: Served, baseline: Served, policy: Policy) -> Iterator[tuple[str, bool]]:
    """Yield (which gate the requests that the candidate served at this step fail, whether it is critical)."""
    for title, events, margin, critical in (
        (SERVED_ERRORS, served.errors, policy.margins.errors + error_floor(baseline), True),
        (SERVED_SLOW, served.slow, policy.slo_margin, False),
    ):
        if served.requests and _surely_above(events, served.requests, margin, policy):
            yield say("{title}, {events:,} of {n:,}", title=title, events=events, n=served.requests), critical


def _steps(
    title: str, policy: Policy, pairs: Sequence[Measurement], candidate: Served | None
) -> Iterator[tuple[int, int]]:
    """Yield (events, trials) of one watch, a step each."""
    if title in (SERVED_ERRORS, SERVED_SLOW):
        if candidate is not None:
            yield getattr(candidate, "errors" if title == SERVED_ERRORS else "slow"), candidate.requests
        return
    for m in pairs:
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


def _surely_above(events: int, trials: int, margin: float, policy: Policy) -> bool:
    if events <= margin * trials:
        return False
    evidence = float(rate_evidence(events, trials, margin, policy.rate_t_opt(margin), policy.alpha))
    return evidence > math.log(1 / policy.alpha)
