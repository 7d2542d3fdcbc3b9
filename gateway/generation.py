"""One configuration, made ready: what a request is served by from its first to its last byte.

A generation is frozen. A change of the settings makes a new one; requests that are under way keep the one they began
with."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

import httpx

from gateway.backend_tls import ClientContexts
from gateway.callers import Callers
from gateway.forwarding import Forwarding
from gateway.keyring import Keyring
from gateway.limiting.book import RuleBook
from gateway.limiting.limiter import Limiter
from gateway.routing import RouteTable
from gateway.settings import Backend, Route, Settings
from gateway.transport.own import origin_of
from gateway.transport.pool import Origin
from shadow.servers import Way

SOCKET_SCHEME = "unix://"


@dataclass(frozen=True)
class Server:
    """One address of a backend, taken apart: ``name`` is its base URL, ``prefix`` goes before every request-target."""

    name: str
    url: httpx.URL
    authority: bytes
    prefix: bytes
    origin: Origin

    @cached_property
    def way(self) -> Way:
        """The same for the mirror."""
        return Way(self.name, self.url.copy_with(raw_path=self.prefix or b"/"), {"origin": self.origin})

    def request_url(self, target: bytes) -> httpx.URL:
        """Return a URL for people and test doubles; the bytes on the wire come from the ``target`` extension."""
        try:
            return self.url.copy_with(raw_path=self.prefix + target)
        except httpx.InvalidURL:
            return self.url


class Choice(NamedTuple):
    """A backend with its servers, and its waits as the transport takes them."""

    backend: Backend
    servers: tuple[Server, ...]
    waits: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Generation:
    """Settings with all that is derived from them. The limiter outlives generations that do not change its settings."""

    settings: Settings
    applied_at: datetime
    table: RouteTable
    choices: Mapping[str, Choice]
    rules: RuleBook
    callers: Callers
    forwarding: Forwarding
    keyring: Keyring
    limiter: Limiter

    @property
    def servers(self) -> Mapping[str, tuple[Server, ...]]:
        """The servers of each backend."""
        return {name: choice.servers for name, choice in self.choices.items()}


def prepare(settings: Settings, limiter: Limiter, applied_at: datetime, contexts: ClientContexts) -> Generation:
    """Build a generation. Raises ``ValueError`` with a message for a person when the settings do not fit together."""
    servers = all_servers(settings, contexts)
    callers, rules, keyring = _check_rules(settings)
    return Generation(
        settings=settings,
        applied_at=applied_at,
        table=RouteTable(settings.routes),
        choices={name: _choice(backend, servers[name]) for name, backend in settings.backends.items()},
        rules=rules,
        callers=callers,
        keyring=keyring,
        forwarding=Forwarding(settings.forwarded, settings.limits.trusted_proxies),
        limiter=limiter,
    )


def check(settings: Settings) -> None:
    """Raise ``ValueError`` like ``prepare``, but need nothing that is alive."""
    all_servers(settings, ClientContexts())
    _check_rules(settings)


def _check_rules(settings: Settings) -> tuple[Callers, RuleBook, Keyring]:
    """Return what tells and limits callers."""
    for route in settings.routes:
        _check_route(route, settings.backends)
    names = {route.name for route in settings.routes}
    for caller in settings.callers:
        if caller.routes is not None and caller.routes - names:
            raise ValueError(f"callers.{caller.name}: there is no route '{min(caller.routes - names)}'")
    callers = Callers(settings.limits.trusted_proxies, settings.limits.forwarded_header)
    return callers, RuleBook(settings, callers), Keyring(settings.callers)


def _check_route(route: Route, backends: Mapping[str, Backend]) -> None:
    for name in (route.baseline, route.candidate, *route.active):
        if name not in backends:
            raise ValueError(f"route {route.name}: there is no backend '{name}'")
    if sum(route.active.values()) != 100 or min(route.active.values()) < 0:
        raise ValueError(f"route {route.name}: the active percents must sum to 100")


def _choice(backend: Backend, servers: tuple[Server, ...]) -> Choice:
    connect_s, answer_s = backend.connect_timeout_s, backend.timeout_s
    waits = {"connect": connect_s, "pool": connect_s, "read": answer_s, "write": answer_s}
    return Choice(backend, servers, waits)


def all_servers(settings: Settings, contexts: ClientContexts) -> dict[str, tuple[Server, ...]]:
    """Return the servers of every backend. Raises ``ValueError`` like ``prepare``."""
    servers = {name: _servers_of(backend, contexts) for name, backend in settings.backends.items()}
    if settings.transport == "own" and (settings.http2 or settings.proxy is not None):
        raise ValueError("gateway: http2 and proxy need gateway.transport: httpx")
    for name, backend in settings.backends.items():
        by_socket = any(server.origin.socket_path is not None for server in servers[name])
        if settings.transport == "httpx" and (by_socket or backend.tls is not None):
            what = "Unix sockets" if by_socket else "TLS settings of a backend"
            raise ValueError(f"backends.{name}: {what} need gateway.transport: own")
    return servers


def _servers_of(backend: Backend, contexts: ClientContexts) -> tuple[Server, ...]:
    if not backend.servers:
        raise ValueError(f"backends.{backend.name}: no servers")
    context = contexts.get(backend.name, backend.tls) if backend.tls is not None else None
    servers = tuple(_server(backend, text, context) for text in backend.servers)
    if backend.tls is not None and all(server.origin.name is None for server in servers):
        raise ValueError(f"backends.{backend.name}.tls: none of its servers begins with https://")
    return servers


def _server(backend: Backend, text: str, context: ssl.SSLContext | None) -> Server:
    if text.startswith(SOCKET_SCHEME):
        url = httpx.URL("http://localhost")
        return Server(text, url, url.netloc, b"", origin_of(url, socket_path=text.removeprefix(SOCKET_SCHEME)))
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ValueError(f"backends.{backend.name}: '{text}' is no URL") from error
    if url.scheme not in ("http", "https") or not url.host:
        raise ValueError(f"backends.{backend.name}: '{text}' must begin with http:// or https:// and name a host")
    name = backend.tls.server_name if backend.tls is not None else None
    origin = origin_of(url, name=name, context=context)
    return Server(text, url, url.netloc, url.raw_path.rstrip(b"/"), origin)
