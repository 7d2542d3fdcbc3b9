"""The gates: each a statistic with an always-valid interval against a margin.

A gate is decided by evaluating the evidence at the margin; the interval is what is shown, at ``alpha``. A critical gate
rejects at ``alpha / (routes x gates)``. Seconds, shares of pairs, and ratios of candidate to baseline.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from compare.phrases import Phrase, joined, say
from compare.policy import Policy
from compare.stats import (
    first_finite_trials,
    mean_interval,
    quantile_evidence,
    rate_evidence,
    rate_interval,
    trials_to_settle,
)
from compare.stats.bernoulli import rate_interval_arrays
from compare.stats.mixture import Floats, beta_binomial_log_mixture
from compare.tally import Tally


class State(StrEnum):
    """What is known of a gate. ``NODATA`` never counts as good."""

    PASS = "pass"  # noqa: S105 - a gate, not a password
    FAIL = "fail"
    OPEN = "open"
    NODATA = "nodata"


class Unit(StrEnum):
    """What a gate's numbers are."""

    RATIO = "ratio"
    SHARE = "share"
    MEAN = "mean"


@dataclass(frozen=True, slots=True)
class GateResult:
    """One gate. An infinite end is ``None``. ``settle`` is at how many pairs *in all* the gate is expected to be
    decided if things go on as they are; ``log_e`` the log e-value against 'within the margin', where there is one."""

    id: str
    title: str
    state: State
    unit: Unit
    margin: float | None
    n: int
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    required: bool = True
    critical: bool = False
    rejects: bool = False
    settle: int | None = None
    log_e: float | None = None
    note: str = ""

    @property
    def more(self) -> int | None:
        """How many more pairs are expected to settle an open gate."""
        return None if self.settle is None or self.state is not State.OPEN else max(0, self.settle - self.n)


