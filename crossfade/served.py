"""What the gateways say they served, read from their metrics: the part of a ramp's evidence that needs no pair.

A counter belongs to one process; one that is smaller than before began anew with its process, and all of it is new.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from compare.policy import Policy
from compare.ramp_watch import Served

TIMEOUT_S = 2.0
MAX_BYTES = 8 * 1024 * 1024
_GOOD = ("1xx", "2xx", "3xx", "4xx")
_NOBODYS = ("cancelled",)
"""Outcomes that say nothing about a backend: the client left."""

Series = tuple[str, str, tuple[tuple[str, str], ...]]
By = Mapping[tuple[str, str], Served]
"""By route and backend."""
Fetch = Callable[[str], str]


class ServedMeter:
    """Reads the metrics of every gateway and tells what is new since the last reading. Blocks."""

    def __init__(self, gateways: Sequence[str], fetch: Fetch) -> None:
        self._gateways, self._fetch = tuple(gateways), fetch
        self._before: dict[Series, float] = {}
        self._known: set[str] = set()

    def read(self, policies: Mapping[str, Policy]) -> By | None:
        """Return what each backend served of each route (of ``policies``) since the last reading; nothing on the first.

        ``None`` when a gateway does not answer: then nothing is taken as
        read, and the next reading tells of both stretches.
        """
        try:
            texts = [(address, self._fetch(address)) for address in self._gateways]
            seen = {series: value for address, text in texts for series, value in _series(address, text)}
        except (httpx.HTTPError, ValueError):
            return None
        new: defaultdict[str, list[tuple[dict[str, str], float]]] = defaultdict(list)
        for (address, name, labels), value in seen.items():
            if address in self._known:
                before = self._before.get((address, name, labels), 0.0)
                new[name].append((dict(labels), value - before if value >= before else value))
        self._before.update(seen)
        self._known.update(self._gateways)
        return _served(new, policies)


def fetch_metrics(client: httpx.Client, address: str) -> str:
    """Return a gateway's metrics. Raises ``httpx.HTTPError`` or ``ValueError``."""
    with client.stream("GET", f"{address}/-/metrics") as answer:
        answer.raise_for_status()
        held = bytearray()
        for chunk in answer.iter_bytes():
            held += chunk
            if len(held) > MAX_BYTES:
                raise ValueError("these metrics are too long")
    return held.decode("utf-8")


_NAMES = ("crossfade_requests_total", "crossfade_fallbacks_total", "crossfade_backend_seconds_bucket")


def _series(address: str, text: str) -> Iterator[tuple[Series, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in _NAMES:
                yield (address, sample.name, tuple(sorted(sample.labels.items()))), _finite(sample)


def _finite(sample: Sample) -> float:
    value = float(sample.value)
    if not math.isfinite(value):
        raise ValueError(f"{sample.name} is {value}")
    return value


Growth = Sequence[tuple[dict[str, str], float]]
"""By how much each series of a metric grew, with its labels."""


def _served(new: Mapping[str, Growth], policies: Mapping[str, Policy]) -> By:
    requests: Counter[tuple[str, str]] = Counter()
    errors: Counter[tuple[str, str]] = Counter()
    for labels, n in new.get("crossfade_requests_total", ()):
        if labels["outcome"] not in _NOBODYS:
            requests[labels["route"], labels["backend"]] += round(n)
            errors[labels["route"], labels["backend"]] += 0 if labels["outcome"] in _GOOD else round(n)
    for labels, n in new.get("crossfade_fallbacks_total", ()):
        policy = policies.get(labels["route"])
        if policy is not None:  # it took no connection, so the other one answered: an error that no client saw
            other = policy.candidate if labels["backend"] == policy.baseline else policy.baseline
            requests[policy.route, other] += round(n)
            errors[policy.route, other] += round(n)
    slow = _slow(new.get("crossfade_backend_seconds_bucket", ()), policies)
    return {key: Served(n, errors[key], min(slow[key], n)) for key, n in requests.items() if key[0] in policies}


def _slow(buckets: Growth, policies: Mapping[str, Policy]) -> Counter[tuple[str, str]]:
    """Return how many answers took longer than the smallest bucket that holds the objective: never more than did."""
    within: defaultdict[tuple[str, str], Counter[float]] = defaultdict(Counter)
    for labels, n in buckets:
        within[labels["route"], labels["backend"]][float(labels["le"])] += round(n)
    slow: Counter[tuple[str, str]] = Counter()
    for key, counts in within.items():
        policy = policies.get(key[0])
        if policy is not None and policy.latency_slo_s is not None:
            bound = min((b for b in counts if b >= policy.latency_slo_s), default=math.inf)
            slow[key] = max(0, counts[math.inf] - counts[bound])
    return slow
