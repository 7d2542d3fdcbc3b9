"""A band around a whole distribution function: K of the statistics (Howard and Ramdas 2022, Thm 2)."""

from __future__ import annotations

import math

_A = 0.85
_C_AT_FIVE_PERCENT = 8.1227


def ecdf_band(trials: int, minimum: int) -> float:
    """Return the half width of the band that holds for all ``trials >= minimum`` at once, at alpha = 0.05."""
    if trials < minimum or minimum < 1:
        return 1.0
    return min(1.0, _A * math.sqrt((math.log1p(math.log(trials / minimum)) + _C_AT_FIVE_PERCENT) / trials))
