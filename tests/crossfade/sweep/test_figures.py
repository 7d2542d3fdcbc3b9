"""Outcomes become numbers: every request counts somewhere, and a slow one is not hidden."""

from __future__ import annotations

import pytest

from crossfade.sweep.figures import capacity, cell
from crossfade.sweep.load import Outcome, Result
from tests.crossfade.sweep.measured import usage


def ok(due_s: float, latency_s: float) -> Outcome:
    return Outcome(due_s, due_s, due_s + latency_s, Result.OK)


def test_every_request_counts_once_and_a_timeout_counts_with_its_time() -> None:
    outcomes = [
        ok(0, 1),
        ok(1, 3),
        Outcome(2, 2, 12, Result.TIMEOUT),
        Outcome(3, 3, 3.1, Result.REFUSED),
        Outcome(4, 4.5, 4.6, Result.FAILED),
    ]
    row = cell("restore", 2, 1, outcomes, 5, usage())
    assert (row.sent, row.ok, row.timeouts, row.refused, row.failed) == (5, 2, 1, 1, 1)
    assert row.success == 0.4
    assert row.mean_s == pytest.approx((1 + 3 + 10) / 3)
    assert row.p50_s == 3
    assert row.throughput == 2 / 5
    assert row.lag_p95_s == pytest.approx(0.4)


def test_throughput_counts_the_time_that_late_answers_took() -> None:
    assert cell("restore", 1, 1, [ok(0, 1), ok(4, 6)], 5, usage()).throughput == 2 / 10


def test_refusals_alone_have_no_latency() -> None:
    row = cell("restore", 1, 1, [Outcome(0, 0, 0.01, Result.REFUSED)], 5, usage())
    assert (row.mean_s, row.p50_s, row.p95_s, row.throughput) == (None, None, None, 0)


@pytest.mark.parametrize("latency_s", [0.1, 0.7, 4.0, 12.0])
def test_capacity_is_callers_over_latency_also_for_requests_longer_than_a_slice(latency_s: float) -> None:
    """Little's law: 4 callers that are always waiting are answered 4 / latency times a second."""
    count = int(10 / latency_s) + 1
    outcomes = [ok(number * latency_s, latency_s) for number in range(count) for _ in range(4)]
    found = capacity(2, outcomes, 10, usage())
    assert found.per_second == pytest.approx(4 / latency_s)
    assert found.slices == pytest.approx([4 / latency_s] * 5)


def test_only_good_answers_make_capacity() -> None:
    outcomes = [Outcome(at, at, at + 1, Result.REFUSED) for at in range(10)]
    assert capacity(2, outcomes, 10, usage()).per_second == 0
