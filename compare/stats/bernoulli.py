"""Confidence sequences for a rate: B of the statistics, a sub-Bernoulli beta-binomial mixture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln

from compare.stats.mixture import Floats, best_rho

_HALVINGS = 60
_EDGE = 1e-12


@dataclass(frozen=True, slots=True)
class RateInterval:
    """``low <= rate <= high`` at all times at once; ``estimate`` is ``events / trials`` (``None`` without trials)."""

    estimate: float | None
    low: float
    high: float


def rate_evidence(events: ArrayLike, trials: ArrayLike, rate: ArrayLike, t_opt: ArrayLike, alpha: float) -> Floats:
    """Return log M against 'the rate is ``rate``': above ``log(1/alpha)`` the rate lies outside of the interval.

    The beta-binomial mixture at g = p, h = 1 - p, written in counts. Vectorises over all arguments but ``alpha``.
    """
    k, t, p = (np.asarray(x, dtype=np.float64) for x in (events, trials, rate))
    spread = p * (1 - p)
    r = np.maximum(best_rho(spread * np.asarray(t_opt), alpha) - spread, 1e-3 * spread)
    a0, b0 = r / p, r / (1 - p)
    evidence: Floats = betaln(a0 + t - k, b0 + k) - betaln(a0, b0) - k * np.log(p) - (t - k) * np.log1p(-p)
    return evidence


def _edge(events: Floats, trials: Floats, end: Floats, t_opt: float, alpha: float) -> Floats:
    """Bisect between the mean (inside) and ``end`` (0 or 1); returns ``end`` where that is itself inside."""
    threshold = np.log(1 / alpha)
    inside = np.clip(events / trials, _EDGE, 1 - _EDGE)
    outside = np.clip(end, _EDGE, 1 - _EDGE)
    open_ended = rate_evidence(events, trials, outside, t_opt, alpha) <= threshold
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        kept = rate_evidence(events, trials, middle, t_opt, alpha) <= threshold
        inside, outside = np.where(kept, middle, inside), np.where(kept, outside, middle)
    return np.where(open_ended, end, inside)


def rate_interval_arrays(events: ArrayLike, trials: ArrayLike, t_opt: float, alpha: float) -> tuple[Floats, Floats]:
    """Return both ends for arrays of counts; trials must be positive."""
    k, t = np.broadcast_arrays(np.asarray(events, dtype=np.float64), np.asarray(trials, dtype=np.float64))
    return _edge(k, t, np.zeros_like(t), t_opt, alpha), _edge(k, t, np.ones_like(t), t_opt, alpha)


def rate_interval(events: int, trials: int, t_opt: float, alpha: float) -> RateInterval:
    """Return the interval to show; no trials give ``[0, 1]`` and no estimate."""
    if trials == 0:
        return RateInterval(None, 0.0, 1.0)
    low, high = rate_interval_arrays(events, trials, t_opt, alpha)
    return RateInterval(events / trials, float(low), float(high))


def trials_to_settle(
    events: int, trials: int, margin: float, t_opt: float, alpha: float, limit: int = 200_000
) -> int | None:
    """Return at how many trials the margin leaves the interval if the rate goes on as it is, ``None`` beyond ``limit``.

    Exact where the square-root rule is not: with no event at all the interval shrinks like 1/n.
    """
    if trials == 0 or events / trials == margin:
        return None
    rate, threshold = events / trials, np.log(1 / alpha)

    def settled(at: Floats) -> Floats:
        hits: Floats = at[(rate_evidence(at * rate, at, margin, t_opt, alpha) > threshold) & (at >= trials)]
        return hits

    coarse = np.unique(np.geomspace(trials, limit, 2000).round())
    hits = settled(coarse)
    if not hits.size:
        return None
    before = coarse[max(0, int(np.searchsorted(coarse, hits[0])) - 1)]
    return int(settled(np.arange(before, hits[0] + 1))[0])
