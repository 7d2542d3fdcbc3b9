"""One epoch in numbers, one measurement after the other: what the statistics need, in memory that does not grow.

Pure. A tally is a fold: the same measurements in the same order give the same tally, whether they come at once or one
a day with the state kept in between (``state``). Flags that depend on a margin or an objective are counted when a
measurement comes, so a tally belongs to one policy.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from compare.measurement import UNMATCHED, Judgement, Leg, Measurement, OutputClass
from compare.policy import Policy
from compare.stats import Histogram, RunningMean
from compare.timeline import Blocks, Stretches

Floats = NDArray[np.float64]
_SHORTEST_S = 1e-9
MOST_HOURS = 24 * 14
MOST_NAMES = 500
"""Of paths, codes and kinds of failure: beyond it new ones are counted together."""
OTHER = "(others)"
SIZES = ((10_000, "up to 10 KB"), (100_000, "10 to 100 KB"), (1_000_000, "100 KB to 1 MB"), (10_000_000, "1 to 10 MB"))
_LARGEST = "over 10 MB"
PACES = ("ttft_s", "tpot_s", "itl_p99_s", "longest_stall_s")


@dataclass(slots=True)
class Seen:
    """How many pairs and control calls show something, with the first pair's words and id."""

    pairs: int = 0
    noise: int = 0
    example: str = ""
    exchange_id: str = ""


@dataclass(slots=True)
class Sides:
    """Waits of both sides in seconds, infinite for a failed leg."""

    baseline: Histogram = field(default_factory=Histogram)
    candidate: Histogram = field(default_factory=Histogram)

    def add(self, baseline_s: float, candidate_s: float) -> None:
        """Take up a pair."""
        self.baseline.add(baseline_s)
        self.candidate.add(candidate_s)


