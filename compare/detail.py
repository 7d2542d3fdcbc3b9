"""What stands behind a verdict, in words and rows: waits by size and hour, the funnel.

Pure. Percentiles are of raw values (to four digits), never of percentiles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from compare.coverage import DELIBERATE, Coverage
from compare.gates import GateResult, State
from compare.latency import span, times, typical_words
from compare.policy import Policy
from compare.stats import Histogram, Percentile, first_finite_trials
from compare.tally import SIZES, Sides, Tally
from compare.verdict import Verdict

_HOURS_SHOWN = 24
_PACE_WORDS = {
    "ttft_s": "time to first token",
    "tpot_s": "time per token (or chunk)",
    "itl_p99_s": "gap between tokens, 99th percentile of a stream",
    "longest_stall_s": "longest stall of a stream",
}


@dataclass(frozen=True, slots=True)
class WaitRow:
    """Waits of both sides under one name, in seconds."""

    name: str
    baseline_p50: Percentile
    baseline_p95: Percentile
    candidate_p50: Percentile
    candidate_p95: Percentile


@dataclass(frozen=True, slots=True)
class WaitTable:
    """Rows that belong together. ``n`` of a row may differ by side where only one says it (``Server-Timing``)."""

    title: str
    rows: tuple[WaitRow, ...]


def wait_tables(data: Tally) -> tuple[WaitTable, ...]:
    """Return the tables of waits that have a row: by payload, by hour (UTC), of the answer's parts, of streams."""
    sizes = [name for _, name in SIZES]
    by_size = sorted(data.sizes.items(), key=lambda item: sizes.index(item[0]) if item[0] in sizes else len(sizes))
    parts = {"first byte": data.first_bytes, "queue (the backend says)": data.queues,
             "inference (the backend says)": data.inferences}  # fmt: skip
    paces = {words: data.paces[name] for name, words in _PACE_WORDS.items() if name in data.paces}
    hours = sorted(data.hours.items())[-_HOURS_SHOWN:]
    tables = (
        WaitTable("by size of the request", tuple(_rows(dict(by_size)))),
        WaitTable("by hour", tuple(_rows(dict(hours)))),
        WaitTable("parts of the answer", tuple(_rows(parts))),
        WaitTable("event streams", tuple(_rows(paces))),
    )
    return tuple(table for table in tables if table.rows)


def _rows(found: Mapping[str, Sides]) -> Iterator[WaitRow]:
    for name, sides in found.items():
        if sides.baseline.total or sides.candidate.total:
            old, new = (_points(side) for side in (sides.baseline, sides.candidate))
            yield WaitRow(name, *old, *new)


def _points(side: Histogram) -> tuple[Percentile, Percentile]:
    return side.percentile(0.5), side.percentile(0.95)


def plain_words(verdict: Verdict, policy: Policy) -> str:
    """Return the latency in one sentence: 'onprem is 1.8 to 2.1 times faster at the median; 95th percentile not yet
    known, 62 more pairs'."""
    return f"{policy.candidate} is {typical_words(verdict.latency)}; {_tail(verdict.gate('G3-p95'), policy)}"


def _tail(gate: GateResult, policy: Policy) -> str:
    if gate.state is State.NODATA:
        return "nothing is known of the 95th percentile"
    if gate.low and gate.high and gate.low > 0.95 and gate.high < 1.05:
        return "about as fast at the 95th percentile"
    if gate.low and gate.high:
        if gate.high < 1 or gate.low > 1:
            ends = (gate.low, gate.high) if gate.low > 1 else (1 / gate.high, 1 / gate.low)
            word = "slower" if gate.low > 1 else "faster"
            return f"{span(*ends)} times {word} at the 95th percentile"
        return f"{gate.low:.2f} to {gate.high:.2f} times as long at the 95th percentile"
    known = first_finite_trials(0.95, policy.alpha / 2, policy.tuned_for.p95)
    more = f", {known - gate.n:,} more pairs" if known is not None and known > gate.n else ""
    so_far = f" ({times(gate.estimate)} so far)" if gate.estimate and not more else ""
    return f"95th percentile not yet known{so_far}{more}"


def coverage_steps(coverage: Coverage, judged: int) -> tuple[tuple[str, int], ...]:
    """Return how many requests came how far, each step a part of the one before."""
    steps = [("recorded", coverage.recorded), ("compared", coverage.compared), ("outputs judged", judged)]
    if coverage.received is not None:
        asked = coverage.received - sum(n for name, n in coverage.skipped.items() if name in DELIBERATE)
        steps = [("received", coverage.received), ("to be mirrored", asked), *steps]
    return tuple(steps)


def idle_rules(data: Tally) -> tuple[str, ...]:
    """Return the JSON rules whose path was in no document at all that was compared."""
    return tuple(path for path, n in sorted(data.unmatched.items()) if n == data.walked)
