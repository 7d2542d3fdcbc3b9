"""The Universal Scalability Law and a line through memory: fits with their confidence. Pure.

Gunther, "A Simple Capacity Model of Massively Parallel Transaction Systems", CMG 1993, and "Guerrilla Capacity
Planning", 2007, chapter 4: throughput of N sessions is ``X(N) = lambda N / (1 + sigma (N - 1) + kappa N (N - 1))``.
``sigma`` is the share of work that waits in line (contention), ``kappa`` the cost of keeping sessions coherent; with
``kappa > 0`` throughput falls beyond ``N* = sqrt((1 - sigma) / kappa)``. The law is smooth: a machine whose cores run
out bends at once, which no ``sigma`` and ``kappa`` can follow, and the misfit is said.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.stats import t as student

Floats = NDArray[np.float64]

RESAMPLES = 1000
GOOD_MISFIT = 0.1


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and its 95 % interval; ``None`` ends are not known."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Scaling:
    """The law's parameters with bootstrap intervals.

    ``lam`` is in requests per second per session. ``r_squared`` is the share of the variation between pool sizes that
    the law explains; ``misfit`` the largest relative distance of a measured mean from the curve. ``peak`` is N*, and
    ``None`` where throughput never falls. ``tested`` is False with three pool sizes, which three parameters nearly
    always fit.
    """

    lam: Estimate
    sigma: Estimate
    kappa: Estimate
    r_squared: float
    misfit: float
    tested: bool

    @property
    def fits(self) -> bool:
        return self.misfit <= GOOD_MISFIT

    @property
    def peak(self) -> float | None:
        return peak(self.sigma.value, self.kappa.value)

    def throughput(self, pool: float) -> float:
        """Return X(pool) in requests per second."""
        return float(usl(np.array([pool]), self.lam.value, self.sigma.value, self.kappa.value)[0])


def usl(pools: Floats, lam: float, sigma: float, kappa: float) -> Floats:
    """Return X(N) for every N."""
    curve: Floats = lam * pools / (1 + sigma * (pools - 1) + kappa * pools * (pools - 1))
    return curve


def peak(sigma: float, kappa: float) -> float | None:
    """Return N*, where X(N) is highest, or ``None`` when X(N) only rises."""
    return math.sqrt((1 - sigma) / kappa) if kappa > 1e-9 else None


def fit_usl(pools: Sequence[int], slices: Sequence[Sequence[float]], seed: int) -> Scaling | None:
    """Fit the law to throughputs ``slices[i]`` of pool size ``pools[i]``; every slice is one observation.

    ``0 <= sigma <= 1``, ``0 <= kappa``, ``lambda > 0``. The intervals are percentiles of ``RESAMPLES`` fits, each to
    slices drawn anew within their pool size: they hold the noise of measuring, not the law's own misfit. Returns
    ``None`` with fewer than three pool sizes, or without any throughput.
    """
    if len(set(pools)) < 3 or not any(value > 0 for part in slices for value in part):
        return None
    sizes = np.array([float(pool) for pool in pools])
    means = np.array([float(np.mean(part)) for part in slices])
    best = _fit(sizes, means)
    draw = np.random.default_rng(seed)
    again = np.array([_fit(sizes, resample(slices, draw)) for _ in range(RESAMPLES)])
    low, high = np.quantile(again, (0.025, 0.975), axis=0)
    curve = usl(sizes, *best)
    spread = float(np.sum((means - means.mean()) ** 2))
    left = float(np.sum((means - curve) ** 2))
    lam, sigma, kappa = (Estimate(float(best[i]), float(low[i]), float(high[i])) for i in range(3))
    misfit = float(np.max(np.abs(means - curve) / np.maximum(means, 1e-12)))
    return Scaling(lam, sigma, kappa, 1 - left / spread if spread > 0 else 1.0, misfit, len(set(pools)) > 3)


def resample(slices: Sequence[Sequence[float]], draw: np.random.Generator) -> Floats:
    """Return the mean of each part's values drawn anew with replacement.

    Distances from the part's own mean are widened by ``sqrt(n / (n - 1))``: plain resampling of few values scatters
    too little by that factor.
    """
    means = []
    for part in slices:
        own, count = float(np.mean(part)), len(part)
        wider = math.sqrt(count / (count - 1)) if count > 1 else 1.0
        means.append(own + wider * (float(np.mean(draw.choice(part, count))) - own))
    return np.array(means)


def _fit(sizes: Floats, means: Floats) -> Floats:
    """Return (lambda, sigma, kappa) of least relative squares, so that small pools count as much as big ones.

    ``N / X = d + b N + c N (N - 1)`` with ``lambda = 1 / (b + d)``, ``sigma = b / (b + d)``, ``kappa = c / (b + d)``
    is the same law, linear, and within its bounds exactly when b, c and d are not negative: non-negative least
    squares (Lawson and Hanson 1974) has one optimum and finds it. To first order its relative error is that of X.
    """
    cost = sizes / np.maximum(means, float(means.max()) * 1e-3)
    terms = np.column_stack([np.ones_like(sizes), sizes, sizes * (sizes - 1)])
    d, b, c = nnls(terms / cost[:, None], np.ones_like(sizes))[0]
    alone = max(b + d, 1e-12)
    return np.array([1 / alone, b / alone, c / alone])


def slope(xs: Sequence[float], ys: Sequence[float]) -> Estimate | None:
    """Return the slope of the least-squares line with its 95 % t interval.

    Two different ``xs`` give a slope without an interval, fewer give ``None``.
    """
    if len(set(xs)) < 2:
        return None
    x, y = np.asarray(xs, dtype=np.float64), np.asarray(ys, dtype=np.float64)
    from_mean = x - x.mean()
    square = float(np.sum(from_mean**2))
    value = float(np.sum(from_mean * y)) / square
    free = len(x) - 2
    if free < 1:
        return Estimate(value)
    left = y - y.mean() - value * from_mean
    reach = float(student.ppf(0.975, free)) * math.sqrt(float(np.sum(left**2)) / free / square)
    return Estimate(value, value - reach, value + reach)


def mean_error(values: Sequence[float]) -> float:
    """Return the half-width of the 95 % t interval of the mean; infinite for fewer than two values."""
    if len(values) < 2:
        return math.inf
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(student.ppf(0.975, len(values) - 1)) * spread
