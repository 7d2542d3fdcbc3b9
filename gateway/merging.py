"""Make one page out of what several workers say. Pure.

The status is added up: numbers are summed, a flag holds when it holds everywhere, and of states the worst one is shown.
Metrics are not summed, but labelled with their worker: a worker that was restarted counts from zero, which Prometheus
understands of a series of its own and would take for a jump in a sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from gateway.condition import ServerState
from shadow.breaker import BreakerState

_WORST_FIRST = (*ServerState, BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED)


def merge_status(parts: Mapping[int, Mapping[str, Any]], asked: int, count: int) -> dict[str, Any]:
    """Return the status of the whole from those of the workers that answered, by number. ``asked`` is the worker that
    answers; the config shown is its own, with a word on whether all have it."""
    own = parts[asked]
    merged: dict[str, Any] = {
        key: _merge([part[key] for part in parts.values() if key in part])
        for key in own
        if key not in ("config", "pid")
    }
    configs = [part["config"] for part in parts.values()]
    everywhere = len(parts) == count and all(_same(config, own["config"]) for config in configs)
    merged["config"] = {**own["config"], "everywhere": everywhere}
    merged["workers"] = [
        {"worker": number, "pid": parts[number]["pid"], "applied": parts[number]["config"]["applied"]}
        if number in parts
        else {"worker": number, "pid": None, "applied": None}
        for number in range(count)
    ]
    return merged


def merge_metrics(texts: Mapping[int, str]) -> bytes:
    """Return the metrics of all workers in the Prometheus text format, each sample labelled with its worker."""
    families: dict[str, Metric] = {}
    for number, text in sorted(texts.items()):
        for found in text_string_to_metric_families(text):
            family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
            for sample in found.samples:
                labels = {**sample.labels, "worker": str(number)}
                family.add_sample(sample.name, labels, sample.value)
    registry = CollectorRegistry()
    registry.register(_Fixed(families.values()))
    return generate_latest(registry)


class _Fixed(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> list[Metric]:
        return self._families


def _same(config: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    return (config["applied"], config["rejected"]) == (own["applied"], own["rejected"])


def _merge(values: Sequence[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        tables = [value for value in values if isinstance(value, dict)]
        return {key: _merge_key(key, tables) for key in dict.fromkeys(key for table in tables for key in table)}
    if isinstance(first, bool):
        return all(values)
    if isinstance(first, int | float):
        return sum(value for value in values if isinstance(value, int | float))
    known = [value for value in values if value in _WORST_FIRST]
    return min(known, key=_WORST_FIRST.index) if known else first


def _merge_key(key: str, tables: Sequence[Mapping[str, Any]]) -> Any:
    found = [table[key] for table in tables if key in table]
    return found[0] if key == "active" else _merge(found)  # the toggle's percents are no counts
