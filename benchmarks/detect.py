"""The truth test of the verdict: seeded streams whose truth is known, looked at after every single pair. Minutes.

    python -m benchmarks.detect [--streams 1000] [--pairs 1000]

Each stream is one route. Its latencies are lognormal, one in ten pairs has a control call, and the baseline's own
outputs differ from themselves in 3 of 100. The gates are those of the product: the evidence is evaluated at the margin
(G1, G5, G7), the intervals of both rates are looked up (G6), and the tail's quantiles are kept in order (G3). Beside
them stand what others do on the same streams: Mann-Whitney (20 looks) and Welch's t-test (a look after every pair) on
latencies, both at 5 %, and Diffy's rule on outputs (raw > noise, relative > 20 %, absolute > 0.03 %; after 100 pairs).
Which class a broken picture gets is asked of the kernel itself.
"""

from __future__ import annotations

import argparse
import math
import time
from bisect import insort
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats as scipy_stats
from skimage import data as pictures

from benchmarks.broken_pictures import class_of_fault
from compare.policy import Policy
from compare.stats import quantile_ranks, rate_evidence
from compare.stats.bernoulli import rate_interval_arrays

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]
NOISE = 0.03
CONTROL_EVERY = 10
LOOKS = 20
SPREAD = 0.3


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true of a stream: how much slower, how many candidate errors, how many bad outputs (critical or not)."""

    name: str
    slower: float = 1.0
    errors: float = 0.0
    wrong: float = 0.0
    critical: bool = False
    promotable: bool = False
    noise: float = NOISE


@dataclass(slots=True)
class Streams:
    """Many streams at once; arrays are ``(streams, pairs)``."""

    old_s: Floats
    new_s: Floats
    error: Flags
    mismatch: Flags
    critical: Flags
    noise: Flags


@dataclass(slots=True)
class Found:
    """What was said of each stream first: the number of pairs at which it was said, 0 for never."""

    rejected: Counts
    failed: Counts
    promoted: Counts


def draw(truth: Truth, streams: int, pairs: int, seed: int) -> Streams:
    """Draw the streams of one truth."""
    rng = np.random.default_rng(seed)
    shape = streams, pairs
    work = rng.lognormal(-1.2, 0.4, shape)
    error, wrong = rng.random(shape) < truth.errors, rng.random(shape) < truth.wrong
    noisy, control = rng.random(shape) < truth.noise, rng.random(shape) < truth.noise
    new_s = np.where(error, np.inf, work * truth.slower * rng.lognormal(0, SPREAD, shape))
    wrong &= ~error
    return Streams(work * rng.lognormal(0, SPREAD, shape), new_s, error, (noisy | wrong) & ~error,
                   wrong & truth.critical, control)  # fmt: skip


def judge(streams: Streams, policy: Policy) -> Found:
    """Return what the gates say first, looked at after every pair."""
    n = np.arange(1, streams.old_s.shape[1] + 1)
    judged: Counts = np.cumsum(~streams.error, axis=1)
    states = [
        _typical(streams, n, policy),
        _rate(np.cumsum(streams.error, axis=1), n, policy.margins.errors, policy),
        _rate(np.cumsum(streams.critical, axis=1), judged, policy.margins.critical, policy),
        _outputs(streams, judged, policy),
    ]
    blocked, tail_rejects = _tails(streams, policy)
    passing = np.logical_and.reduce([passed for passed, _, _ in states]) & (n >= policy.min_pairs)
    rejects = np.logical_or.reduce([tail_rejects, *(rejected for _, _, rejected in states)])
    fails = np.logical_or.reduce([failed for _, failed, _ in states]) | blocked | rejects
    first_reject = _first(rejects)
    promoted = _first(passing & ~blocked)
    promoted[(first_reject > 0) & (first_reject <= promoted)] = 0  # a reject is sticky
    return Found(first_reject, _first(fails), promoted)


Standing = tuple[Flags, Flags, Flags]
"""Passed, failed, rejects."""


def _typical(streams: Streams, n: Counts, policy: Policy) -> Standing:
    within = np.cumsum(streams.new_s <= policy.margins.median_ratio * streams.old_s, axis=1)
    decided = rate_evidence(within, n, 0.5, policy.tuned_for.p50, policy.alpha) > math.log(1 / policy.alpha)
    return decided & (within > n / 2), decided & (within <= n / 2), np.zeros_like(decided)


def _rate(events: Counts, n: Counts, margin: float, policy: Policy) -> Standing:
    evidence = rate_evidence(events, n, margin, policy.rate_t_opt(margin), policy.alpha)
    # A rate is tuned by alpha, so the evidence for a reject is another number than that for the interval.
    strict = rate_evidence(events, n, margin, policy.rate_t_opt(margin), policy.reject_alpha)
    above = events > margin * n
    decided = evidence > math.log(1 / policy.alpha)
    return decided & ~above, decided & above, above & (strict > math.log(1 / policy.reject_alpha))


def _outputs(streams: Streams, judged: Counts, policy: Policy) -> Standing:
    pairs = streams.mismatch.shape[1]
    asked = np.arange(pairs) % CONTROL_EVERY == 0
    controls = np.broadcast_to(np.cumsum(asked), streams.mismatch.shape)
    raw: Counts = np.cumsum(streams.mismatch, axis=1)
    noise: Counts = np.cumsum(streams.noise & asked, axis=1)
    margin = policy.margins.outputs
    low, high = _difference(raw, judged, noise, controls, policy, policy.alpha)
    strict, _ = _difference(raw, judged, noise, controls, policy, policy.reject_alpha)
    return high <= margin, low > margin, strict > margin


def _difference(
    raw: Counts, judged: Counts, noise: Counts, controls: Counts, policy: Policy, alpha: float
) -> tuple[Floats, Floats]:
    raw_low, raw_high = _intervals(raw, judged, policy, alpha / 2)
    floor_low, floor_high = _intervals(noise, controls, policy, alpha / 2)
    return raw_low - floor_high, raw_high - floor_low


def _intervals(events: Counts, trials: Counts, policy: Policy, alpha: float) -> tuple[Floats, Floats]:
    """Return both ends for arrays of counts: each pair of counts that occurs is computed once."""
    width = int(trials.max()) + 1
    codes, place = np.unique(events * width + trials, return_inverse=True)
    k, t = np.divmod(codes, width)
    low, high = rate_interval_arrays(k, np.maximum(t, 1), policy.rate_t_opt(policy.margins.outputs), alpha)
    low, high = np.where(t > 0, low, 0.0), np.where(t > 0, high, 1.0)
    return low[place].reshape(events.shape), high[place].reshape(events.shape)


def _tails(streams: Streams, policy: Policy) -> tuple[Flags, Flags]:
    """Return where a tail gate (95th or 99th percentile) fails and where one rejects."""
    pairs = streams.old_s.shape[1]
    levels = [
        [
            _ranks(pairs, p, alpha / 2, t_opt)
            for p, t_opt in ((0.95, policy.tuned_for.p95), (0.99, policy.tuned_for.p99))
        ]
        for alpha in (policy.alpha, policy.reject_alpha)
    ]
    found = np.zeros((2, *streams.old_s.shape), dtype=np.bool_)
    for at, (old_s, new_s) in enumerate(zip(streams.old_s.tolist(), streams.new_s.tolist(), strict=True)):
        old: list[float] = []
        new: list[float] = []
        for t in range(pairs):
            insort(old, old_s[t])
            insort(new, new_s[t])
            for which, level in enumerate(levels):
                ends = [ranks[t] for ranks in level]
                found[which, at, t] = any(
                    new[end[0]] > policy.margins.tail_ratio * old[end[1]] for end in ends if end is not None
                )
    return found[0], found[1]


@cache
def _ranks(pairs: int, p: float, alpha: float, t_opt: float) -> list[tuple[int, int] | None]:
    """Return for each number of pairs the places, from 0, of a quantile's ends; nothing where one is unknown."""
    found: list[tuple[int, int] | None] = []
    for t in range(1, pairs + 1):
        first, last = quantile_ranks(t, p, alpha, t_opt)
        found.append(None if first is None or last is None else (first - 1, last - 1))
    return found


