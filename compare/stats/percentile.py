"""Percentiles of what was seen, for display: nearest rank on raw values, never interpolated, never averaged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_NEEDED_IN_THE_TAIL = 1.0


@dataclass(frozen=True, slots=True)
class Percentile:
    """A value that was really seen, or ``None`` of nothing. ``reliable`` is false when fewer than one value is expected
    beyond it (p99 below 100 values)."""

    value: float | None
    n: int
    reliable: bool


def percentile(ordered: Sequence[float], p: float) -> Percentile:
    """Return the nearest-rank percentile (``0 < p <= 1``) of ascending values: the ``ceil(p n)``-th."""
    n = len(ordered)
    if n == 0:
        return Percentile(None, 0, reliable=False)
    # The small step back keeps 0.99 * 1000 from becoming rank 991 by rounding.
    rank = min(n, max(1, math.ceil(p * n - 1e-9)))
    return Percentile(float(ordered[rank - 1]), n, reliable=n * (1 - p) >= _NEEDED_IN_THE_TAIL - 1e-9)
