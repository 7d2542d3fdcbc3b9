"""Looking after every pair must cost nothing. All runs are seeded; what is random in the world is fixed here."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from compare.stats import quantile_evidence

ALPHA, RUNS, PAIRS = 0.05, 1000, 2000
Floats = NDArray[np.float64]
N = np.arange(1, PAIRS + 1)
THRESHOLD = math.log(1 / ALPHA)


def ever_significant_by_t_test(a: Floats, b: Floats, first_look: int) -> float:
    """Return the share of runs in which Welch's t-test is below 5 % at any look."""
    mean_a, mean_b = np.cumsum(a, 1) / N, np.cumsum(b, 1) / N
    spread = np.cumsum(a**2, 1) / N - mean_a**2 + np.cumsum(b**2, 1) / N - mean_b**2
    looks = slice(first_look - 1, None)
    t = (mean_a - mean_b)[:, looks] / np.sqrt(spread[:, looks] / (N[looks] - 1))
    return float((np.abs(t) > stats.t.ppf(1 - ALPHA / 2, 2 * N[looks] - 2)).any(1).mean())


def median_evidence(log_ratios: Floats, margin: float) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the running log evidence and whether it speaks for a median at or below the margin."""
    within = np.cumsum(log_ratios <= margin, axis=1)
    return quantile_evidence(within, N, 0.5, ALPHA), within > N / 2


def test_c18_peeking_raises_a_false_alarm_with_a_t_test_and_not_with_an_e_value() -> None:
    rng = np.random.default_rng(18)
    a, b = rng.lognormal(0, 0.5, (RUNS, PAIRS)), rng.lognormal(0, 0.5, (RUNS, PAIRS))
    evidence, _ = median_evidence(np.log(a / b), 0.0)
    assert 0.42 <= ever_significant_by_t_test(a, b, first_look=20) <= 0.52
    assert 0.015 <= float((evidence > THRESHOLD).any(1).mean()) <= 0.05


def test_c18_thirty_looks_at_a_thousand_equal_runs_reject_no_more_than_stated() -> None:
    rng = np.random.default_rng(30)
    ratios = rng.normal(0, 0.5, (1000, PAIRS)) - rng.normal(0, 0.5, (1000, PAIRS))
    evidence, better = median_evidence(ratios, math.log(1.10))
    looks = np.linspace(20, PAIRS, 30).astype(int) - 1
    slower = (evidence[:, looks] > THRESHOLD) & ~better[:, looks]
    assert float(slower.any(1).mean()) <= ALPHA


def test_equal_latencies_pass_after_about_as_many_pairs_as_stated() -> None:
    rng = np.random.default_rng(321)
    for sd, expected, tolerance in ((0.5, 321, 25), (0.2, 63, 3)):
        evidence, better = median_evidence(rng.normal(0, sd, (RUNS, PAIRS)), math.log(1.10))
        passed = (evidence > THRESHOLD) & better
        stopping = np.where(passed.any(1), passed.argmax(1) + 1, PAIRS)
        assert abs(float(np.median(stopping)) - expected) <= tolerance


def test_a_true_ratio_on_the_margin_passes_falsely_in_less_than_five_percent() -> None:
    rng = np.random.default_rng(110)
    for sd in (0.5, 0.2):
        evidence, better = median_evidence(rng.normal(math.log(1.10), sd, (RUNS, PAIRS)), math.log(1.10))
        assert float(((evidence > THRESHOLD) & better).any(1).mean()) < ALPHA
