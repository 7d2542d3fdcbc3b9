"""The gateway's own pages under ``/-/``: is it alive, is it ready, what does it do, and the same in numbers for
Prometheus. Of a gateway with several workers, whichever is asked answers for all."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gateway.condition import ServerState
from gateway.fleet import Fleet
from gateway.generation import Generation
from gateway.merging import merge_metrics, merge_status
from gateway.metrics import Metrics
from gateway.peers import Peers, Snapshot
from gateway.place import Place
from gateway.traffic import NO_ROUTE, Traffic
from shadow.account import AccountSnapshot, RouteAccount, Stamp
from shadow.delivery import Delivery
from shadow.estate import Estates
from shadow.exchange import SkipReason


class MirrorView(Protocol):
    """What the pages read of a mirror."""

    def accounts(self) -> Mapping[str, AccountSnapshot]:
        """Return the account of every route."""

    def skipped(self, route: str) -> Mapping[SkipReason, int]:
        """Return what of one route was skipped, by reason."""

    def status(self) -> dict[str, object]:
        """Return plain values."""


class Ledger:
    """Joins the gateway's count with the mirror's. Two independent counts: their identity can fail, and then it
    shows. With ``deliveries`` the mirror only hands over, and these say what became of it. ``estates`` are the killed
    runs that this one took over."""

    def __init__(
        self,
        traffic: Traffic,
        mirror: MirrorView | None,
        deliveries: Callable[[str], Delivery] | None = None,
        estates: Estates | None = None,
    ) -> None:
        self._traffic = traffic
        self._mirror = mirror
        self._deliveries = deliveries
        self._estates = estates

    def accounts(self, routes: list[str]) -> dict[str, RouteAccount]:
        """Return this run's account of each route; without a mirror only what was received and is open."""
        mirrored = self._mirror.accounts() if self._mirror is not None else {}
        return {route: self._account(route, mirrored.get(route, AccountSnapshot())) for route in routes}

    def continued(self, routes: list[str]) -> dict[str, RouteAccount]:
        """Return the accounts with those of the runs that were taken over, as pages show them: they go on where the
        killed one stopped, what it lost counted."""
        own = self.accounts(routes)
        if self._estates is None:
            return own
        return {route: account.plus(self._estates.account(route)) for route, account in own.items()}

    @property
    def taken_over(self) -> int:
        """How many killed runs the accounts go on from."""
        return self._estates.runs if self._estates is not None else 0

    @property
    def strays(self) -> Mapping[str, int]:
        """What was refused before it was known to which route it belongs, by code."""
        return self._traffic.refused(NO_ROUTE)

    def stamp(self, run_id: str, route: str) -> Stamp:
        """Return what this run has received and skipped on a route as of now."""
        skipped = self._mirror.skipped(route) if self._mirror is not None else {}
        return Stamp(run_id, self._traffic.received(route), self._with_delivered(route, skipped))

    def _account(self, route: str, mirrored: AccountSnapshot) -> RouteAccount:
        in_flight, recorded = self._traffic.open(route) + mirrored.in_flight, mirrored.recorded
        if self._deliveries is not None:
            delivery = self._deliveries(route)
            in_flight += recorded - delivery.recorded - delivery.lost - sum(delivery.skipped.values())
            recorded = delivery.recorded
        skipped = self._with_delivered(route, mirrored.skipped)
        refused = self._traffic.refused(route)
        return RouteAccount(self._traffic.received(route), recorded, in_flight, skipped, refused)

    def _with_delivered(self, route: str, skipped: Mapping[SkipReason, int]) -> Mapping[SkipReason, int]:
        if self._deliveries is None:
            return skipped
        delivery = self._deliveries(route)
        total = Counter(skipped)
        total.update(delivery.skipped)
        if delivery.lost:
            total[SkipReason.LOST] += delivery.lost
        return dict(total)

    def mirror_status(self) -> dict[str, object] | None:
        """Return the mirror's own status, ``None`` when nothing is mirrored."""
        return self._mirror.status() if self._mirror is not None else None


class LedgerCollector(Collector):
    """Shows the ledger to Prometheus as it is at the moment of the scrape."""

    def __init__(self, ledger: Ledger, routes: Callable[[], list[str]]) -> None:
        self._ledger = ledger
        self._routes = routes

    def collect(self) -> list[Metric]:
        """Return the families."""
        received = CounterMetricFamily("crossfade_received", "Requests that passed their limits.", labels=["route"])
        recorded = CounterMetricFamily("crossfade_recorded", "Exchanges stored.", labels=["route"])
        skipped = CounterMetricFamily("crossfade_skipped", "Exchanges not mirrored.", labels=["route", "reason"])
        in_flight = GaugeMetricFamily("crossfade_in_flight", "Exchanges under way.", labels=["route"])
        for route, account in self._ledger.continued(self._routes()).items():
            received.add_metric([route], account.received)
            recorded.add_metric([route], account.recorded)
            in_flight.add_metric([route], account.in_flight)
            for reason, count in account.skipped.items():
                skipped.add_metric([route, reason.value], count)
        return [received, recorded, skipped, in_flight]

    def describe(self) -> list[Metric]:
        """Name nothing in advance: registering must not read the ledger."""
        return []