def _first(flags: Flags) -> Counts:
    """Return for each stream the first place, from 1, where it is so; 0 for never."""
    first: Counts = np.where(flags.any(axis=1), flags.argmax(axis=1) + 1, 0)
    return first


def others(streams: Streams) -> Mapping[str, float]:
    """Return the share of the streams in which each of the usual ways ever raises an alarm."""
    pairs = streams.old_s.shape[1]
    old, new = (np.where(np.isfinite(side), side, 30.0) for side in (streams.old_s, streams.new_s))
    alarms = np.zeros(len(old), dtype=np.bool_)
    for end in np.linspace(20, pairs, LOOKS).astype(int):
        alarms |= scipy_stats.mannwhitneyu(new[:, :end], old[:, :end], axis=1, alternative="greater").pvalue < 0.05
    n = np.arange(1, pairs + 1)
    means = [np.cumsum(side, axis=1) / n for side in (old, new)]
    variances = [
        np.maximum(np.cumsum(side**2, axis=1) / n - mean**2, 1e-12)
        for side, mean in zip((old, new), means, strict=True)
    ]
    score = (means[1] - means[0]) / np.sqrt((variances[0] + variances[1]) / n)
    welch = (score[:, 19:] > scipy_stats.norm.ppf(0.95)).any(axis=1)
    raw, noise = np.cumsum(streams.mismatch, axis=1), np.cumsum(streams.noise, axis=1)
    relative = np.abs(raw - noise) / np.maximum(raw + noise, 1) * 100
    diffy = ((raw > noise) & (relative > 20) & ((raw - noise) / n * 100 > 0.03))[:, 99:].any(axis=1)
    return {"Mann-Whitney": float(alarms.mean()), "t-test": float(welch.mean()), "Diffy": float(diffy.mean())}


