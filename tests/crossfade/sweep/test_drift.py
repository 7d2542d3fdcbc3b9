"""Drift of a soak on made-up latencies: found where it is, not claimed where it is not known."""

from __future__ import annotations

import random

import pytest

from crossfade.sweep.drift import Drift, judge_soak, welch
from crossfade.sweep.load import Outcome, Result


def outcomes(count: int, *, growth: float = 0.0, noise: float = 0.2, seed: int = 1) -> list[Outcome]:
    """Latencies around 0.1 s that grow by the share ``growth`` from the first to the last."""
    draw = random.Random(seed)
    found = []
    for index in range(count):
        latency = 0.1 * (1 + growth * index / count) * (1 + draw.uniform(-noise, noise))
        found.append(Outcome(index / 10, index / 10, index / 10 + latency, Result.OK))
    return found


def flat_memory(seconds: int) -> list[tuple[float, int]]:
    return [(float(at), 500_000_000) for at in range(seconds)]


def test_steady_latencies_are_drift_free() -> None:
    result = judge_soak("restore", 2, 10, outcomes(5000), flat_memory(500))
    assert result.mean is not None
    assert result.p95 is not None
    assert (result.mean.drift, result.p95.drift) == (Drift.FREE, Drift.FREE)
    assert (result.mean.difference.low or 0) < 0 < (result.mean.difference.high or 0)


@pytest.mark.parametrize("growth", [0.5, -0.4])
def test_latencies_that_grow_or_shrink_drift(growth: float) -> None:
    result = judge_soak("restore", 2, 10, outcomes(5000, growth=growth), flat_memory(500))
    assert result.mean is not None
    assert result.mean.drift is Drift.DRIFTS


def test_too_much_noise_settles_nothing() -> None:
    draw = random.Random(2)
    rough = [Outcome(i / 10, i / 10, i / 10 + draw.expovariate(10) ** 3, Result.OK) for i in range(400)]
    result = judge_soak("restore", 2, 10, rough, [])
    assert result.mean is not None
    assert result.mean.drift is Drift.OPEN


def test_few_requests_and_no_memory_say_nothing() -> None:
    result = judge_soak("restore", 2, 10, outcomes(100), [])
    assert (result.mean, result.p95, result.memory_slope, result.memory_first) == (None, None, None, None)
    assert (result.sent, result.ok) == (100, 100)


def test_requests_are_ordered_by_when_they_were_due_and_refusals_have_no_latency() -> None:
    shuffled = outcomes(1000, growth=0.5)
    refused = [Outcome(at, at, at, Result.REFUSED) for at in range(50)]
    random.Random(1).shuffle(shuffled)
    expected = judge_soak("restore", 2, 10, outcomes(1000, growth=0.5), [])
    found = judge_soak("restore", 2, 10, shuffled + refused, [])
    assert found.mean == expected.mean
    assert (found.sent, found.ok) == (1050, 1000)


def test_a_leak_is_the_slope_after_settling() -> None:
    """2 kB a request at 10/s for 500 s; the first tenth grows faster and is left out."""
    memory = [(float(at), 10**8 + 20_000 * at + (min(at, 50) * 10**6)) for at in range(500)]
    result = judge_soak("restore", 2, 10, outcomes(5000), memory)
    assert result.memory_slope is not None
    assert result.memory_slope.value == pytest.approx(2e6, rel=1e-6)
    assert result.memory_first == 10**8 + 20_000 * 50 + 50 * 10**6


def test_the_difference_of_means_has_welchs_interval() -> None:
    """First 1, 2, 3 and last 2, 4, 6: difference 2, variances 1 / 3 and 4 / 3, 2.941 degrees of freedom."""
    difference = welch([1, 2, 3], [2, 4, 6])
    assert difference.value == pytest.approx(2)
    assert difference.high == pytest.approx(2 + 3.2233 * (5 / 3) ** 0.5, rel=1e-3)
    assert welch([1, 1], [3, 3]).low == 2