class FleetCollector(Collector):
    """Shows the servers to Prometheus as they are at the moment of the scrape."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> list[Metric]:
        """Return the families."""
        labels = ["backend", "server"]
        up = GaugeMetricFamily("crossfade_server_up", "1 where a server gets requests.", labels=labels)
        outstanding = GaugeMetricFamily("crossfade_server_outstanding", "Requests under way.", labels=labels)
        requests = CounterMetricFamily("crossfade_server_requests", "Requests begun.", labels=labels)
        ejections = CounterMetricFamily("crossfade_server_ejections", "Ejections for failures.", labels=labels)
        for view in self._fleet.views():
            key = [view.backend, view.server]
            up.add_metric(key, float(view.state in (ServerState.UP, ServerState.STARTING)))
            outstanding.add_metric(key, view.outstanding)
            requests.add_metric(key, view.served)
            ejections.add_metric(key, view.ejections)
        return [up, outstanding, requests, ejections]

    def describe(self) -> list[Metric]:
        """Name nothing in advance."""
        return []


class Pages:
    """The endpoints. ``current`` and ``config_status`` read the reloader; they may only be called while the gateway
    runs."""

    def __init__(
        self,
        *,
        current: Callable[[], Generation],
        config_status: Callable[[], dict[str, str | None]],
        is_ready: Callable[[], bool],
        ledger: Callable[[], Ledger],
        fleet: Fleet,
        metrics: Metrics,
        place: Place,
    ) -> None:
        self.peers = Peers(place, self._snapshot)
        self._fleet = fleet
        self._current = current
        self._config_status = config_status
        self._is_ready = is_ready
        self._ledger = ledger
        self._metrics = metrics

    def routes(self) -> list[Route]:
        """Return the routes for the application."""
        return [
            Route("/-/live", self._live),
            Route("/-/ready", self._ready),
            Route("/-/status", self._status),
            Route("/-/metrics", self._prometheus),
        ]

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def _ready(self, request: Request) -> Response:
        ready = self._is_ready()
        return JSONResponse({"status": "ready" if ready else "not ready"}, status_code=200 if ready else 503)

    async def _status(self, request: Request) -> Response:
        document = self._document()
        if self.peers.place.count > 1:
            place = self.peers.place
            parts = {number: snapshot["status"] for number, snapshot in (await self.peers.gather()).items()}
            document = merge_status(parts, place.number, place.count)
        return JSONResponse(document, headers={"cache-control": "no-store"})

    async def _prometheus(self, request: Request) -> Response:
        if self.peers.place.count == 1:
            return PlainTextResponse(self._metrics.render(), media_type=CONTENT_TYPE_LATEST)
        texts = {number: snapshot["metrics"] for number, snapshot in (await self.peers.gather()).items()}
        return PlainTextResponse(merge_metrics(texts), media_type=CONTENT_TYPE_LATEST)

    def _snapshot(self) -> Snapshot:
        return {"status": {**self._document(), "pid": os.getpid()}, "metrics": self._metrics.render().decode()}

    def _document(self) -> dict[str, object]:
        ledger, routes = self._ledger(), self._current().settings.routes
        accounts = ledger.continued([route.name for route in routes])
        return {
            "config": self._config_status(),
            "routes": {
                route.name: {
                    "baseline": route.baseline,
                    "candidate": route.candidate,
                    "active": dict(route.active),
                    "account": _plain(accounts[route.name]),
                }
                for route in routes
            },
            "backends": _servers_by_backend(self._fleet),
            "mirror": ledger.mirror_status(),
            "refused": dict(ledger.strays),
            "taken_over": ledger.taken_over,
        }


def _servers_by_backend(fleet: Fleet) -> dict[str, dict[str, dict[str, object]]]:
    document: dict[str, dict[str, dict[str, object]]] = {}
    for view in fleet.views():
        document.setdefault(view.backend, {})[view.server] = {
            "state": view.state.value,
            "outstanding": view.outstanding,
            "served": view.served,
            "ejections": view.ejections,
        }
    return document


def _plain(account: RouteAccount) -> dict[str, object]:
    return {
        "received": account.received,
        "recorded": account.recorded,
        "in_flight": account.in_flight,
        "skipped": {reason.value: count for reason, count in account.skipped.items()},
        "refused": dict(account.refused),
        "balanced": account.balanced,
    }
