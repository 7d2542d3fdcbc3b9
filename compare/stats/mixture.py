"""Mixture supermartingales of Howard, Ramdas, McAuliffe, Sekhon, Annals of Statistics 2021.

``log_m(s, v)`` is the log evidence that a sum ``s`` with intrinsic time ``v`` has drifted; by Ville's inequality it
exceeds ``log(1/alpha)`` with probability at most ``alpha`` over *all* times when there is no drift. All functions take
arrays.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc, betaln, log_ndtr

Floats = NDArray[np.float64]
_HALVINGS = 80


def best_rho(v: ArrayLike, alpha: float, *, two_sided: bool = True) -> Floats:
    """Return the mixture precision that makes the bound tightest at intrinsic time ``v``.

    A one-sided mixture spends all of ``alpha`` on one tail and is tuned like a two-sided one at ``2 alpha``.
    """
    odds = 2 * np.log(1 / (alpha if two_sided else 2 * alpha))
    rho: Floats = np.asarray(v, dtype=np.float64) / (odds + np.log1p(odds))
    return rho


def normal_log_mixture(s: ArrayLike, v: ArrayLike, v_opt: float, alpha: float, *, two_sided: bool = True) -> Floats:
    """Return the log of the normal mixture (Prop. 5); the one-sided form mixes over positive drifts only."""
    s, v = np.asarray(s, dtype=np.float64), np.asarray(v, dtype=np.float64)
    rho = best_rho(v_opt, alpha, two_sided=two_sided)
    quadratic: Floats = 0.5 * np.log(rho / (v + rho)) + s * s / (2 * (v + rho))
    return quadratic if two_sided else quadratic + np.log(2) + log_ndtr(s / np.sqrt(v + rho))


def normal_bound(v: ArrayLike, v_opt: float, alpha: float) -> Floats:
    """Return the two-sided bound on ``|s|`` at intrinsic time ``v``, in closed form."""
    v, rho = np.asarray(v, dtype=np.float64), best_rho(v_opt, alpha)
    bound: Floats = np.sqrt((v + rho) * (np.log1p(v / rho) + 2 * np.log(1 / alpha)))
    return bound


def beta_binomial_log_mixture(
    s: ArrayLike, v: ArrayLike, v_opt: ArrayLike, g: ArrayLike, h: ArrayLike, alpha: float, *, two_sided: bool = True
) -> Floats:
    """Return the log of the sub-Bernoulli mixture for steps in ``[-g, h]`` (the paper's Prop. 7).

    Valid for ``-v/h <= s <= v/g``; outside of it the sum cannot be.
    """
    s, v, g, h = (np.asarray(x, dtype=np.float64) for x in (s, v, g, h))
    r = np.maximum(best_rho(v_opt, alpha, two_sided=two_sided) - g * h, 1e-3 * g * h)
    width = g + h
    a0, b0 = r / (g * width), r / (h * width)
    a, b = (r + v - g * s) / (g * width), (r + v + h * s) / (h * width)
    ratio = betaln(a, b) - betaln(a0, b0)
    if not two_sided:
        ratio = ratio + np.log(betainc(a, b, h / width)) - np.log(betainc(a0, b0, h / width))
    steps = -(v + h * s) / (h * width) * np.log(g) - (v - g * s) / (g * width) * np.log(h)
    total: Floats = v / (g * h) * np.log(width) + steps + ratio
    return total


def beta_binomial_bound(
    v: ArrayLike, v_opt: ArrayLike, g: ArrayLike, h: ArrayLike, alpha: float, *, two_sided: bool = True
) -> Floats:
    """Return the smallest ``s >= 0`` whose log mixture reaches ``log(1/alpha)``, by bisection.

    The sum cannot exceed ``v/g``: where even that is no evidence the bound is infinite, not ``v/g``.
    """
    v, v_opt, g, h = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (v, v_opt, g, h)))
    threshold = np.log(1 / alpha)
    low, high = np.zeros_like(v), v / g
    reachable = beta_binomial_log_mixture(high, v, v_opt, g, h, alpha, two_sided=two_sided) >= threshold
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        over = beta_binomial_log_mixture(middle, v, v_opt, g, h, alpha, two_sided=two_sided) >= threshold
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return np.where(reachable, high, np.inf)
