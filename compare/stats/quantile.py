"""Confidence sequences for one quantile: Q of the statistics (Howard and Ramdas, Bernoulli 28(3), 2022, Thm 1).

Infinite values are welcome: a failure is an infinitely long wait and never leaves the denominator.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compare.stats.bernoulli import rate_evidence
from compare.stats.mixture import Floats, beta_binomial_bound

DEFAULT_T_OPT = {0.5: 200.0, 0.9: 500.0, 0.95: 1000.0, 0.99: 5000.0}


def _bounds(trials: ArrayLike, p: float, alpha: float, t_opt: float) -> tuple[Floats, Floats]:
    spread = p * (1 - p)
    v = spread * np.asarray(trials, dtype=np.float64)
    below = beta_binomial_bound(v, spread * t_opt, 1 - p, p, alpha)
    above = beta_binomial_bound(v, spread * t_opt, p, 1 - p, alpha)
    return below, above


def quantile_ranks(trials: int, p: float, alpha: float, t_opt: float | None = None) -> tuple[int | None, int | None]:
    """Return the ranks, from 1, of the values that are the interval's ends; ``None`` for an end without evidence."""
    if trials == 0:
        return None, None
    below, above = _bounds(trials, p, alpha, DEFAULT_T_OPT[p] if t_opt is None else t_opt)
    first = math.floor(trials * p - float(below) + 1) if np.isfinite(below) else 0
    last = math.ceil(trials * p + float(above)) if np.isfinite(above) else trials + 1
    return first if first >= 1 else None, last if last <= trials else None


def quantile_interval(
    ordered: NDArray[np.float64], p: float, alpha: float, t_opt: float | None = None
) -> tuple[float, float]:
    """Return the interval of the ``p`` quantile of ascending values; a side without evidence is infinite."""
    first, last = quantile_ranks(len(ordered), p, alpha, t_opt)
    low = -math.inf if first is None else float(ordered[first - 1])
    return low, (math.inf if last is None else float(ordered[last - 1]))


def quantile_evidence(
    at_or_below: ArrayLike, trials: ArrayLike, p: float, alpha: float, t_opt: float | None = None
) -> Floats:
    """Return log M against 'the ``p`` quantile is the margin', given how many values lie at or below the margin.

    More than ``p`` of them and evidence above ``log(1/alpha)``: the quantile is at most the margin. Fewer: above it.
    """
    return rate_evidence(at_or_below, trials, p, DEFAULT_T_OPT[p] if t_opt is None else t_opt, alpha)


def first_finite_trials(p: float, alpha: float, t_opt: float | None = None, limit: int = 50_000) -> int | None:
    """Return the least number of values whose ``p`` quantile has a finite upper end, ``None`` beyond ``limit``."""
    trials = np.arange(1, limit + 1)
    finite = quantile_evidence(trials, trials, p, alpha, t_opt) >= np.log(1 / alpha)
    return int(trials[finite][0]) if finite.any() else None
