"""The e-CUSUM of the statistics: a watch that restarts its evidence whenever things look fine, so that a late
regression is not diluted by a long good past (Shin, Ramdas, Rinaldo, arXiv 2203.03532).

``W_t = max(W_{t-1}, 1) (1 + lambda (x_t - m))``, alarm at ``W >= A``. While every mean is at most ``m`` the mean number
of steps to a false alarm is at least ``A``. All values here are logarithms, since W itself overflows.
"""

from __future__ import annotations

import math


def best_bet(rate: float, feared: float) -> float:
    """Return the lambda that makes W grow fastest when the true rate is ``feared`` (``0 < rate < feared < 1``).

    It stays below ``1 / rate``, so that W is never negative (Kelly's bet for a coin).
    """
    if not 0 < rate < feared < 1:
        raise ValueError(f"0 < rate < feared < 1 does not hold for {rate} and {feared}")
    return (feared - rate) / (rate * (1 - rate))


def log_e_cusum(log_w: float, events: int, trials: int, rate: float, bet: float) -> float:
    """Return log W after one step of ``events`` among ``trials`` that were seen together, in whatever order.

    One trial is the formula above. Several are one step of their product: the order within is unknown, and a product
    has none. Nothing seen changes nothing.
    """
    if not 0 <= events <= trials:
        raise ValueError(f"{events} events of {trials} trials")
    if trials == 0:
        return log_w
    gain = events * math.log1p(bet * (1 - rate)) + (trials - events) * math.log1p(-bet * rate)
    return max(log_w, 0.0) + gain