def truths() -> list[Truth]:
    """Return what is tried, the broken pictures with the class that the kernel gives them."""
    found = [
        Truth("no difference", promotable=True),
        Truth("no difference, no noise either", promotable=True, noise=0.0),
        Truth("latency +10 % (on the margin)", slower=1.10),
        Truth("latency +25 %", slower=1.25),
        Truth("latency +100 %", slower=2.0),
        Truth("errors in 1 % (on the margin)", errors=0.01),
        Truth("errors in 3 %", errors=0.03),
        Truth("errors in 10 %", errors=0.10),
        Truth("1 % missed faces", wrong=0.01, critical=True),
    ]
    for name, share in (("colour swap", 1.0), ("tile damage", 0.10), ("off-by-one orientation", 0.10)):
        critical = class_of_fault(name, pictures.chelsea())  # type: ignore[no-untyped-call]
        found.append(Truth(f"{name} in {100 * share:.0f} %", wrong=share, critical=critical))
    return found


def _row(truth: Truth, found: Found, usual: Mapping[str, float]) -> str:
    said = found.failed[found.failed > 0]
    ours = [f"{100 * float((side > 0).mean()):.1f} %" for side in (found.rejected, found.failed, found.promoted)]
    median = f"{np.median(said):.0f}" if said.size else "-"
    cells = [truth.name, ours[0], ours[1], median, ours[2], *(f"{100 * share:.0f} %" for share in usual.values())]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table; exit 1 where more is falsely rejected or promoted than was promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=1000)
    options = parser.parse_args()
    policy = Policy("route", "cloud", "onprem", min_span_s=0.0)
    print("| truth | rejected | a gate fails | median pairs | promoted | Mann-Whitney | t-test | Diffy |")
    print("|---|---|---|---|---|---|---|---|")
    began, broken = time.monotonic(), False
    for seed, truth in enumerate(truths()):
        streams = draw(truth, options.streams, options.pairs, seed)
        found = judge(streams, policy)
        usual = others(streams)
        rejected, promoted = (float((side > 0).mean()) for side in (found.rejected, found.promoted))
        broken |= rejected > policy.alpha if truth.promotable else promoted > policy.alpha
        print(_row(truth, found, usual), flush=True)
    took_s = time.monotonic() - began
    print(f"\n{options.streams} streams of {options.pairs} pairs each, alpha {policy.alpha:g}, {took_s:.0f} s")
    raise SystemExit(int(broken))


if __name__ == "__main__":
    main()
