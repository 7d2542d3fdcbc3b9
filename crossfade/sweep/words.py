"""What a sweep found, in sentences and in rows of a table. Numbers in, text out."""

from __future__ import annotations

from collections.abc import Sequence

from crossfade.sweep.advice import Advice, Binding
from crossfade.sweep.contention import Contention
from crossfade.sweep.drift import Change, SoakResult
from crossfade.sweep.figures import Capacity, Cell
from crossfade.sweep.scaling import Estimate, Scaling
from crossfade.sweep.usage import Usage

_MB = 1e6
_NOTHING = 1e-6
"""Smaller parameters of the law change no throughput that anyone can measure."""
_UNBOUND = "neither cores nor memory are used up: something else binds (a lock, the codec threads, the load's sender)"


Table = tuple[tuple[str, ...], list[tuple[str, ...]]]
"""The names of the columns, and rows."""


def cell_table(cells: Sequence[Cell]) -> Table:
    """Return a row for each cell; latencies that are lower bounds start with ``≥``. GPUs only where there are any."""
    with_gpu = any(cell.usage.gpu for cell in cells)
    names = ("pool", "rate", "sent", "mean", "p50", "p95", "in time", "lost", "good/s")
    return names + _use_names(with_gpu), [_cell_row(cell) + _use(cell.usage, with_gpu) for cell in cells]


def _cell_row(cell: Cell) -> tuple[str, ...]:
    bound = "≥" if cell.timeouts else ""
    losses = {"refused": cell.refused, "failed": cell.failed, "late": cell.timeouts}
    return (
        str(cell.pool),
        f"{cell.rate:g}/s",
        str(cell.sent),
        *(bound + seconds(value) for value in (cell.mean_s, cell.p50_s, cell.p95_s)),
        f"{100 * cell.success:.1f} %",
        ", ".join(f"{count} {name}" for name, count in losses.items() if count) or "-",
        f"{cell.throughput:.3g}",
    )


def capacity_table(capacities: Sequence[Capacity]) -> Table:
    """Return a row for each pool that was kept full; ``cpu, all`` is what all processes used."""
    with_gpu = any(one.usage.gpu for one in capacities)
    rows = [
        (str(c.pool), f"{c.per_second:.3g}/s", f"{c.usage.machine_cpu:.2f}", *_use(c.usage, with_gpu))
        for c in capacities
    ]
    return ("pool", "at most", "cpu, all", *_use_names(with_gpu)), rows


def _use_names(with_gpu: bool) -> tuple[str, ...]:
    return ("cpu", "memory", "gpu") if with_gpu else ("cpu", "memory")


def _use(usage: Usage, with_gpu: bool) -> tuple[str, ...]:
    own = f"{usage.cpu:.2f}", f"{usage.memory_bytes / _MB:.0f} MB"
    if not with_gpu:
        return own
    if usage.gpu is None:
        return *own, "?"
    busy = "?" if usage.gpu.busy is None else f"{100 * usage.gpu.busy:.0f} %"
    return *own, f"{busy} {usage.gpu.memory_bytes / _MB:.0f} MB"


def seconds(value: float | None) -> str:
    """Return a duration with three digits, in ms below a second; ``-`` for ``None``."""
    if value is None:
        return "-"
    return f"{1000 * value:.3g} ms" if value < 0.9995 else f"{value:.3g} s"


def conclusions(advice: Advice) -> list[str]:
    """Return what is concluded, the recommendation first."""
    return [
        _recommendation(advice),
        *(f"Note: {warning}." for warning in advice.warnings),
        _knee(advice),
        _binding(advice),
        _law(advice.scaling),
    ]


def _recommendation(advice: Advice) -> str:
    rate = advice.rate
    if rate.rate is None or rate.success is None or rate.success_low is None:
        return f"Run pool {advice.pool}; none of the rates held: {rate.why}."
    sure = f"{100 * rate.success:.1f} % of {rate.sent} requests were in time, so at least "
    sure += f"{100 * rate.success_low:.1f} % are, with 95 % confidence"
    if not rate.shown:
        sure += f" (99 % is not shown yet: that takes {rate.needed} requests without a failure)"
    return f"Run pool {advice.pool} and up to {rate.rate:g} requests/s: {sure}. Next rate: {rate.why}."


