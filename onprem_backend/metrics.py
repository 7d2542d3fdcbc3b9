"""What the server counts and measures, for Prometheus, in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64)

Gauge = tuple[str, str, dict[str, str], float]
"""Name, help, labels, value."""


class Metrics:
    """All metrics of one server. Safe to use from several threads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "onprem_requests",
            "Pictures answered, those of albums too; code is ok or the problem's.",
            ["feature", "model", "code"],
            registry=self.registry,
        )
        self.queue = self._histogram("queue", "Seconds a picture waited for its turn, for a session and for its batch.")
        self.inference = self._histogram("inference", "Seconds of a picture's run, which a batch shares.")
        self.decode = self._histogram("decode", "Seconds of decoding and preparing a picture.")
        self.encode = self._histogram("encode", "Seconds of finishing and encoding a result.")
        self.batch_size = Histogram(
            "onprem_batch_size", "Pictures in one run.", ["model"], buckets=_SIZES, registry=self.registry
        )
        self.retries = Counter(
            "onprem_retries",
            "Runs repeated in smaller pieces; reason is out_of_memory or batch_failed.",
            ["model", "reason"],
            registry=self.registry,
        )

    def observe_now(self, gauges: Callable[[], Iterable[Gauge]]) -> None:
        """Ask ``gauges`` for its values at every scrape."""
        self.registry.register(_AtScrape(gauges))

    def _histogram(self, step: str, text: str) -> Histogram:
        return Histogram(f"onprem_{step}_seconds", text, ["model"], buckets=_SECONDS, registry=self.registry)


class _AtScrape(Collector):
    def __init__(self, gauges: Callable[[], Iterable[Gauge]]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[GaugeMetricFamily]:
        families: dict[str, GaugeMetricFamily] = {}
        for name, text, labels, value in self._gauges():
            family = families.setdefault(name, GaugeMetricFamily(name, text, labels=list(labels)))
            family.add_metric(list(labels.values()), value)
        yield from families.values()

    def describe(self) -> Iterator[GaugeMetricFamily]:
        return iter(())
