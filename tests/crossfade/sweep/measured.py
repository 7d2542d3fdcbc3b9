"""Makes cells and capacities as a sweep measures them, from the few numbers that a test is about."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from crossfade.sweep.figures import Capacity, Cell
from crossfade.sweep.usage import GpuUsage, Usage

GB = 1_000_000_000


def usage(
    cpu: float = 3.9, *, others: float = 0.0, cores: float = 4.0, memory: int = GB, gpu: GpuUsage | None = None
) -> Usage:
    return Usage(cpu, 0.1, cpu + 0.1 + others, cores, memory, 16 * GB, gpu)


def capacities(
    per_second: Mapping[int, float], used: Mapping[int, Usage] | None = None, *, noise: float = 0.02, seed: int = 1
) -> list[Capacity]:
    """Return a capacity for each pool; slices scatter around it by ``noise`` (relative standard deviation)."""
    draw = random.Random(seed)
    found = []
    for pool, value in per_second.items():
        slices = tuple(value * (1 + draw.gauss(0, noise)) for _ in range(5))
        found.append(Capacity(pool, sum(slices) / 5, slices, (used or {}).get(pool, usage())))
    return found


def cells(pool: int, oks: Mapping[float, tuple[int, int]], *, lag_s: float = 0.0) -> list[Cell]:
    """Return a cell for each rate with (ok, sent); what was not ok timed out."""
    return [
        Cell("restore", pool, rate, sent, ok, sent - ok, 0, 0, 0.2, 0.2, 0.4, rate * ok / sent, lag_s, usage())
        for rate, (ok, sent) in oks.items()
    ]


def means(found: Sequence[Capacity]) -> list[float]:
    return [one.per_second for one in found]