def _knee(advice: Advice) -> str:
    knee = advice.knee
    sure = "how sure is not known: strangers used the machine"
    if knee.confidence is not None:
        sure = f"the same in {100 * knee.confidence:.0f} % of resampled measurements"
    if not knee.past:
        return f"The knee is not passed: pool {knee.pool} is the biggest that was measured ({sure})."
    past = ", ".join(map(str, knee.past))
    return f"The knee is pool {knee.pool} ({sure}); past it: pool {past}, with less than 5 % more throughput."


def _binding(advice: Advice) -> str:
    what = _UNBOUND if advice.binding is Binding.UNKNOWN else f"{advice.binding.value} bind"
    if advice.binding is Binding.UNKNOWN and advice.knee.confidence is None:
        what = "what binds is not known: strangers used the cores"
    memory = f"memory per session: {_megabytes(advice.memory_slope)}"
    if advice.gpu_memory_slope is not None:
        memory += f", GPU memory per session: {_megabytes(advice.gpu_memory_slope)}"
    return f"{what[0].upper()}{what[1:]}; {memory}."


def _law(scaling: Scaling | None) -> str:
    if scaling is None:
        return "The scalability law needs three pool sizes or more: not fitted."
    text = (
        f"Scalability law: {_interval(scaling.lam)} requests/s per session, contention sigma "
        f"{_interval(scaling.sigma)}, coherence kappa {_interval(scaling.kappa)}; R² {scaling.r_squared:.3f}, "
        f"largest misfit {100 * scaling.misfit:.0f} %"
    )
    if not scaling.tested:
        return f"{text}. Three pool sizes nearly always fit: measure a fourth to test the law."
    if not scaling.fits:
        return f"{text}: throughput bends harder than the law can; trust the measured knee."
    top = "rises throughout" if scaling.peak is None else f"would be highest at pool {scaling.peak:.1f}"
    return f"{text}; throughput {top}."


def _interval(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.3g}"
    value, low, high = (0.0 if abs(part) < _NOTHING else part for part in (estimate.value, estimate.low, estimate.high))
    return f"{value:.3g} ({low:.3g} to {high:.3g})"


def _megabytes(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not known from one pool size"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value / _MB:.1f} MB"
    return f"{estimate.value / _MB:.1f} MB ({estimate.low / _MB:.1f} to {estimate.high / _MB:.1f})"


def contention_sentences(rows: Sequence[Contention]) -> list[str]:
    """Return a sentence for each function of a mixed load."""
    sentences = []
    for row in rows:
        factor = "" if row.slowdown is None else f", {row.slowdown:.2f} times as long"
        sentences.append(
            f"{row.alone.function} at {row.alone.rate:.3g}/s: mean {seconds(row.alone.mean_s)} alone, "
            f"{seconds(row.together.mean_s)} beside the others{factor}; in time "
            f"{100 * row.alone.success:.1f} % and {100 * row.together.success:.1f} %"
        )
    return sentences


def soak_sentences(result: SoakResult) -> list[str]:
    """Return what a soak showed."""
    share = 100 * result.ok / result.sent if result.sent else 0.0
    lines = [
        f"{result.function}, pool {result.pool}: {result.sent} requests at {result.rate:.3g}/s, {share:.2f} % in time"
    ]
    lines += [_changed(name, change) for name, change in (("mean", result.mean), ("p95", result.p95))]
    if result.memory_first is not None and result.memory_last is not None:
        slope = _megabytes(result.memory_slope) if result.memory_slope else "not known"
        grown = 100 * (result.memory_last / result.memory_first - 1)
        lines.append(
            f"memory {result.memory_first / _MB:.0f} MB to {result.memory_last / _MB:.0f} MB ({grown:+.1f} %), "
            f"slope per 1000 requests: {slope}"
        )
    return lines


def _changed(name: str, change: Change | None) -> str:
    if change is None:
        return f"{name}: too few requests to compare the first and the last quarter"
    return (
        f"{name} {seconds(change.first)} in the first quarter, {seconds(change.last)} in the last: "
        f"{change.drift.value} (change {1000 * change.difference.value:+.3g} ms, 95 % interval "
        f"{1000 * (change.difference.low or 0):+.3g} to {1000 * (change.difference.high or 0):+.3g} ms)"
    )
