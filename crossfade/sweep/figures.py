"""Figures of a load: outcomes and use in, one row of numbers out. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crossfade.sweep.load import Outcome, Result
from crossfade.sweep.usage import Usage

SLICES = 5
WARM_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class Cell:
    """What one pool did at one rate.

    Latencies in seconds from the moment a request was due, over the requests that were answered or timed out; one
    that timed out counts with the timeout, so with ``timeouts`` above 0 ``mean_s`` is a lower bound. ``None`` where
    every request was refused or failed. ``throughput`` is good answers per second, ``lag_p95_s`` how late this
    machine sent what was due.
    """

    function: str
    pool: int
    rate: float
    sent: int
    ok: int
    timeouts: int
    refused: int
    failed: int
    mean_s: float | None
    p50_s: float | None
    p95_s: float | None
    throughput: float
    lag_p95_s: float
    usage: Usage

    @property
    def success(self) -> float:
        """Share of the requests that had a good answer within the timeout."""
        return self.ok / self.sent


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one pool can do at most: good answers per second while it was kept full.

    ``slices`` are the same for equal parts of the time: their spread is the noise.
    """

    pool: int
    per_second: float
    slices: tuple[float, ...]
    usage: Usage


def cell(function: str, pool: int, rate: float, outcomes: Sequence[Outcome], duration_s: float, usage: Usage) -> Cell:
    """Sum up one load; ``outcomes`` must not be empty."""
    counts = Counter(outcome.result for outcome in outcomes)
    timed = [o.latency_s for o in outcomes if o.result in {Result.OK, Result.TIMEOUT}]
    ends = [o.ended_s for o in outcomes if o.result is Result.OK]
    p50, p95 = (float(q) for q in np.quantile(timed, (0.5, 0.95))) if timed else (None, None)
    return Cell(
        function=function,
        pool=pool,
        rate=rate,
        sent=len(outcomes),
        ok=counts[Result.OK],
        timeouts=counts[Result.TIMEOUT],
        refused=counts[Result.REFUSED],
        failed=counts[Result.FAILED],
        mean_s=float(np.mean(timed)) if timed else None,
        p50_s=p50,
        p95_s=p95,
        throughput=len(ends) / max([duration_s, *ends]),
        lag_p95_s=float(np.quantile([o.sent_s - o.due_s for o in outcomes], 0.95)),
        usage=usage,
    )


def capacity(pool: int, outcomes: Sequence[Outcome], duration_s: float, usage: Usage) -> Capacity:
    """Return the rate of good answers between the warm-up (the first fifth) and the end of the load.

    A request counts in each slice with the share of its time that lies in it, so slices shorter than a request are
    not all or nothing. Requests that were still running at the end count with their share, too.
    """
    edges = np.linspace(WARM_SHARE * duration_s, duration_s, SLICES + 1)
    work = np.zeros(SLICES)
    for outcome in outcomes:
        if outcome.result is Result.OK:
            inside = np.clip(edges, outcome.sent_s, outcome.ended_s)
            work += np.diff(inside) / max(outcome.ended_s - outcome.sent_s, 1e-9)
    slices = work / (edges[1] - edges[0])
    return Capacity(pool, float(slices.mean()), tuple(float(s) for s in slices), usage)
