"""Does a server get slower or bigger as it works? First against last quarter of a soak, with intervals. Pure.

Latencies of neighbouring requests resemble each other, so requests are not independent; the means of *batches* of
neighbours nearly are (batch means; Law and Kelton, "Simulation Modeling and Analysis", chapter 9). Intervals are
Welch's over the batches of the two quarters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from crossfade.sweep.load import Outcome, Result
from crossfade.sweep.scaling import Estimate, slope

BATCHES = 10
FEWEST = 40 * BATCHES
"""Fewer requests make batches of less than ten; then nothing is said."""
MARGIN = 0.1
"""A change of less than this share of the first quarter is no drift."""
SETTLING = 0.1
"""Share of the time at the start in which memory may still settle (caches, arenas)."""


class Drift(StrEnum):
    """What the interval of a change says: within the margin, beyond it for sure, or neither."""

    FREE = "drift-free"
    DRIFTS = "drifts"
    OPEN = "not settled"


@dataclass(frozen=True, slots=True)
class Change:
    """A figure in the first and the last quarter, seconds; ``difference`` is last minus first with its interval."""

    first: float
    last: float
    difference: Estimate
    drift: Drift


@dataclass(frozen=True, slots=True)
class SoakResult:
    """A soak, summed up. ``memory_slope`` is in bytes per 1000 requests after settling, memory in bytes."""

    function: str
    pool: int
    rate: float
    sent: int
    ok: int
    mean: Change | None
    p95: Change | None
    memory_first: int | None
    memory_last: int | None
    memory_slope: Estimate | None


def judge_soak(
    function: str,
    pool: int,
    rate: float,
    outcomes: Sequence[Outcome],
    memory: Sequence[tuple[float, int]],
) -> SoakResult:
    """Compare the quarters of a soak; requests that were refused or failed have no latency."""
    ordered = sorted(outcomes, key=lambda o: o.due_s)
    timed = np.array([o.latency_s for o in ordered if o.result in {Result.OK, Result.TIMEOUT}])
    settled_at = SETTLING * max((at for at, _ in memory), default=0.0)
    settled = [(at, size) for at, size in memory if at >= settled_at]
    return SoakResult(
        function=function,
        pool=pool,
        rate=rate,
        sent=len(outcomes),
        ok=sum(o.result is Result.OK for o in outcomes),
        mean=_change(timed, lambda part: float(np.mean(part))),
        p95=_change(timed, lambda part: float(np.quantile(part, 0.95))),
        memory_first=settled[0][1] if settled else None,
        memory_last=settled[-1][1] if settled else None,
        memory_slope=_memory_slope(settled, rate),
    )


def _memory_slope(settled: Sequence[tuple[float, int]], rate: float) -> Estimate | None:
    """Fit a line to means of batches: neighbouring samples repeat each other and would make the interval too short."""
    if len(settled) < BATCHES:
        return None
    batches = [part.mean(axis=0) for part in np.array_split(np.array(settled, dtype=np.float64), BATCHES)]
    return slope([float(at) * rate / 1000 for at, _ in batches], [float(size) for _, size in batches])


def _change(timed: NDArray[np.float64], figure: Callable[[NDArray[np.float64]], float]) -> Change | None:
    quarter = len(timed) // 4
    if len(timed) < FEWEST:
        return None
    first, last = timed[:quarter], timed[-quarter:]
    difference = welch(*([figure(batch) for batch in np.array_split(part, BATCHES)] for part in (first, last)))
    return Change(figure(first), figure(last), difference, _drift(difference, MARGIN * figure(first)))


def welch(first: Sequence[float], last: Sequence[float]) -> Estimate:
    """Return mean(last) - mean(first) with its 95 % interval (Welch 1947; each at least two values)."""
    parts = [float(np.var(values, ddof=1)) / len(values) for values in (first, last)]
    value, error = float(np.mean(last) - np.mean(first)), sum(parts)
    if error <= 0:
        return Estimate(value, value, value)
    free = error**2 / sum(part**2 / (len(v) - 1) for part, v in zip(parts, (first, last), strict=True))
    reach = float(student.ppf(0.975, free)) * math.sqrt(error)
    return Estimate(value, value - reach, value + reach)


def _drift(difference: Estimate, margin: float) -> Drift:
    low, high = difference.low, difference.high
    if low is None or high is None:
        return Drift.OPEN
    if -margin <= low and high <= margin:
        return Drift.FREE
    return Drift.DRIFTS if low > margin or high < -margin else Drift.OPEN
