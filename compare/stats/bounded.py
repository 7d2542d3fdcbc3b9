"""Means of values in [0, 1]: E of the statistics (Waudby-Smith and Ramdas, JRSSB 2024, arXiv 2010.09686)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


def mean_interval(values: NDArray[np.float64], alpha: float) -> tuple[float, float]:
    """Return the predictable plug-in empirical Bernstein interval of the mean of ``values`` in [0, 1].

    The bets may use the past only: mean and variance start at 1/2 and 1/4 as if one value had been seen.
    """
    if values.size == 0:
        return 0.0, 1.0
    order = np.arange(1, values.size + 1)
    mean = (0.5 + np.cumsum(values)) / (order + 1)
    variance = (0.25 + np.cumsum((values - mean) ** 2)) / (order + 1)
    past_mean, past_variance = np.r_[0.5, mean[:-1]], np.r_[0.25, variance[:-1]]
    odds = np.log(2 / alpha)
    bets = np.minimum(0.5, np.sqrt(2 * odds / (past_variance * order * np.log1p(order))))
    penalty = (values - past_mean) ** 2 * (-np.log1p(-bets) - bets)
    total = bets.sum()
    center, radius = (bets * values).sum() / total, (odds + penalty.sum()) / total
    return max(0.0, float(center - radius)), min(1.0, float(center + radius))


@dataclass(slots=True)
class RunningMean:
    """The same interval, one value after the other: what ``mean_interval`` needs of the past in seven numbers."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0
    bets: float = 0.0
    staked: float = 0.0
    penalty: float = 0.0

    def add(self, value: float, alpha: float) -> None:
        """Take up the next value in [0, 1]; ``alpha`` is the same for all."""
        past_mean, past_variance = (0.5 + self.total) / (self.n + 1), (0.25 + self.squares) / (self.n + 1)
        self.n += 1
        bet = min(0.5, math.sqrt(2 * math.log(2 / alpha) / (past_variance * self.n * math.log1p(self.n))))
        self.total += value
        self.squares += (value - (0.5 + self.total) / (self.n + 1)) ** 2
        self.bets += bet
        self.staked += bet * value
        self.penalty += (value - past_mean) ** 2 * (-math.log1p(-bet) - bet)

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the interval of the mean."""
        if self.n == 0:
            return 0.0, 1.0
        center, radius = self.staked / self.bets, (math.log(2 / alpha) + self.penalty) / self.bets
        return max(0.0, center - radius), min(1.0, center + radius)
