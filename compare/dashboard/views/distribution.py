"""Latency of a route as curves and tables: the whole distribution, the paired ratio, by hour and by size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compare.charts import ecdf, ratio_histogram
from compare.dashboard.views.words import NOTHING, duration
from compare.figures import Figure, ecdf_figure, hours_figure, ratio_figure, sizes_figure
from compare.phrases import Phrase, joined, plain, say
from compare.policy import Policy
from compare.stats.histogram import Histogram
from compare.tally import SIZES, Sides, Tally

_HOURS = 24


@dataclass(frozen=True, slots=True)
class Slice:
    """An hour or a size of requests: how many pairs, and median and p95 of both sides."""

    name: str
    pairs: int
    baseline: str
    candidate: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """The drawings, which the report has, too, and the tables beside them. ``figures`` are the same numbers for the
    mouse: curves, ratios, and where there are several, hours and sizes."""

    curves: Phrase
    ratios: Phrase
    figures: Mapping[str, Figure]
    hours: tuple[Slice, ...]
    sizes: tuple[Slice, ...]


def build_distribution(data: Tally, policy: Policy) -> Distribution | None:
    """Return the latency of an epoch, ``None`` where no pair was timed."""
    if not data.timed.baseline.total:
        return None
    hours = sorted(data.hours.items(), reverse=True)[:_HOURS]
    sizes = sorted(data.sizes.items(), key=lambda item: _order(item[0]))
    return Distribution(
        ecdf(data.timed.baseline, data.timed.candidate, policy.latency_slo_s),
        ratio_histogram(data.ratios, policy.margins.median_ratio),
        _figures(data, policy, sizes),
        _slices(hours),
        _slices(sizes),
    )


def _figures(data: Tally, policy: Policy, sizes: Sequence[tuple[str, Sides]]) -> Mapping[str, Figure]:
    names, seconds = (policy.baseline, policy.candidate), say("seconds")
    ratio = (say("candidate over baseline, pair by pair"), say("pairs"))
    figures = {
        "curves": ecdf_figure(data, names, seconds),
        "ratios": ratio_figure(data, policy.margins.median_ratio, ratio),
    }
    if len(data.hours) > 1:
        figures["hours"] = hours_figure(sorted(data.hours.items()), names, seconds)
    if len(sizes) > 1:
        figures["sizes"] = sizes_figure([(plain(name), sides) for name, sides in sizes], names, seconds)
    return figures


def _order(size: str) -> int:
    names = [name for _, name in SIZES]
    return names.index(size) if size in names else len(names)


def _slices(groups: Iterable[tuple[str, Sides]]) -> tuple[Slice, ...]:
    return tuple(
        Slice(plain(name), sides.baseline.total, _typical(sides.baseline), _typical(sides.candidate))
        for name, sides in groups
    )


def _typical(side: Histogram) -> str:
    """Return median and p95; a p95 that too few values support is marked."""
    median, tail = side.percentile(0.5), side.percentile(0.95)
    mark = "" if tail.reliable else " *"
    return joined("", (_wait(median.value), " / ", _wait(tail.value), mark))


def _wait(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    return duration(seconds) if seconds < float("inf") else say("no answer")
