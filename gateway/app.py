"""The composition root: builds everything once per lifespan, passes it down, and closes it in the reverse order.

Nothing is built at import, and nothing live before the lifespan
starts.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import httpx
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from gateway.alarm import Alarms
from gateway.backend_tls import ClientContexts
from gateway.checks import HealthChecks
from gateway.fields import HttpDate
from gateway.fleet import Fleet
from gateway.front import front
from gateway.generation import Generation, prepare
from gateway.generation import check as check_rules
from gateway.intake import BodyPace
from gateway.limiting.limiter import Limiter
from gateway.metrics import Metrics
from gateway.mirroring import Mirroring, Surroundings
from gateway.observe import FleetCollector, Ledger, LedgerCollector, Pages
from gateway.place import Place, check_limits, share
from gateway.relay import Relay, Tap
from gateway.reload import POLL_S, Reloader
from gateway.settings import LimitSettings, Route, Settings, SettingsSource, TracingSettings
from gateway.tasks import keep_running
from gateway.tracing import NoTracing, Tracing
from gateway.traffic import NO_ROUTE, Traffic
from gateway.transport.own import OwnTransport
from gateway.transport.pool import PoolLimits
from gateway.transport.proxied import ProxiedTransport
from shadow.exchange import Exchange
from shadow.sampling import Sampler
from shadow.tee import ByteBudget

_ID_BYTES = 16
_IDS_AT_ONCE = 256

TransportFactory = Callable[[], httpx.AsyncBaseTransport]
TracingFactory = Callable[[TracingSettings], Tracing]


def stock_transport(*, http2: bool = False, proxy: str | None = None) -> httpx.AsyncBaseTransport:
    """Return httpx's own transport with a pool of a gateway's size, through the proxy where there is one. Nothing is
    retried and no proxy variable is read.

    Idle connections go after four seconds, before the five after which many servers close theirs. Raises ``ValueError``
    when the package for HTTP/2 is not installed.
    """
    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=200, keepalive_expiry=4.0)
    try:
        transport = httpx.AsyncHTTPTransport(http1=True, http2=http2, limits=limits, retries=0, proxy=proxy)
    except ImportError as error:
        raise ValueError("gateway.http2 needs one more package: install crossfade[http2]") from error
    return ProxiedTransport(transport) if proxy is not None else transport


def own_transport() -> httpx.AsyncBaseTransport:
    """Return the gateway's own transport with a pool of the same size."""
    return OwnTransport(pool=PoolLimits(total=1000, per_server=1000, idle_s=4.0))


def open_transport(settings: Settings) -> httpx.AsyncBaseTransport:
    """Return a transport of the kind that the settings name."""
    if settings.transport == "httpx":
        return stock_transport(http2=settings.http2, proxy=settings.proxy)
    return own_transport()


TRANSPORTS: Mapping[str, TransportFactory] = {"own": own_transport, "httpx": stock_transport}


def utc_now() -> datetime:
    """Return the wall time in UTC."""
    return datetime.now(UTC)


class RandomIds:
    """Makes request ids: 128 random bits in hexadecimal. The system is asked for many at once."""

    def __init__(self) -> None:
        self._ids: list[str] = []

    def __call__(self) -> str:
        """Return the next."""
        if not self._ids:
            text = os.urandom(_ID_BYTES * _IDS_AT_ONCE).hex()
            self._ids = [text[at : at + 2 * _ID_BYTES] for at in range(0, len(text), 2 * _ID_BYTES)]
        return self._ids.pop()


def otel_tracing(settings: TracingSettings) -> Tracing:
    """Return tracing that exports. Raises ``ValueError`` when the packages for it are not installed."""
    try:
        from gateway.otel import OtelTracing, export_to
    except ModuleNotFoundError as error:
        raise ValueError(f"tracing needs more packages ({error.name}): install crossfade[otel]") from error
    return OtelTracing(settings, export_to(settings))


@dataclass(frozen=True, slots=True)
class Parts:
    """What the outside world provides; tests put other things here. ``clock`` is monotonic seconds, ``now`` is UTC,
    ``new_id`` returns hexadecimal. With a ``tap`` given no mirror is built: the exchanges go there, with the bytes they
    hold of the budget. Without a ``transport_factory`` the settings name the transport."""

    transport_factory: TransportFactory | None = None
    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = utc_now
    new_id: Callable[[], str] = field(default_factory=RandomIds)
    rng: random.Random = field(default_factory=random.SystemRandom)
    tap: Tap | None = None
    poll_s: float = POLL_S
    pace: BodyPace = field(default_factory=BodyPace)
    place: Place = field(default_factory=Place)
    tracing_factory: TracingFactory = otel_tracing