@dataclass(slots=True)
class Tally:
    """The counts of one epoch.

    ``pairs`` are all that are evidence of anything; those that both sides refused are in ``refused`` (by the statuses,
    in words) and nowhere else. ``timed`` holds the waits that are evidence, ``ratios`` the paired ones of them with an
    answer on at least one side, ``within`` of them inside the allowed median ratio; ``unanswered`` pairs of them have
    none. ``judged`` pairs had their outputs compared.
    """

    rows: int = 0
    pairs: int = 0
    answered: int = 0
    judged: int = 0
    mismatch: int = 0
    critical: int = 0
    controls: int = 0
    noise: int = 0
    candidate_alone_failed: int = 0
    both_failed: int = 0
    failed: int = 0
    same_bytes: int = 0
    suppressed: int = 0
    tagged: int = 0
    within: int = 0
    unanswered: int = 0
    slo_misses: int = 0
    first_at_s: float | None = None
    last_at_s: float | None = None
    classes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    timed: Sides = field(default_factory=Sides)
    ratios: Histogram = field(default_factory=Histogram)
    mean: RunningMean = field(default_factory=RunningMean)
    mean_total: float = 0.0
    diagnoses: dict[str, Seen] = field(default_factory=dict)
    failures: dict[str, Seen] = field(default_factory=dict)
    paths: dict[str, Seen] = field(default_factory=dict)
    walked: int = 0
    control_pairs: int = 0
    unmatched: Counter[str] = field(default_factory=Counter)
    blocks: Blocks = field(default_factory=Blocks)
    stretches: Stretches = field(default_factory=Stretches)
    hours: dict[str, Sides] = field(default_factory=dict)
    sizes: dict[str, Sides] = field(default_factory=dict)
    first_bytes: Sides = field(default_factory=Sides)
    queues: Sides = field(default_factory=Sides)
    inferences: Sides = field(default_factory=Sides)
    paces: dict[str, Sides] = field(default_factory=dict)

    @property
    def first_at(self) -> datetime | None:
        """When the earliest pair was received."""
        return None if self.first_at_s is None else datetime.fromtimestamp(self.first_at_s, UTC)

    @property
    def last_at(self) -> datetime | None:
        """When the latest pair was received."""
        return None if self.last_at_s is None else datetime.fromtimestamp(self.last_at_s, UTC)

    @property
    def span_s(self) -> float:
        """Seconds between the earliest and the latest pair."""
        return 0.0 if self.first_at_s is None or self.last_at_s is None else self.last_at_s - self.first_at_s

    @property
    def both_refused(self) -> int:
        """How many pairs both sides refused."""
        return self.refused.total()

    @property
    def outputs(self) -> Mapping[OutputClass, int]:
        """How many pairs there are of each output class."""
        return {OutputClass(name): n for name, n in self.classes.items()}

    def add(self, m: Measurement, policy: Policy) -> None:
        """Take up the next measurement of the epoch."""
        self.rows += 1
        self.stretches.add(m)
        if m.baseline is None or m.candidate is None:
            return
        if m.candidate.failure and not m.baseline.failure:
            _see(self.failures, m.candidate.failure, "", m.exchange_id)
        if m.both_refused:
            self.refused[" / ".join(dict.fromkeys((str(m.baseline.status), str(m.candidate.status))))] += 1
            return
        self._add_pair(m, m.baseline, m.candidate, policy)
        self._add_outputs(m)

    def _add_pair(self, m: Measurement, baseline: Leg, candidate: Leg, policy: Policy) -> None:
        at, old, new = m.received_at.timestamp(), baseline.wait_s, candidate.wait_s
        self.pairs += 1
        self.first_at_s = at if self.first_at_s is None else min(self.first_at_s, at)
        self.last_at_s = at if self.last_at_s is None else max(self.last_at_s, at)
        self.answered += m.both_answered
        self.same_bytes += m.same_bytes
        alone, neither = math.isinf(new) and not math.isinf(old), math.isinf(new) and math.isinf(old)
        self.candidate_alone_failed += alone
        self.both_failed += neither
        output = m.judgement.output_class
        self.failed += output is None and m.not_comparable is None
        judged, mismatch = output is not None, output is not None and output.mismatch
        counts = {"pairs": 1, "G5": int(alone), "judged": int(judged), "G6": int(mismatch),
                  "G7": int(judged and m.judgement.critical is not None)}  # fmt: skip
        if m.timed:
            counts |= self._add_waits(m, old, new, policy)
        self.blocks.add(at, {name: n for name, n in counts.items() if n})
        self._add_detail(m, baseline, candidate)

    def _add_waits(self, m: Measurement, old: float, new: float, policy: Policy) -> dict[str, int]:
        """Take up the waits of a pair; return what the blocks count of them."""
        self.timed.add(old, new)
        self.mean.add(((min(new, policy.deadline_s) - min(old, policy.deadline_s)) / policy.deadline_s + 1) / 2,
                      policy.alpha)  # fmt: skip
        self.mean_total += (min(new, policy.deadline_s) - min(old, policy.deadline_s)) / policy.deadline_s
        missed = policy.latency_slo_s is not None and new > policy.latency_slo_s
        self.slo_misses += missed
        hour = m.received_at.astimezone(UTC).strftime("%Y-%m-%d %H:00 UTC")
        self.hours.setdefault(hour, Sides()).add(old, new)
        if len(self.hours) > MOST_HOURS:
            del self.hours[min(self.hours)]
        size = next((name for most, name in SIZES if m.request_bytes <= most), _LARGEST)
        self.sizes.setdefault(size, Sides()).add(old, new)
        found = {"timed": 1, "G2": int(missed)}
        if math.isinf(old) and math.isinf(new):
            self.unanswered += 1
            return found
        one, other = max(old, _SHORTEST_S), max(new, _SHORTEST_S)
        ratio = 0.0 if math.isinf(one) else other / one
        inside = math.log(ratio) <= math.log(policy.margins.median_ratio) if ratio > 0 else True
        self.ratios.add(ratio)
        self.within += inside
        return {**found, "answered": 1, "G1": int(not inside)}

    def _add_detail(self, m: Measurement, baseline: Leg, candidate: Leg) -> None:
        if baseline.first_byte_s is not None and candidate.first_byte_s is not None:
            self.first_bytes.add(baseline.first_byte_s, candidate.first_byte_s)
        for sides, name in ((self.queues, "queue_s"), (self.inferences, "inference_s")):
            for histogram, leg in ((sides.baseline, baseline), (sides.candidate, candidate)):
                if (value := getattr(leg, name)) is not None:
                    histogram.add(value)
        for name in PACES:
            pair = [m.judgement.numbers.get(f"{role}_{name}") for role in ("baseline", "candidate")]
            old, new = (value if isinstance(value, int | float) else None for value in pair)
            if old is not None and new is not None:
                self.paces.setdefault(name, Sides()).add(float(old), float(new))

    def _add_outputs(self, m: Measurement) -> None:
        if m.control_class is not None:
            self.controls += 1
            self.noise += m.control_class.mismatch
        output = m.judgement.output_class
        if output is None:
            return
        self.judged += 1
        self.mismatch += output.mismatch
        self.critical += m.judgement.critical is not None
        self.classes[output.value] += 1
        self.tagged += (m.request_orientation or 1) > 1
        self.suppressed += _count(m.judgement, "suppressed")
        self.control_pairs += m.control_class is not None
        if output.mismatch:
            for diagnosis in {d.code: d for d in reversed(m.judgement.diagnoses)}.values():
                _see(self.diagnoses, diagnosis.code, diagnosis.sentence, m.exchange_id)
        for code in {d.code for d in m.control_diagnoses}:
            _see(self.diagnoses, code, "", "", noise=True)
        for path in m.judgement.paths:
            _see(self.paths, path, "", m.exchange_id)
        if m.control_class is not None:
            for path in m.control_paths:
                _see(self.paths, path, "", "", noise=True)
        if "differences" in m.judgement.numbers:
            self.walked += 1
            unmatched = m.judgement.numbers.get(UNMATCHED)
            self.unmatched.update(unmatched.split(", ") if isinstance(unmatched, str) else ())


def _count(judgement: Judgement, name: str) -> int:
    value = judgement.numbers.get(name, 0)
    return value if isinstance(value, int) else 0


def _see(seen: dict[str, Seen], name: str, example: str, exchange_id: str, *, noise: bool = False) -> None:
    if name not in seen and len(seen) >= MOST_NAMES:
        name = OTHER
    one = seen.setdefault(name, Seen())
    if noise:
        one.noise += 1
        return
    one.pairs += 1
    if one.pairs == 1:
        one.example, one.exchange_id = example, exchange_id
