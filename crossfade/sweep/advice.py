"""The decision: where the knee is, what binds, which pool and rate to run, and how sure that is. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.stats import beta

from crossfade.sweep.figures import Capacity, Cell
from crossfade.sweep.scaling import RESAMPLES, Estimate, Scaling, fit_usl, mean_error, resample, slope

TARGET = 0.99
WORTH = 0.05
"""A bigger pool is worth having when it brings this share more throughput."""
FULL = 0.85
"""Something binds when this share of it is used while the pool is kept full."""
CONFIDENCE = 0.95


class Binding(StrEnum):
    """What keeps a bigger pool from giving more."""

    CPU = "cpu cores"
    GPU = "gpu cores"
    MEMORY = "memory"
    UNKNOWN = "neither"


@dataclass(frozen=True, slots=True)
class Knee:
    """The smallest measured pool that is within ``WORTH`` of the best throughput.

    ``past`` are the bigger ones, which bring less than that; ``reached`` is False when there is none, so that the
    knee may lie beyond what was measured. ``confidence`` is the share of resampled measurements with the same knee,
    and ``None`` where strangers took cores from a measurement: resampling cannot see what they did to all of it.
    """

    pool: int
    past: tuple[int, ...]
    reached: bool
    confidence: float | None


@dataclass(frozen=True, slots=True)
class RateAdvice:
    """The highest measured rate that the pool holds, and how sure that is.

    ``rate`` is ``None`` when none held. ``success_low`` is the lower 95 % bound of the share of requests answered in
    time (Clopper and Pearson 1934, one-sided), over ``sent`` requests; ``needed`` is how many requests without a
    failure would be needed to show ``TARGET``. ``why`` says what stopped the next rate.
    """

    rate: float | None
    success: float | None
    success_low: float | None
    sent: int
    needed: int
    why: str

    @property
    def shown(self) -> bool:
        """Say whether ``TARGET`` is shown and not just not contradicted."""
        return self.success_low is not None and self.success_low >= TARGET


@dataclass(frozen=True, slots=True)
class Advice:
    """Everything that is concluded from a sweep of one function. Memory slopes are bytes per session."""

    knee: Knee
    scaling: Scaling | None
    binding: Binding
    memory_slope: Estimate | None
    gpu_memory_slope: Estimate | None
    pool: int
    rate: RateAdvice
    warnings: tuple[str, ...]


def advise(capacities: Sequence[Capacity], cells: Sequence[Cell], seed: int) -> Advice | None:
    """Conclude; ``None`` when no pool was measured or no request was ever answered."""
    measured = sorted(capacities, key=lambda c: c.pool)
    if not measured or max(c.per_second for c in measured) <= 0:
        return None
    knee = find_knee(measured, seed)
    at_knee = next(c for c in measured if c.pool == knee.pool)
    memory, gpu_memory = _memory_slopes(measured)
    warnings = [*_disturbed(measured), *_late(cells)]
    if not knee.reached:
        warnings.append(f"throughput still rises at pool {knee.pool}: the knee may lie beyond; try bigger pools")
    return Advice(
        knee=knee,
        scaling=fit_usl([c.pool for c in measured], [c.slices for c in measured], seed),
        binding=binding(at_knee, memory, gpu_memory),
        memory_slope=memory,
        gpu_memory_slope=gpu_memory,
        pool=knee.pool,
        rate=advise_rate(at_knee, [c for c in cells if c.pool == knee.pool]),
        warnings=tuple(warnings),
    )


def find_knee(capacities: Sequence[Capacity], seed: int) -> Knee:
    """Find the knee in capacities of ascending pool size, at least one above 0."""
    pools = [c.pool for c in capacities]
    index = _knee_index(np.array([c.per_second for c in capacities]))
    draw = np.random.default_rng(seed)
    again = Counter(_knee_index(resample([c.slices for c in capacities], draw)) for _ in range(RESAMPLES))
    past = tuple(pools[index + 1 :])
    disturbed = any(c.usage.disturbed for c in capacities)
    return Knee(pools[index], past, bool(past), None if disturbed else again[index] / RESAMPLES)


def _knee_index(throughputs: np.ndarray[tuple[int], np.dtype[np.float64]]) -> int:
    return int(np.argmax(throughputs >= (1 - WORTH) * throughputs.max()))


def binding(at_knee: Capacity, memory: Estimate | None, gpu_memory: Estimate | None) -> Binding:
    """Say what binds, from what the full pool used and from what one more session would need.

    Memory binds when it is used up, or when one more session would not fit; cores when they are. On a machine that
    the load's sender (or a stranger) shares, its cores count with the server's: they are gone all the same.
    """
    usage, gpu = at_knee.usage, at_knee.usage.gpu
    if _tight(usage.memory_bytes, memory, usage.memory_total_bytes):
        return Binding.MEMORY
    if gpu is not None and _tight(gpu.memory_bytes, gpu_memory, gpu.total_bytes):
        return Binding.MEMORY
    if gpu is not None and gpu.busy is not None and gpu.busy >= FULL:
        return Binding.GPU
    if usage.cpu_share >= FULL or (usage.machine_cpu >= FULL * usage.cores and usage.cpu_share >= 0.5):
        return Binding.CPU
    return Binding.UNKNOWN


def _tight(used: int, per_session: Estimate | None, total: int) -> bool:
    one_more = max(0.0, per_session.value) if per_session else 0.0
    return used >= FULL * total or used + one_more > total


def _memory_slopes(capacities: Sequence[Capacity]) -> tuple[Estimate | None, Estimate | None]:
    pools = [float(c.pool) for c in capacities]
    gpus = [c.usage.gpu for c in capacities]
    known = [float(gpu.memory_bytes) for gpu in gpus if gpu is not None]
    memory = slope(pools, [float(c.usage.memory_bytes) for c in capacities])
    return memory, slope(pools, known) if len(known) == len(pools) else None


def advise_rate(at_pool: Capacity, cells: Sequence[Cell]) -> RateAdvice:
    """Return the highest rate such that it and every lower one held.

    A rate holds when ``TARGET`` of its requests were answered in time *and* it is below what the pool can do at most
    (the lower end of its 95 % interval): at or above that the queue grows without end, which a run shorter than the
    timeout does not show.
    """
    ceiling = sustainable(at_pool)
    held: Cell | None = None
    why = "the highest rate that was sent held: try higher ones"
    for cell in sorted(cells, key=lambda c: c.rate):
        if cell.success < TARGET:
            why = f"at {cell.rate:g}/s only {100 * cell.success:.1f} % were answered in time"
            break
        if cell.rate >= ceiling:
            why = f"{cell.rate:g}/s is not below what the pool can do at most ({ceiling:.3g}/s): its queue would grow"
            break
        held = cell
    needed = needed_requests(TARGET)
    if held is None:
        return RateAdvice(None, None, None, 0, needed, why if cells else "no rate was measured")
    return RateAdvice(held.rate, held.success, success_low(held.ok, held.sent), held.sent, needed, why)


def sustainable(capacity: Capacity) -> float:
    """Return the lower end of the 95 % interval of a pool's capacity, from the spread of its slices."""
    return max(0.0, capacity.per_second - mean_error(capacity.slices))