def create_app(source: SettingsSource, parts: Parts | None = None) -> Starlette:
    """Return the gateway as an ASGI application. Its lifespan raises ``ValueError`` when the first settings are not
    valid."""
    gateway = _Gateway(source, parts or Parts())
    app = Starlette(routes=gateway.pages.routes(), lifespan=gateway.lifespan)
    # Not a catch-all Route: its pattern is matched against the decoded path, where a line feed would end the match.
    app.router.redirect_slashes = False
    app.router.default = gateway.serve
    app.state.takes_websocket, app.state.date = gateway.takes_websocket, gateway.date
    app.state.note_stray, app.state.reload = gateway.note_stray, gateway.reload
    app.state.front = front(gateway.serve, app, gateway.date)
    return app


def check(settings: Settings, workers: int) -> None:
    """Raise ``ValueError``, with a message for a person, when the settings cannot be served by so many workers."""
    _check_fit(settings, workers)
    check_rules(settings)


def _check_fit(settings: Settings, workers: int) -> None:
    if settings.transport not in TRANSPORTS:
        raise ValueError(f"gateway.transport: '{settings.transport}' is not known; there is own, httpx")
    if settings.store_url is not None and settings.bodies_dir is None:
        raise ValueError("store.bodies is needed where there is a store")
    check_limits(settings, workers)


