"""The published numbers that the statistics must reproduce."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.stats import (
    e_benjamini_hochberg,
    ecdf_band,
    first_finite_trials,
    mean_interval,
    quantile_evidence,
    quantile_interval,
    rate_evidence,
    rate_interval,
    sign_e_value,
    trials_to_settle,
)
from compare.stats.mixture import (
    best_rho,
    beta_binomial_bound,
    beta_binomial_log_mixture,
    normal_bound,
    normal_log_mixture,
)

ALPHA = 0.05


def test_normal_mixture_matches_the_published_values() -> None:
    assert best_rho(100, ALPHA) == pytest.approx(12.60056, abs=1e-5)
    assert normal_bound(100, 100, ALPHA) == pytest.approx(30.35209, abs=1e-5)
    assert normal_log_mixture(10, 100, 100, ALPHA, two_sided=False) == pytest.approx(-0.06502391, abs=1e-8)


def test_normal_bound_is_where_the_two_sided_mixture_reaches_the_threshold() -> None:
    bound = float(normal_bound(250, 100, ALPHA))
    assert normal_log_mixture(bound, 250, 100, ALPHA) == pytest.approx(math.log(1 / ALPHA))


def test_beta_binomial_mixture_matches_the_published_values() -> None:
    at = (10, 100, 100, 0.2, 0.8, ALPHA)
    assert beta_binomial_log_mixture(*at) == pytest.approx(-0.6941012, abs=1e-7)
    assert beta_binomial_log_mixture(*at, two_sided=False) == pytest.approx(-0.07134019, abs=1e-8)
    assert beta_binomial_bound(100, 100, 0.2, 0.8, ALPHA) == pytest.approx(31.4308, abs=1e-4)
    assert beta_binomial_bound(100, 100, 0.2, 0.8, ALPHA, two_sided=False) == pytest.approx(28.41238, abs=1e-5)


def test_a_saturated_bound_is_infinite() -> None:
    assert math.isinf(float(beta_binomial_bound(0.5, 100, 0.5, 0.5, ALPHA)))


def test_ecdf_band_matches_the_published_value() -> None:
    assert ecdf_band(1000, 100) == pytest.approx(0.08204769, abs=1e-7)  # C is published with four decimals
    assert ecdf_band(50, 100) == 1.0


@pytest.mark.parametrize(
    ("events", "trials", "t_opt", "low", "high"),
    [
        (700, 1000, 100, 0.651629, 0.745949),
        (15, 50, 50, 0.129556, 0.511896),
        (5, 50, 50, 0.013021, 0.269264),
        (1, 50, 50, 0.0, 0.13489),
        (100, 200, 1, 0.328923, 0.671076),
        (0, 1, 1, 0.0, 1.0),
        (1, 1, 1, 0.0, 1.0),
        (1, 2, 1, 0.0, 1.0),
    ],
)
def test_bernoulli_intervals_match_the_published_ones(
    events: int, trials: int, t_opt: float, low: float, high: float
) -> None:
    interval = rate_interval(events, trials, t_opt, ALPHA)
    assert interval.low == pytest.approx(low, abs=2e-6)
    assert interval.high == pytest.approx(high, abs=2e-6)


@pytest.mark.parametrize(("margin", "pairs"), [(0.05, 76), (0.02, 193), (0.01, 389), (0.005, 780)])
def test_so_many_clean_pairs_bring_the_upper_end_below_the_margin(margin: float, pairs: int) -> None:
    assert rate_interval(0, pairs, 3 / margin, ALPHA).high <= margin
    assert rate_interval(0, pairs - 1, 3 / margin, ALPHA).high > margin
    assert trials_to_settle(0, 60, margin, 3 / margin, ALPHA) == pairs


@pytest.mark.parametrize(("p", "trials"), [(0.5, 16), (0.9, 79), (0.95, 162), (0.99, 825)])
def test_a_quantile_has_a_finite_upper_end_from_so_many_values_on(p: float, trials: int) -> None:
    assert first_finite_trials(p, ALPHA) == trials
    values = np.arange(trials, dtype=np.float64)
    assert math.isfinite(quantile_interval(values, p, ALPHA)[1])
    assert math.isinf(quantile_interval(values[:-1], p, ALPHA)[1])


def test_sign_test_on_seven_of_seven() -> None:
    assert sign_e_value(7, 7) == pytest.approx(31.875)
    assert 1 / sign_e_value(7, 7) == pytest.approx(0.0314, abs=1e-4)
    assert sign_e_value(0, 7) < 1


def test_median_decision_and_interval_agree() -> None:
    rng = np.random.default_rng(7)
    for shift in (-0.4, -0.1, 0.0, 0.1, 0.4):
        values = np.sort(rng.normal(shift, 0.5, 300))
        low, high = quantile_interval(values, 0.5, ALPHA)
        within = int((values <= 0.0).sum())
        decided = float(quantile_evidence(within, 300, 0.5, ALPHA)) > math.log(1 / ALPHA)
        assert decided == (high <= 0.0 or low > 0.0)


def test_infinite_values_stay_in_the_denominator() -> None:
    values = np.sort(np.r_[np.full(60, 0.1), np.full(60, np.inf)])
    low, high = quantile_interval(values, 0.5, ALPHA)
    assert low == 0.1
    assert math.isinf(high)


@given(st.integers(1, 400), st.data())
def test_the_interval_holds_the_estimate_and_agrees_with_the_evidence(trials: int, draw: st.DataObject) -> None:
    events = draw.draw(st.integers(0, trials))
    interval = rate_interval(events, trials, 60, ALPHA)
    assert interval.estimate is not None
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1
    outside = float(rate_evidence(events, trials, 0.05, 60, ALPHA)) > math.log(1 / ALPHA)
    assert outside == (not interval.low <= 0.05 <= interval.high)


def test_bounded_means_keep_their_promise_and_shrink() -> None:
    values = np.random.default_rng(3).beta(2, 6, 4000)
    early, late = mean_interval(values[:200], ALPHA), mean_interval(values, ALPHA)
    assert late[0] <= 0.25 <= late[1]
    assert late[1] - late[0] < early[1] - early[0]
    assert mean_interval(np.array([]), ALPHA) == (0.0, 1.0)


def test_e_bh_rejects_the_largest_set_that_its_level_allows() -> None:
    assert e_benjamini_hochberg([100.0, 1.0, 45.0, 0.5], ALPHA) == (0, 2)
    assert e_benjamini_hochberg([19.0, 1.0, 1.0, 1.0], ALPHA) == ()
    assert e_benjamini_hochberg([], ALPHA) == ()