def all_gates(data: Tally, policy: Policy) -> tuple[GateResult, ...]:
    """Return G1 to G7; the tail gate comes as two rows, one per percentile."""
    return (
        typical_latency(data, policy),
        latency_objective(data, policy),
        tail(data, policy, 0.95),
        tail(data, policy, 0.99),
        mean_latency(data, policy),
        errors(data, policy),
        outputs(data, policy),
        critical_outputs(data, policy),
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def typical_latency(data: Tally, policy: Policy) -> GateResult:
    """G1: the median over pairs of candidate latency over baseline latency (not the ratio of two medians)."""
    title, margin, n = say("typical latency"), policy.margins.median_ratio, data.ratios.total
    if n == 0:
        return GateResult("G1", title, State.NODATA, Unit.RATIO, margin, 0)
    t_opt, threshold = policy.tuned_for.p50, math.log(1 / policy.alpha)
    decided = float(quantile_evidence(data.within, n, 0.5, policy.alpha, t_opt)) > threshold
    state = State.OPEN if not decided else State.PASS if data.within > n / 2 else State.FAIL
    low, high = data.ratios.interval(0.5, policy.alpha, t_opt)
    return GateResult(
        "G1", title, state, Unit.RATIO, margin, n,
        estimate=data.ratios.percentile(0.5).value, low=_finite(low), high=_finite(high),
        settle=trials_to_settle(data.within, n, 0.5, t_opt, policy.alpha),
        note=say("{n:,} pairs without any answer left out", n=data.unanswered) if data.unanswered else "",
    )  # fmt: skip


def latency_objective(data: Tally, policy: Policy) -> GateResult:
    """G2: how often the candidate misses the latency objective; a failure is a miss."""
    if policy.latency_slo_s is None:
        return GateResult(
            "G2",
            say("latency objective"),
            State.NODATA,
            Unit.SHARE,
            None,
            0,
            required=False,
            note=say("no objective is configured"),
        )
    title, n = say("slower than {seconds:g} s", seconds=policy.latency_slo_s), data.timed.candidate.total
    return _rate_gate("G2", title, data.slo_misses, n, policy.slo_margin, policy, critical=False)


def tail(data: Tally, policy: Policy, p: float) -> GateResult:
    """G3: a ratio of two quantiles, each side's interval at alpha / 2. Shown; rejects when its lower end is beyond the
    margin."""
    old, new = data.timed.baseline, data.timed.candidate
    title, margin, n = say("tail, {p:.0f}th percentile", p=100 * p), policy.margins.tail_ratio, new.total
    if n == 0:
        return GateResult(f"G3-p{100 * p:.0f}", title, State.NODATA, Unit.RATIO, margin, 0, required=False)
    t_opt = policy.tuned_for.p95 if p == 0.95 else policy.tuned_for.p99

    def ratio_interval(alpha: float) -> tuple[float, float]:
        (low_b, high_b), (low_c, high_c) = (side.interval(p, alpha / 2, t_opt) for side in (old, new))
        # A side without a finite end says nothing; nor does one infinite wait over another.
        low = low_c / high_b if math.isfinite(high_b) and high_b > 0 and low_c > 0 else 0.0
        return low, (high_c / low_b if math.isfinite(high_c) and 0 < low_b < math.inf else math.inf)

    low, high = ratio_interval(policy.alpha)
    state = State.FAIL if low > margin else State.PASS if high <= margin else State.OPEN
    point_b, point_c = (side.percentile(p).value for side in (old, new))
    can_fire = first_finite_trials(p, policy.reject_alpha / 2, t_opt)
    return GateResult(
        f"G3-p{100 * p:.0f}", title, state, Unit.RATIO, margin, n,
        estimate=point_c / point_b if point_b and point_c is not None else None,
        low=_finite(low), high=_finite(high), required=False, critical=True,
        rejects=ratio_interval(policy.reject_alpha)[0] > margin,
        settle=can_fire if can_fire is not None and can_fire > n else None,
        note=say("cannot reject below {n:,} pairs", n=can_fire) if can_fire is not None and can_fire > n else "",
    )  # fmt: skip


def mean_latency(data: Tally, policy: Policy) -> GateResult:
    """G4: the mean difference of latencies, both cut at the deadline, as a share of the deadline. Shown only."""
    title, n = say("mean latency, share of {seconds:g} s", seconds=policy.deadline_s), data.mean.n
    if n == 0:
        return GateResult("G4", title, State.NODATA, Unit.MEAN, 0.0, 0, required=False)
    low, high = (2 * end - 1 for end in data.mean.interval(policy.alpha))
    state = State.PASS if high <= 0 else State.FAIL if low > 0 else State.OPEN
    return GateResult("G4", title, state, Unit.MEAN, 0.0, n, data.mean_total / n, low, high, required=False)


def errors(data: Tally, policy: Policy) -> GateResult:
    """G5: the candidate fails where the baseline does not."""
    margin = policy.margins.errors
    return _rate_gate("G5", say("errors"), data.candidate_alone_failed, data.pairs, margin, policy, critical=True)


def critical_outputs(data: Tally, policy: Policy) -> GateResult:
    """G7: a missed face, a wrong size, an undecodable answer, a broken schema."""
    margin = policy.margins.critical
    return _rate_gate("G7", say("critical outputs"), data.critical, data.judged, margin, policy, critical=True)


def outputs(data: Tally, policy: Policy) -> GateResult:
    """G6: mismatches above what the baseline shows against itself. Without control calls the raw rate is judged."""
    title, margin = say("outputs above noise"), policy.margins.outputs
    if data.controls == 0 or data.judged == 0:
        note = say("no control calls: no noise floor is known, the raw rate is judged")
        return _rate_gate("G6", title, data.mismatch, data.judged, margin, policy, critical=True, note=note)
    counts = data.mismatch, data.judged, data.noise, data.controls
    low, high = _above_noise(counts, policy, policy.alpha)
    estimate = data.mismatch / data.judged - data.noise / data.controls
    state = State.PASS if high <= margin else State.FAIL if low > margin else State.OPEN
    rejects = _above_noise(counts, policy, policy.reject_alpha)[0] > margin
    notes = [say("noise: {noise:,} of {controls:,} control calls differ", noise=data.noise, controls=data.controls)]
    if estimate > margin and not rejects:
        notes += _controls_wanted(data.mismatch, data.judged, policy)
    return GateResult(
        "G6", title, state, Unit.SHARE, margin, data.judged, estimate, low, high, critical=True, rejects=rejects,
        settle=_difference_settles(counts, policy), log_e=difference_log_e(*counts, margin, policy),
        note=joined("; ", notes),
    )  # fmt: skip


Counts = tuple[int, int, int, int]
"""Mismatches, judged pairs, control calls that differ, control calls."""


def _above_noise(counts: Counts, policy: Policy, alpha: float) -> tuple[float, float]:
    t_opt = policy.rate_t_opt(policy.margins.outputs)
    raw, floor = (rate_interval(counts[at], counts[at + 1], t_opt, alpha / 2) for at in (0, 2))
    return raw.low - floor.high, raw.high - floor.low


_LEAST_LOG_E = -700.0
_FLOORS = np.geomspace(1e-3, 0.9, 32)


def difference_log_e(events: int, trials: int, noise: int, controls: int, margin: float, policy: Policy) -> float:
    """Return the log e-value against 'the mismatch rate is at most the noise rate plus ``margin``'.

    For any fixed floor f that says: the mismatch rate is at most f + margin, or the noise rate is at least f. The
    smaller of the two one-sided e-values is one against it, and so is their mean over floors that are fixed beforehand.
    """
    floors = _FLOORS[_FLOORS + margin < 0.99]
    above = _one_sided(events, trials, floors + margin, policy)
    below = _one_sided(controls - noise, controls, 1 - floors, policy)
    return float(np.logaddexp.reduce(np.minimum(above, below)) - math.log(floors.size))


def _one_sided(events: int, trials: int, rate: Floats | float, policy: Policy) -> Floats:
    """Return the log e-value against 'the rate is at most ``rate``', tuned as the rate's interval is."""
    p = np.asarray(rate, dtype=np.float64)
    spread = p * (1 - p)
    t_opt = np.array([policy.rate_t_opt(min(x, 1 - x)) for x in np.atleast_1d(p)]).reshape(p.shape)
    with np.errstate(divide="ignore"):  # no evidence at all underflows
        found = beta_binomial_log_mixture(
            events - trials * p, spread * trials, spread * t_opt, p, 1 - p, policy.alpha, two_sided=False
        )
    floored: Floats = np.maximum(found, _LEAST_LOG_E)
    return floored


def _difference_settles(counts: Counts, policy: Policy) -> int | None:
    """Return at how many pairs the difference is decided if both rates and the share of control calls stay as they
    are."""
    growth, t_opt = np.geomspace(1, 500, 400), policy.rate_t_opt(policy.margins.outputs)
    (raw_low, raw_high), (floor_low, floor_high) = (
        rate_interval_arrays(growth * counts[at], growth * counts[at + 1], t_opt, policy.alpha / 2) for at in (0, 2)
    )
    decided = (raw_high - floor_low <= policy.margins.outputs) | (raw_low - floor_high > policy.margins.outputs)
    return math.ceil(growth[decided][0] * counts[1]) if decided.any() else None


def _controls_wanted(events: int, trials: int, policy: Policy) -> list[Phrase]:
    """Say how many control calls without a difference would let the present mismatches reject."""
    t_opt, alpha, margin = policy.rate_t_opt(policy.margins.outputs), policy.reject_alpha / 2, policy.margins.outputs
    room = rate_interval(events, trials, t_opt, alpha).low - margin
    wanted = trials_to_settle(0, 1, room, t_opt, alpha) if room > 0 else None
    return [say("{n:,} clean control calls would do to reject", n=wanted)] if wanted is not None else []


def _rate_gate(
    name: str, title: str, k: int, n: int, margin: float, policy: Policy, *, critical: bool, note: str = ""
) -> GateResult:
    if n == 0:
        return GateResult(name, title, State.NODATA, Unit.SHARE, margin, 0, critical=critical, note=note)
    t_opt, above = policy.rate_t_opt(margin), k / n > margin

    def decided(alpha: float) -> bool:
        return float(rate_evidence(k, n, margin, t_opt, alpha)) > math.log(1 / alpha)

    state = State.OPEN if not decided(policy.alpha) else State.FAIL if above else State.PASS
    interval = rate_interval(k, n, t_opt, policy.alpha)
    return GateResult(
        name, title, state, Unit.SHARE, margin, n, interval.estimate, interval.low, interval.high, critical=critical,
        rejects=critical and above and decided(policy.reject_alpha),
        settle=trials_to_settle(k, n, margin, t_opt, policy.alpha), log_e=float(_one_sided(k, n, margin, policy)),
        note=note,
    )  # fmt: skip


def bursty_gates(data: Tally, gates: tuple[GateResult, ...], policy: Policy) -> tuple[str, ...]:
    """Return the gates whose verdict turns round on one-minute block means: bursts, not a rate.

    Pairs of one minute are not independent; a mean per minute with interval E cannot be fooled by one bad minute. Looks
    at G1 (the share of pairs beyond the allowed ratio, against one half), G2, G5, G6 and G7. Fires on opposition only,
    where the minutes say surely the opposite of the pairs: minutes that are merely too few to say anything (it takes as
    many minutes as pairs to settle a gate) hold nothing up. Over several days the blocks are longer (``Blocks``).
    """
    floor = data.noise / data.controls if data.controls else 0.0
    sources: dict[str, tuple[str, float]] = {
        "G1": ("answered", 0.5),
        "G2": ("timed", policy.slo_margin),
        "G5": ("pairs", policy.margins.errors),
        "G6": ("judged", policy.margins.outputs + floor),
        "G7": ("judged", policy.margins.critical),
    }
    return tuple(
        gate.id for gate in gates if gate.id in sources and _turns_round(gate, data, *sources[gate.id], policy)
    )


def _turns_round(gate: GateResult, data: Tally, of: str, margin: float, policy: Policy) -> bool:
    means = np.array(data.blocks.shares(gate.id, of), dtype=np.float64)
    if means.size == 0:
        return False
    low, high = mean_interval(means, policy.alpha)
    opposite: dict[State, Callable[[], bool]] = {State.PASS: lambda: low > margin, State.FAIL: lambda: high <= margin}
    return opposite[gate.state]() if gate.state in opposite else False
