"""What the gateway counts for Prometheus, in a registry of its own."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from gateway.tally import Tally
from shadow.exchange import Observation


class Metrics:
    """The instruments. Labels are names from the settings and fixed words, never anything a client sent."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._tally = Tally()
        registry.register(self._tally)
        self._refused = Counter(
            "crossfade_refused", "Requests the gateway answered itself.", ["route", "code"], registry=registry
        )
        self._limits_failures = Counter(
            "crossfade_limits_unavailable", "Decisions that the limits' storage could not make.", registry=registry
        )
        self._dry_run = Counter(
            "crossfade_limits_dry_run",
            "Requests that a limit on trial would have refused.",
            ["route", "limit"],
            registry=registry,
        )
        self._waiting = Gauge("crossfade_limits_waiting", "Requests that wait for a slot.", registry=registry)
        self._reloads = Counter("crossfade_reloads", "Changes of the settings.", ["result"], registry=registry)
        self._errors = Counter("crossfade_internal_errors", "Defects met while serving a request.", registry=registry)

        self._fallbacks = Counter(
            "crossfade_fallbacks",
            "Requests answered by the route's other backend.",
            ["route", "backend"],
            registry=registry,
        )
        self._retries = Counter(
            "crossfade_retries",
            "Requests tried at another server of the same backend.",
            ["backend"],
            registry=registry,
        )

        self._websockets = Counter(
            "crossfade_websockets", "WebSockets that ended.", ["route", "backend", "outcome"], registry=registry
        )
        self._websockets_open = Gauge(
            "crossfade_websockets_open", "WebSockets that are open.", ["route", "backend"], registry=registry
        )

    def count_websocket(self, route: str, backend: str, outcome: str) -> None:
        """Count one WebSocket at its end: ``closed``, ``declined`` by the backend, ``gone`` or a problem's code."""
        self._websockets.labels(route, backend, outcome).inc()

    def open_websockets(self, route: str, backend: str, change: int) -> None:
        """Note that a WebSocket was opened (1) or ended (-1)."""
        self._websockets_open.labels(route, backend).inc(change)

    def count_fallback(self, route: str, backend: str) -> None:
        """Count one request that this backend answered in the other's place."""
        self._fallbacks.labels(route, backend).inc()

    def count_retry(self, backend: str) -> None:
        """Count one request that went on to another server, because the first took no connection."""
        self._retries.labels(backend).inc()

    def count_served(self, route: str, seen: Observation) -> None:
        """Count one request that a backend was asked for."""
        self._tally.note(route, seen)

    def count_refused(self, route: str, code: str) -> None:
        """Count one request that got a problem instead of a backend's answer; ``route`` is empty when none matched."""
        self._refused.labels(route, code).inc()

    def count_limits_failure(self) -> None:
        """Count one decision that the policy made instead of the storage."""
        self._limits_failures.inc()

    def count_dry_run(self, route: str, limit: str) -> None:
        """Count one request that the limit of this name would have refused, were it enforced."""
        self._dry_run.labels(route, limit).inc()

    def watch_waiting(self, waiting: Callable[[], int]) -> None:
        """Show at each scrape how many requests wait for a slot."""
        self._waiting.set_function(waiting)

    def count_reload(self, applied: bool) -> None:
        """Count one change of the settings, applied or rejected."""
        self._reloads.labels("applied" if applied else "rejected").inc()

    def count_error(self) -> None:
        """Count one defect."""
        self._errors.inc()

    def render(self) -> bytes:
        """Return everything in the Prometheus text format."""
        return generate_latest(self.registry)
