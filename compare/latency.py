"""Latency of both sides in words and numbers. Quantiles of raw values; a ratio of pairs is not a ratio of quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compare.gates import GateResult
from compare.phrases import Phrase, say
from compare.stats import Percentile
from compare.tally import Tally

_ALIKE = (0.95, 1.05)
"""Between these a ratio reads as 1."""


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Seconds per side (``None`` where that percentile is a failure), and the paired ratio at the median."""

    baseline_p50: Percentile
    baseline_p95: Percentile
    baseline_p99: Percentile
    candidate_p50: Percentile
    candidate_p95: Percentile
    candidate_p99: Percentile
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None


def summarise_latency(data: Tally, gates: Sequence[GateResult]) -> LatencySummary:
    """Return the latencies of an epoch; the ratio comes from G1."""
    typical = next(gate for gate in gates if gate.id == "G1")
    old, new = ([side.percentile(p) for p in (0.5, 0.95, 0.99)] for side in (data.timed.baseline, data.timed.candidate))
    return LatencySummary(
        old[0], old[1], old[2], new[0], new[1], new[2], typical.estimate, typical.low, typical.high
    )  # fmt: skip


def times(ratio: float) -> Phrase:
    """Return 'N times slower' or 'N times faster', 'about as fast' where N would read as 1."""
    if _ALIKE[0] < ratio < _ALIKE[1]:
        return say("about as fast")
    if ratio > 1:
        return say("{n} times slower", n=_figure(ratio))
    return say("{n} times faster", n=_figure(1 / max(ratio, 1e-9)))


def _figure(number: float) -> Phrase:
    """Return a number with two digits that count, written out."""
    rounded = float(f"{number:.2g}")
    return say("{n:,.0f}", n=rounded) if rounded >= 10 else say("{n:.2g}", n=rounded)


def typical_words(latency: LatencySummary) -> Phrase:
    """Return the median in words: '1.8 to 2.0 times faster at the median'."""
    low, high = latency.ratio_low, latency.ratio_high
    if latency.ratio is None:
        return say("not yet known")
    if low is None or high is None or low <= 0:
        return say("{speed} at the median so far", speed=times(latency.ratio))
    if low > _ALIKE[0] and high < _ALIKE[1]:
        return say("{speed} at the median", speed=times(1.0))
    if high < 1:
        return say("{span} times faster at the median", span=span(1 / high, 1 / low))
    if low > 1:
        return say("{span} times slower at the median", span=span(low, high))
    return say("{low:.2f} to {high:.2f} times as long at the median", low=low, high=high)


def span(low: float, high: float) -> Phrase:
    """Return two numbers as a range, as one where they read alike."""
    ends = _figure(low), _figure(high)
    return ends[0] if ends[0] == ends[1] else say("{low} to {high}", low=ends[0], high=ends[1])


def tail_words(latency: LatencySummary) -> Phrase | None:
    """Return the 95th percentiles in words, ``None`` where they are not known or rest on too few pairs."""
    sides = (latency.baseline_p95, latency.candidate_p95)
    old, new = (side.value if side.reliable else None for side in sides)
    return say("{speed} at the 95th percentile", speed=times(new / old)) if old and new else None
