"""The folded state: the same whether it comes at once or in parts, kept, restarted, by two at once; and bounded."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.gates import all_gates
from compare.measurement import Diagnosis, Judgement, Measurement, NotComparable, OutputClass
from compare.policy import measurement_key
from compare.results import Results
from compare.state import RouteState, fold, state_from_bytes, state_key
from compare.states import States
from compare.stats import Histogram, RunningMean, mean_interval, percentile, quantile_interval
from compare.stats.histogram import code_of, value_of
from compare.timeline import MOST_BLOCKS, MOST_STRETCHES, Blocks
from shadow.store.reader import Reader
from tests.compare.examples import measured, policy

POLICY = policy(latency_slo_s=0.5)
WAITS = st.floats(0.001, 40)
FAILURES = st.sampled_from([None, None, None, "timeout", "status 500"])


@st.composite
def record(draw: st.DrawFn, most: int = 60) -> list[Measurement]:
    """Draw measurements in the order of the record."""
    found = []
    for n in range(draw(st.integers(0, most))):
        codes = draw(st.lists(st.sampled_from(["scores", "size", "text"]), max_size=2))
        made = measured(
            n,
            draw(st.none() | st.sampled_from(OutputClass)),
            codes=codes,
            control=draw(st.none() | st.sampled_from(OutputClass)),
            baseline_s=draw(WAITS),
            candidate_s=draw(WAITS),
            baseline_failure=draw(FAILURES),
            failure=draw(FAILURES),
            orientation=draw(st.none() | st.integers(1, 8)),
            build=draw(st.sampled_from(["a", "a", "a", "b", None])),
            every_s=draw(st.sampled_from([1.0, 700.0])),
        )
        if draw(st.integers(0, 9)) == 0:
            made = replace(made, judgement=Judgement(None), not_comparable=NotComparable.CLIENT_LEFT)
        if draw(st.integers(0, 9)) == 0:
            made = replace(made, control_diagnoses=(Diagnosis("size", "noise"),), request_bytes=5_000_000)
        found.append(made)
    return found


@settings(max_examples=15, deadline=None)
@given(record(), st.lists(st.integers(0, 60), max_size=5))
def test_a_state_kept_between_any_parts_is_the_state_of_the_whole(pairs: list[Measurement], cuts: list[int]) -> None:
    whole = fold(pairs, POLICY)
    state = RouteState()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(pairs)], strict=True):
        state = state_from_bytes(fold(pairs[start:end], POLICY, state).to_bytes())
    assert state.to_bytes() == whole.to_bytes()
    assert all_gates(state.tally, POLICY) == all_gates(whole.tally, POLICY)


@settings(max_examples=30, deadline=None)
@given(record())
def test_the_fold_counts_what_the_measurements_say(pairs: list[Measurement]) -> None:
    data = fold([replace(m, candidate=m.candidate and replace(m.candidate, build="a")) for m in pairs], POLICY).tally
    sides = [(m.baseline, m.candidate) for m in pairs]
    waits = [(b.wait_s, c.wait_s) for (b, c), m in zip(sides, pairs, strict=True) if b and c and m.timed]
    for histogram, side in ((data.timed.baseline, 0), (data.timed.candidate, 1)):
        exact = sorted(pair[side] for pair in waits)
        for p in (0.5, 0.95, 0.99):
            told, known = histogram.percentile(p).value, percentile(exact, p).value
            assert told == pytest.approx(known, rel=6e-4) if told is not None else known is None or math.isinf(known)
        low, high = quantile_interval(np.array(exact), 0.5, 0.05, 200)
        told_low, told_high = histogram.interval(0.5, 0.05, 200)
        assert told_high == pytest.approx(high, rel=6e-4)
        assert told_low == pytest.approx(max(0.0, low), rel=6e-4)
    cut = np.array([(min(c, 30.0) - min(b, 30.0)) / 30.0 for b, c in waits])
    assert data.mean.interval(0.05) == pytest.approx(mean_interval((cut + 1) / 2, 0.05), abs=1e-9)
    assert data.slo_misses == sum(c > 0.5 for _, c in waits)
    assert data.mismatch == sum(bool(m.judgement.output_class and m.judgement.output_class.mismatch) for m in pairs)
    assert data.candidate_alone_failed == sum(bool(b and c and c.failure and not b.failure) for b, c in sides)
    assert data.ratios.total + data.unanswered == len(waits)


@given(st.floats(1e-9, 1e12), st.floats(1e-9, 1e12))
def test_four_digits_keep_the_order_and_the_value(a: float, b: float) -> None:
    assert value_of(code_of(a)) == pytest.approx(a, rel=5.1e-4)
    assert (code_of(a) <= code_of(b)) == (code_of(a) == code_of(b) or a < b)
    assert code_of(math.inf) > code_of(a) > code_of(0.0)
    assert value_of(code_of(0.3)) == 0.3


@given(st.lists(st.floats(0, 1), max_size=80), st.floats(0.001, 0.4))
def test_a_running_mean_has_the_interval_of_all_its_values(values: list[float], alpha: float) -> None:
    running = RunningMean()
    for value in values:
        running.add(value, alpha)
    assert running.interval(alpha) == pytest.approx(mean_interval(np.array(values), alpha), abs=1e-9)


def test_a_histogram_of_nothing_and_of_failures_alone() -> None:
    assert Histogram().percentile(0.5).value is None
    assert Histogram().interval(0.5, 0.05, 200) == (0.0, math.inf)
    assert Histogram.of([math.inf] * 50).percentile(0.5).value is None
    with pytest.raises(IndexError):
        Histogram().at_rank(1)


def test_a_state_does_not_grow_with_what_it_has_seen() -> None:
    rng = np.random.default_rng(1)
    waits = np.tile(rng.lognormal(-1, 0.5, (500, 2)), (12, 1)).tolist()
    pairs = [measured(n, baseline_s=b, candidate_s=c) for n, (b, c) in enumerate(waits)]
    state = fold(pairs[:3000], POLICY)
    half = len(state.to_bytes())
    fold(pairs[3000:], POLICY, state)
    assert len(state.tally.stretches.parts) <= MOST_STRETCHES
    assert sum(part.rows for part in state.tally.stretches.parts) == 6000
    assert len(state.to_bytes()) < 1.5 * half < 100_000


def test_blocks_of_time_double_their_length_when_there_are_too_many() -> None:
    blocks = Blocks()
    for minute in range(MOST_BLOCKS + 10):
        blocks.add(60.0 * minute, {"pairs": 1, "G5": minute % 2})
    assert blocks.length_s == 120
    assert sum(row["pairs"] for row in blocks.rows.values()) == MOST_BLOCKS + 10
    assert set(blocks.shares("G5", "pairs")) == {0.5}


def opened(folder: Path) -> tuple[Reader, Results, States]:
    reader = Reader.open(f"sqlite:///{folder / 'record.db'}", folder / "bodies")
    results = Results(reader.engine)
    return reader, results, States(reader.engine, results)


def test_a_saved_state_goes_on_from_where_it_was_and_reads_only_what_is_new(tmp_path: Path) -> None:
    reader, results, states = opened(tmp_path)
    pairs = [measured(n) for n in range(2500)]
    results.add(measurement_key(POLICY), pairs[:2000])
    first = states.advance(POLICY)
    assert (first.recorded, first.sequence) == (2000, 2000)
    results.add(measurement_key(POLICY), pairs[2000:])
    again = states.advance(POLICY)
    assert again.to_bytes() == fold(pairs, POLICY).to_bytes()
    assert states.advance(POLICY, again) is again
    asked = counting(results)
    states.advance(POLICY)
    assert asked == [(2500, 0)]
    reader.close()


def counting(results: Results) -> list[tuple[int, int]]:
    """Note from which sequence on measurements are read, and how many there were."""
    asked: list[tuple[int, int]] = []
    real = results.measurements

    def noting(route: str, key: str, **bounds: Any) -> list[Measurement]:
        found = real(route, key, **bounds)
        asked.append((bounds["after_sequence"], len(found)))
        return found

    results.measurements = noting  # type: ignore[method-assign,assignment]
    return asked


def test_another_margin_folds_anew_and_a_neighbour_does_not(tmp_path: Path) -> None:
    reader, results, states = opened(tmp_path)
    results.add(measurement_key(POLICY), [measured(n, candidate_s=0.32) for n in range(50)])
    assert states.advance(POLICY).tally.within == 50
    strict = replace(POLICY, margins=replace(POLICY.margins, median_ratio=1.01))
    assert states.advance(strict).tally.within == 0
    assert state_key(replace(POLICY, routes=9)) == state_key(POLICY)
    reader.close()


def test_many_at_once_do_not_count_twice(tmp_path: Path) -> None:
    reader, results, _ = opened(tmp_path)
    pairs = [measured(n) for n in range(3000)]
    results.add(measurement_key(POLICY), pairs)
    found: list[RouteState] = []

    def advance() -> None:
        mine, _, states = opened(tmp_path)
        found.append(states.advance(POLICY))
        mine.close()

    threads = [threading.Thread(target=advance) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whole = fold(pairs, POLICY).to_bytes()
    assert [state.to_bytes() for state in found] == [whole] * 4
    reader.close()


def test_hours_are_those_of_utc_and_add_up() -> None:
    pairs = [measured(n, every_s=1200.0) for n in range(9)]
    hours = fold(pairs, POLICY).tally.hours
    assert {name: sides.baseline.total for name, sides in hours.items()} == {
        "2026-05-04 12:00 UTC": 3, "2026-05-04 13:00 UTC": 3, "2026-05-04 14:00 UTC": 3,
    }  # fmt: skip