def success_low(ok: int, sent: int) -> float:
    """Return the one-sided lower 95 % Clopper-Pearson bound of a share."""
    return float(beta.ppf(1 - CONFIDENCE, ok, sent - ok + 1)) if ok else 0.0


def needed_requests(target: float) -> int:
    """Return how many requests without a failure show ``target`` with 95 % confidence: ``target**n <= 0.05``."""
    return int(np.ceil(np.log(1 - CONFIDENCE) / np.log(target)))


def _disturbed(capacities: Sequence[Capacity]) -> list[str]:
    taken = {c.pool: c.usage.strangers_cpu for c in capacities if c.usage.disturbed}
    if not taken:
        return []
    pools = ", ".join(map(str, taken))
    return [
        f"not to be trusted: strangers took up to {max(taken.values()):.1f} cores from pool {pools} while it was kept "
        "full; measure again on a quiet machine"
    ]


def _late(cells: Sequence[Cell]) -> list[str]:
    late = [c for c in cells if c.mean_s is not None and c.lag_p95_s > max(0.02, 0.2 * c.mean_s)]
    if not late:
        return []
    worst = max(late, key=lambda c: c.lag_p95_s)
    return [
        f"the sender fell behind (95 % within {worst.lag_p95_s:.2g} s at {worst.rate:g}/s, pool {worst.pool}): "
        "latencies include this"
    ]
