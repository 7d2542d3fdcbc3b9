"""Order statistics of a stream in bounded memory: counts of values rounded to four digits.

Rounding keeps order, so a quantile of rounded values is the rounded quantile: every rank is exact to the four digits
that are shown, however many values came and in whatever order. Histograms merge by adding counts. A new value costs
O(1), a rank O(log of the distinct values) once they are sorted; there are at most 9,000 of them in a decade.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from compare.stats.percentile import Percentile
from compare.stats.quantile import quantile_ranks

Floats = NDArray[np.float64]
_INFINITE = 10**9
_ZERO = -(10**9)
_SMALLEST = 1e-9


def code_of(value: float) -> int:
    """Return a whole number that keeps the order of non-negative values and tells four digits of each."""
    if value == math.inf:
        return _INFINITE
    if value < _SMALLEST:
        return _ZERO
    mantissa, exponent = f"{value:.3e}".split("e")
    return int(exponent) * 9000 + int(mantissa[0] + mantissa[2:]) - 1000


def value_of(code: int) -> float:
    """Return the value of a code: the decimal number with these four digits."""
    if code >= _INFINITE:
        return math.inf
    if code <= _ZERO:
        return 0.0
    exponent, mantissa = divmod(code, 9000)
    return float(f"{mantissa + 1000}e{exponent - 3}")


class Histogram:
    """Counts of non-negative values, infinity included (a failure is an infinitely long wait)."""

    def __init__(self, counts: Mapping[int, int] | None = None) -> None:
        self.counts: dict[int, int] = dict(counts or {})
        self.total = sum(self.counts.values())

    @classmethod
    def of(cls, values: Iterable[float]) -> Histogram:
        """Return the histogram of some values."""
        made = cls()
        for value in values:
            made.add(value)
        return made

    def add(self, value: float) -> None:
        """Count a value."""
        code = code_of(value)
        self.counts[code] = self.counts.get(code, 0) + 1
        self.total += 1
        self.__dict__.pop("_sorted", None)

    @cached_property
    def _sorted(self) -> tuple[list[int], NDArray[np.int64]]:
        codes = sorted(self.counts)
        return codes, np.cumsum([self.counts[code] for code in codes], dtype=np.int64)

    def at_rank(self, rank: int) -> float:
        """Return the ``rank``-th smallest value, from 1. Raises ``IndexError`` beyond the total."""
        codes, ends = self._sorted
        if not 1 <= rank <= self.total:
            raise IndexError(rank)
        return value_of(codes[int(np.searchsorted(ends, rank))])

    def percentile(self, p: float) -> Percentile:
        """Return the nearest-rank percentile; ``None`` as the value of nothing, or where it is infinite."""
        n = self.total
        if n == 0:
            return Percentile(None, 0, reliable=False)
        value = self.at_rank(min(n, max(1, math.ceil(p * n - 1e-9))))
        return Percentile(value if math.isfinite(value) else None, n, reliable=n * (1 - p) >= 1 - 1e-9)

    def interval(self, p: float, alpha: float, t_opt: float) -> tuple[float, float]:
        """Return the always-valid interval of the ``p`` quantile (``quantile_interval``)."""
        first, last = quantile_ranks(self.total, p, alpha, t_opt)
        low = 0.0 if first is None else self.at_rank(first)
        return low, (math.inf if last is None else self.at_rank(last))

    def steps(self) -> tuple[Floats, Floats]:
        """Return the finite values in order and the share of all at or below each: the empirical distribution."""
        codes, ends = self._sorted
        values = np.array([value_of(code) for code in codes], dtype=np.float64)
        kept = np.isfinite(values)
        return values[kept], (ends[kept] / max(1, self.total)).astype(np.float64)

    def masses(self) -> tuple[Floats, Floats]:
        """Return the finite values in order and how often each came."""
        codes, ends = self._sorted
        values = np.array([value_of(code) for code in codes], dtype=np.float64)
        kept = np.isfinite(values)
        return values[kept], np.diff(ends, prepend=0).astype(np.float64)[kept]
