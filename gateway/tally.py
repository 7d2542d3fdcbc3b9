"""What backends served, in plain numbers that Prometheus reads.

Every request passes here. The library's own instruments look up labels, take locks and look for exemplars, which costs
several times what is done here on the one event loop."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from shadow.exchange import Observation

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_CLASSES: dict[int | None, str] = {None: "0xx", **{status: f"{status // 100}xx" for status in range(100, 1000)}}


@dataclass(slots=True)
class _Durations:
    """How many took at most each bound, the last one without a bound, and how long all took together."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0


class Tally(Collector):
    """Counts on the event loop and is read there."""

    def __init__(self) -> None:
        self._served: Counter[tuple[str, str, str]] = Counter()
        self._durations: dict[tuple[str, str], _Durations] = {}

    def note(self, route: str, seen: Observation) -> None:
        """Count one request that a backend was asked for."""
        outcome = seen.failure.kind.value if seen.failure is not None else _CLASSES[seen.status]
        self._served[route, seen.backend, outcome] += 1
        if seen.total_s is None:
            return
        durations = self._durations.get((route, seen.backend))
        if durations is None:
            durations = self._durations[route, seen.backend] = _Durations()
        durations.counts[bisect_left(BOUNDS_S, seen.total_s)] += 1
        durations.sum_s += seen.total_s

    def collect(self) -> Iterator[Metric]:
        """Return the two metrics."""
        served = CounterMetricFamily(
            "crossfade_requests", "Requests served by a backend.", labels=["route", "backend", "outcome"]
        )
        for labels, count in self._served.items():
            served.add_metric(labels, count)
        yield served
        seconds = HistogramMetricFamily(
            "crossfade_backend_seconds", "Time from the request to the end of the answer.", labels=["route", "backend"]
        )
        bounds = [*map(str, BOUNDS_S), "+Inf"]
        for pair, durations in self._durations.items():
            seconds.add_metric(pair, list(zip(bounds, accumulate(durations.counts), strict=True)), durations.sum_s)
        yield seconds
