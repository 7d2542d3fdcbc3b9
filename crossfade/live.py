"""Ask the gateways for what the dashboard shows live: ``/-/status`` and the refusals in ``/-/metrics``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from compare.dashboard.snapshot import GatewayView
from crossfade.served import fetch_metrics

_LIMITED = ("rate_limited", "concurrency_limited", "cost_exceeds_limit")


class GatewayLook:
    """Looks at every gateway. Blocks; safe to use from several threads."""

    def __init__(self, gateways: Sequence[str], client: httpx.Client) -> None:
        self._gateways, self._client = tuple(gateways), client

    def __call__(self) -> GatewayView:
        """Return what they say together; not reached when one of them does not answer."""
        try:
            found = [(self._status(address), fetch_metrics(self._client, address)) for address in self._gateways]
            received: Counter[str] = Counter()
            refused: Counter[str] = Counter()
            for status, metrics in found:
                received.update({name: int(r["account"]["received"]) for name, r in status["routes"].items()})
                refused.update(_refused(metrics))
            mirrors = [status["mirror"] for status, _ in found if status["mirror"]]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return GatewayView()
        return GatewayView(True, received, refused, _together(mirrors))

    def _status(self, address: str) -> Mapping[str, Any]:
        answer = self._client.get(f"{address}/-/status")
        answer.raise_for_status()
        status = answer.json()
        if not isinstance(status, dict):
            raise ValueError("this is no status")
        return status


def _together(mirrors: Sequence[Mapping[str, Any]]) -> Mapping[str, object]:
    """Return the mirrors of several gateways as one: numbers are summed, a flag holds when it holds everywhere, and of
    a breaker's states one that is not closed is shown."""
    found: dict[str, Any] = {}
    for mirror in mirrors:
        for name, value in mirror.items():
            if isinstance(value, bool):
                found[name] = found.get(name, True) and value
            elif isinstance(value, int | float):
                found[name] = found.get(name, 0) + value
            elif isinstance(value, Mapping):
                open_ones = {key: state for key, state in found.get(name, {}).items() if state != "closed"}
                found[name] = {**found.get(name, {}), **value, **open_ones}
    return found


def _refused(metrics: str) -> Counter[str]:
    """Return how many requests a limit refused, by route."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == "crossfade_refused_total" and sample.labels["code"] in _LIMITED:
                found[sample.labels["route"]] += int(sample.value)
    return found