class _Gateway:
    """Owns the live objects of one lifespan."""

    def __init__(self, source: SettingsSource, parts: Parts) -> None:
        self._source = source
        self._parts = parts
        self._metrics = Metrics()
        self._traffic = Traffic()
        self._ledger = Ledger(self._traffic, None)
        self._fleet = Fleet(parts.clock, parts.rng)
        self._checks: HealthChecks | None = None
        self._stack = AsyncExitStack()
        self._mirroring: Mirroring | None = None
        self._relay: Relay | None = None
        self._reloader: Reloader | None = None
        self._run_id = parts.new_id()
        self._date = HttpDate()
        self._contexts = ClientContexts()
        self._ready = False
        self.pages = Pages(
            current=lambda: self._running.current(),
            config_status=lambda: self._running.status(),
            is_ready=lambda: self._ready,
            ledger=lambda: self._ledger,
            fleet=self._fleet,
            metrics=self._metrics,
            place=parts.place,
        )

    def serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve what is not the gateway's own."""
        assert self._relay is not None, "requests come only while the lifespan runs"
        relay = self._relay.bridge if scope["type"] == "websocket" else self._relay
        return relay(scope, receive, send)

    def reload(self) -> None:
        """Load the settings anew, soon; before the start nothing is needed."""
        if self._reloader is not None:
            self._reloader.request()

    def note_stray(self, code: str) -> None:
        """Count a head that was refused before it was a request, by the problem's code."""
        self._traffic.refuse(NO_ROUTE, code)
        self._metrics.count_refused(NO_ROUTE, code)

    def date(self) -> bytes:
        """Return the time as a Date field has it."""
        return self._date(self._parts.now())

    def takes_websocket(self, target: bytes) -> bool:
        """Whether a WebSocket may be opened at this raw target."""
        route = self._running.current().table.match("GET", target.partition(b"?")[0])
        return isinstance(route, Route) and route.websocket

    @asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Build, serve, and close in the reverse order."""
        async with self._stack:
            await self._start()
            self._ready = True
            yield
            self._ready = False

    @property
    def _running(self) -> Reloader:
        assert self._reloader is not None, "requests come only while the lifespan runs"
        return self._reloader

    async def _start(self) -> None:
        fingerprint, whole = self._source.fingerprint(), self._source.load()
        settings = share(whole, self._parts.place.count)
        await self._start_mirroring(settings)
        transport = self._open_transport(settings)
        self._checks = HealthChecks(transport, self._fleet.note_check, self._parts.rng)
        self._stack.push_async_callback(self._checks.aclose)
        self._reloader = Reloader(
            self._source,
            self._rebuild,
            current=self._build(whole, None),
            fingerprint=fingerprint,
            count=self._metrics.count_reload,
            poll_s=self._parts.poll_s,
        )
        self._metrics.watch_waiting(lambda: self._running.current().limiter.waiting)
        self._metrics.registry.register(LedgerCollector(self._ledger, self._route_names))
        self._metrics.registry.register(FleetCollector(self._fleet))
        if self._mirroring is not None:
            await self._mirroring.keep_books(self._stack)
        keep_running(self._stack, self._reloader.run(), "reload")
        await self.pages.peers.start()
        self._stack.push_async_callback(self.pages.peers.aclose)
        alarms = Alarms()
        self._stack.callback(alarms.close)
        self._relay = Relay(
            current=self._reloader.current,
            transport=transport,
            fleet=self._fleet,
            budget=self._budget(settings),
            disk=self._mirroring.disk if self._mirroring is not None else None,
            replay_budget=ByteBudget(settings.replay_budget_bytes),
            pace=self._parts.pace,
            tap=self._tap(),
            blocks=self._mirroring.blocks if self._mirroring is not None else _block_nothing,
            sampler=Sampler(self._parts.clock, self._parts.place.count),
            tracing=self._open_tracing(settings),
            traffic=self._traffic,
            metrics=self._metrics,
            clock=self._parts.clock,
            now=self._parts.now,
            new_id=self._parts.new_id,
            alarms=alarms,
        )

    def _tap(self) -> Tap:
        if self._parts.tap is not None:
            return self._parts.tap
        return self._mirroring.tap if self._mirroring is not None else _ignore

    def _budget(self, settings: Settings) -> ByteBudget | None:
        """Return what the tees reserve from; without anybody who takes the exchanges nothing is kept."""
        if self._mirroring is not None:
            return self._mirroring.budget
        return ByteBudget(settings.mirror.byte_budget_bytes) if self._parts.tap is not None else None

    async def _start_mirroring(self, settings: Settings) -> None:
        if settings.store_url is None or self._parts.tap is not None:
            return
        parts = self._parts
        around = Surroundings(
            traffic=self._traffic,
            fleet=self._fleet,
            clock=parts.clock,
            now=parts.now,
            rng=parts.rng,
            run_id=self._run_id,
            route_names=self._route_names,
            first=parts.place.number == 0,
        )
        transport = self._open_transport(settings) if settings.stream is None else None
        self._mirroring = await Mirroring.start(settings, transport, around, self._stack)
        self._ledger = self._mirroring.ledger

    def _open_transport(self, settings: Settings) -> httpx.AsyncBaseTransport:
        factory = self._parts.transport_factory
        transport = factory() if factory is not None else open_transport(settings)
        self._stack.push_async_callback(transport.aclose)
        return transport

    def _open_tracing(self, settings: Settings) -> Tracing:
        if settings.tracing is None:
            return NoTracing()
        tracing = self._parts.tracing_factory(settings.tracing)
        self._stack.push_async_callback(tracing.aclose)
        return tracing

    def _rebuild(self, settings: Settings) -> Generation:
        return self._build(settings, self._running.current())

    def _build(self, settings: Settings, previous: Generation | None) -> Generation:
        """Make a generation, changing nothing when it raises ``ValueError``."""
        _check_fit(settings, self._parts.place.count)
        if previous is not None and _fixed_part(settings) != _fixed_part(previous.settings):
            raise ValueError("a change of store, transport, parser, mirror, TLS or tracing needs a restart")
        kept = previous is not None and _storage_part(previous.settings) == _storage_part(settings)
        limiter = previous.limiter if previous is not None and kept else self._limiter(settings)
        generation = prepare(settings, limiter, self._parts.now(), self._contexts)
        if self._mirroring is not None:
            self._mirroring.configure(settings, generation.servers)
        self._fleet.configure(settings.backends)
        if self._checks is not None:
            self._checks.configure(settings.backends, generation.servers)
        if not kept:
            # Not closed before the end: requests that began with it may still ask it.
            self._stack.push_async_callback(limiter.aclose)
        return generation

    def _limiter(self, settings: Settings) -> Limiter:
        return Limiter(
            settings.limits,
            clock=self._parts.clock,
            count_failure=self._metrics.count_limits_failure,
        )

    def _route_names(self) -> list[str]:
        return [route.name for route in self._running.current().settings.routes]


def _ignore(exchange: Exchange) -> None:
    """Take no notice: nothing is mirrored."""


def _block_nothing(route: str, backend: str) -> bool:
    """Let every exchange come: whoever takes them has no breaker."""
    return False


def _fixed_part(settings: Settings) -> tuple[object, ...]:
    store = settings.store_url, settings.bodies_dir, settings.store_key, settings.keep_bodies_days
    wire = settings.transport, settings.parser, settings.tls, settings.tracing
    return (settings.mirror, settings.stream, settings.replay_budget_bytes, *wire, *store)


def _storage_part(settings: Settings) -> LimitSettings:
    """Return what a limiter is made of; a change of anything else keeps its counts."""
    return replace(settings.limits, strategy="", trusted_proxies=(), forwarded_header="")
