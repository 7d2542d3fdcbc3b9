"""E-values: the paired sign test, choosing a list of bad routes (e-BH)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import betainc, betaln


def sign_e_value(successes: int, trials: int) -> float:
    """Return the one-sided e-value against 'a success is no likelier than 1/2', uniform prior on (1/2, 1).

    Its anytime p-value is ``1 / max over time``. Seven of seven give 31.875.
    """
    k, rest = successes + 1, trials - successes + 1
    return float(np.exp((trials + 1) * math.log(2) + betaln(k, rest)) * (1 - betainc(k, rest, 0.5)))


def e_benjamini_hochberg(e_values: Sequence[float], alpha: float) -> tuple[int, ...]:
    """Return the indices to reject so that the false discovery rate is at most ``alpha`` (arXiv 2009.02824)."""
    order = sorted(range(len(e_values)), key=lambda i: -e_values[i])
    passing = [rank for rank, i in enumerate(order, 1) if e_values[i] >= len(order) / (alpha * rank)]
    return tuple(sorted(order[: max(passing, default=0)]))
