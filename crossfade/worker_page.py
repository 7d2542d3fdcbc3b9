"""The pages of a worker: ``/-/status`` and ``/-/live``, and ``/metrics`` for Prometheus. Off unless asked for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from redis.exceptions import RedisError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from shadow.breaker import BreakerState
from shadow.mirror import Mirror
from shadow.stream import Stream
from shadow.worker import Work, Worker

LOOPBACK = "127.0.0.1"


class View(NamedTuple):
    """What a worker shows: what it did, how many exchanges it has in its hands, what its mirror says
    (``Mirror.status``), and what waits in the stream: given to some worker, and to none; ``None`` where Redis does not
    answer."""

    work: Work
    in_flight: int
    mirror: dict[str, Any]
    backlog: tuple[int, int] | None


def parse_address(text: str) -> tuple[str, int]:
    """Return (host, port) of ``HOST:PORT``, ``:PORT`` or ``PORT``; loopback without a host. Raises ``ValueError``."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"--metrics is {text}, but must be PORT or HOST:PORT, such as 127.0.0.1:9100")
    return host.strip("[]") or LOOPBACK, int(port)


def listen(address: tuple[str, int]) -> socket.socket:
    """Return a socket that listens there. Raises ``ValueError`` for a person."""
    try:
        family, _, _, _, place = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        raise ValueError(f"--metrics: cannot listen on {address[0]} port {address[1]}: {error.strerror}") from error


async def serve(worker: Worker, mirror: Mirror, stream: Stream, listener: socket.socket) -> None:
    """Serve the pages until cancelled; owns the listener."""
    app = Starlette(routes=_Pages(worker, mirror, stream).routes())
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False, timeout_graceful_shutdown=1
    )
    server = _Server(config)
    try:
        await server.serve(sockets=[listener])
    except asyncio.CancelledError:
        await server.shutdown(sockets=[listener])
        raise


class _Server(uvicorn.Server):
    """uvicorn's server with the process left to the worker."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


class _Pages:
    def __init__(self, worker: Worker, mirror: Mirror, stream: Stream) -> None:
        self._worker = worker
        self._mirror = mirror
        self._stream = stream

    def routes(self) -> list[Route]:
        return [
            Route("/-/live", self._live),
            Route("/-/status", self._status),
            Route("/metrics", self._metrics),
            Route("/-/metrics", self._metrics),  # where a gateway has them
        ]

    async def _live(self, request: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def _status(self, request: Request) -> Response:
        return JSONResponse(document(await self._look()), headers={"cache-control": "no-store"})

    async def _metrics(self, request: Request) -> Response:
        registry = CollectorRegistry()
        registry.register(_Fixed(families(await self._look())))
        return PlainTextResponse(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def _look(self) -> View:
        backlog: tuple[int, int] | None = None
        with contextlib.suppress(RedisError, OSError):
            backlog = await self._stream.backlog()
        return View(self._worker.work, self._worker.in_flight, self._mirror.status(), backlog)


class _Fixed(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def document(view: View) -> dict[str, object]:
    """Return the status page."""
    work = view.work
    return {
        "taken": work.taken,
        "recorded": work.recorded,
        "failed": work.failed,
        "returned": work.returned,
        "given_up": work.given_up,
        "skipped": {reason.value: count for reason, count in work.skipped.items()},
        "in_flight": view.in_flight,
        "stream": None if view.backlog is None else {"pending": view.backlog[0], "undelivered": view.backlog[1]},
        "mirror": view.mirror,
    }


def families(view: View) -> list[Metric]:
    """Return the metrics."""
    work, found = view.work, list[Metric]()
    for name, text, count in (
        ("taken", "Exchanges taken from the stream.", work.taken),
        ("recorded", "Exchanges stored.", work.recorded),
        ("failed", "Exchanges stored whose shadow gave no whole answer.", work.failed),
        ("returned", "Exchanges left in the stream for another attempt.", work.returned),
        ("given_up", "Exchanges given up: tried too often, too large, or never to be opened.", work.given_up),
    ):
        found.append(CounterMetricFamily(f"crossfade_worker_{name}", text, value=count))
    skipped = CounterMetricFamily("crossfade_worker_skipped", "Exchanges not mirrored.", labels=["reason"])
    for reason, number in work.skipped.items():
        skipped.add_metric([reason.value], number)
    in_flight = GaugeMetricFamily("crossfade_worker_in_flight", "Exchanges taken and not done.", value=view.in_flight)
    opened = GaugeMetricFamily(
        "crossfade_worker_breaker_open", "1 while a backend is not called, because it refuses.", labels=["backend"]
    )
    for backend, state in view.mirror["breakers"].items():
        opened.add_metric([backend], float(state != BreakerState.CLOSED))
    found += [skipped, in_flight, opened]
    up = GaugeMetricFamily("crossfade_stream_up", "1 while Redis answers.", value=float(view.backlog is not None))
    pending = GaugeMetricFamily("crossfade_stream_pending", "Exchanges given to a worker and not done.")
    undelivered = GaugeMetricFamily("crossfade_stream_undelivered", "Exchanges that no worker was given yet.")
    if view.backlog is not None:
        pending.add_metric([], view.backlog[0])
        undelivered.add_metric([], view.backlog[1])
    return [*found, up, pending, undelivered]
