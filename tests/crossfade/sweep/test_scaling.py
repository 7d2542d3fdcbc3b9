"""The scalability law and the line through memory, on curves whose parameters are known."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossfade.sweep.scaling import fit_usl, mean_error, peak, slope, usl

POOLS = list(range(1, 9))


def noisy(lam: float, sigma: float, kappa: float, noise: float, seed: int = 3) -> list[list[float]]:
    draw = random.Random(seed)
    curve = usl(np.array(POOLS, dtype=float), lam, sigma, kappa)
    return [[value * (1 + draw.gauss(0, noise)) for _ in range(5)] for value in curve.tolist()]


@settings(max_examples=15, deadline=None)
@given(lam=st.floats(0.01, 1000), sigma=st.floats(0, 0.9), kappa=st.floats(0, 0.2))
def test_the_parameters_of_an_exact_curve_come_back(lam: float, sigma: float, kappa: float) -> None:
    fit = fit_usl(POOLS, noisy(lam, sigma, kappa, 0.0), seed=1)
    assert fit is not None
    assert fit.lam.value == pytest.approx(lam, rel=0.01)
    assert fit.sigma.value == pytest.approx(sigma, abs=0.01)
    assert fit.kappa.value == pytest.approx(kappa, abs=0.002)
    assert fit.misfit < 0.01
    assert fit.fits


def test_the_law_in_numbers() -> None:
    """Worked by hand: 10 x 4 / (1 + 0.1 x 3 + 0.05 x 4 x 3) = 40 / 1.9."""
    assert usl(np.array([1.0, 4.0]), 10, 0.1, 0.05).tolist() == pytest.approx([10, 40 / 1.9])
    assert peak(0.1, 0.05) == pytest.approx((0.9 / 0.05) ** 0.5)
    assert peak(0.1, 0.0) is None


def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """20 sweeps with 3 parameters each: 60 intervals of 95 %, of which five slices a pool let a few more miss."""
    truth, held = (10.0, 0.05, 0.02), 0
    for seed in range(20):
        fit = fit_usl(POOLS, noisy(*truth, 0.02, seed), seed=1)
        assert fit is not None
        for estimate, value in zip((fit.lam, fit.sigma, fit.kappa), truth, strict=True):
            assert estimate.low is not None
            assert estimate.high is not None
            held += estimate.low <= value <= estimate.high
    assert 50 <= held <= 60


def test_intervals_grow_with_the_noise() -> None:
    quiet, rough = (fit_usl(POOLS, noisy(10, 0.05, 0.02, noise), seed=1) for noise in (0.01, 0.05))
    assert quiet is not None
    assert rough is not None
    assert (rough.lam.high or 0) - (rough.lam.low or 0) > 2 * ((quiet.lam.high or 0) - (quiet.lam.low or 0)) > 0


def test_the_peak_is_where_throughput_falls() -> None:
    fit = fit_usl(POOLS, noisy(10, 0.05, 0.04, 0.0), seed=1)
    assert fit is not None
    assert fit.peak == pytest.approx((0.95 / 0.04) ** 0.5, rel=0.02)
    assert fit.throughput(4) < fit.throughput(5) > fit.throughput(6)


def test_a_machine_whose_cores_run_out_is_said_not_to_fit() -> None:
    fit = fit_usl([1, 2, 3, 4, 5, 6], [[min(n, 2) * 10.0] * 5 for n in range(1, 7)], seed=1)
    assert fit is not None
    assert not fit.fits


@pytest.mark.parametrize(("pools", "slices"), [([1, 2], [[1.0], [2.0]]), ([1, 2, 3], [[0.0], [0.0], [0.0]]), ([], [])])
def test_too_little_to_fit_gives_no_law(pools: list[int], slices: list[list[float]]) -> None:
    assert fit_usl(pools, slices, seed=1) is None


def test_a_slope_has_the_textbook_interval() -> None:
    """Points (1, 1), (2, 3), (3, 2): slope 0.5, residual variance 1.5 / 1, t(0.975, 1) = 12.7062."""
    line = slope([1, 2, 3], [1, 3, 2])
    assert line is not None
    assert line.value == pytest.approx(0.5)
    assert line.high == pytest.approx(0.5 + 12.7062 * (1.5 / 2) ** 0.5, rel=1e-4)
    assert line.low == pytest.approx(0.5 - 12.7062 * (1.5 / 2) ** 0.5, rel=1e-4)


def test_two_points_give_a_slope_without_an_interval_and_one_gives_none() -> None:
    two = slope([1, 3], [10, 20])
    assert two is not None
    assert (two.value, two.low, two.high) == (5, None, None)
    assert slope([2, 2], [1, 5]) is None


def test_the_error_of_a_mean() -> None:
    """Values 1, 2, 3: standard error 1 / sqrt(3), t(0.975, 2) = 4.3027."""
    assert mean_error([1, 2, 3]) == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
    assert mean_error([5]) == float("inf")
