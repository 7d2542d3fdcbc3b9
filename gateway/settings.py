"""The gateway's settings as frozen values. They come from the config file through an injected loader; live clients,
counters and pools are separate objects that are built from these values and never stored in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from shadow.field_names import with_aliases
from shadow.keeping import KeepRule
from shadow.rule import MirrorLimits, ShadowRule, StreamRule


@dataclass(frozen=True)
class Credential:
    """A header that the gateway adds for one backend. The value never appears in a repr."""

    header: str
    value: str = field(repr=False)

    @cached_property
    def pair(self) -> tuple[bytes, bytes]:
        """The header as it is sent, its name in lower case."""
        return self.header.lower().encode("latin-1"), self.value.encode("latin-1")

    @cached_property
    def replaced(self) -> frozenset[bytes]:
        """The names of the client's fields that go when this one comes."""
        return with_aliases({b"authorization", self.pair[0]})


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """An active check: GET ``path`` on every server each ``interval_s``. Any status from 200 to 399 within
    ``timeout_s`` is a success; ``down_after`` failures in a row take a server out, ``up_after`` successes bring it
    back."""

    path: str
    interval_s: float = 5.0
    timeout_s: float = 2.0
    up_after: int = 2
    down_after: int = 3


@dataclass(frozen=True, slots=True)
class ServerRules:
    """When a server of a backend gets no requests for a while.

    ``eject_after`` failures in a row eject it for ``eject_s``, longer each time it is ejected again. After
    ``breaker_failures`` refused connections in a row the breaker opens: for ``breaker_reset_s`` nobody connects, then
    one request tries. A server that comes back gets a share that grows over ``slow_start_s``."""

    check: HealthCheck | None = None
    eject_after: int = 5
    eject_s: float = 10.0
    breaker_failures: int = 5
    breaker_reset_s: float = 1.0
    slow_start_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BackendTls:
    """How a backend is spoken to over TLS, as paths of PEM files: ``ca`` are the authorities that are believed instead
    of the usual ones, ``certificate`` (a chain) and ``key`` are shown to a server that asks. ``server_name`` stands for
    the URL's host in SNI and in the check of the server's certificate."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Backend:
    """Where requests can go. ``servers`` are base URLs (scheme, authority, optional path prefix without a trailing
    slash), or ``unix://`` and the absolute path of a socket. ``timeout_s`` bounds the wait for the whole answer,
    or, where that is a stream (``shadow.media``), for its next part; ``stream_max_s`` bounds such a stream as a whole.
    ``connect_timeout_s`` bounds the connection."""

    name: str
    servers: tuple[str, ...]
    timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    stream_max_s: float | None = None
    credential: Credential | None = None
    tls: BackendTls | None = None
    rules: ServerRules = field(default_factory=ServerRules)


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit. ``quota`` is such as ``10/second``; ``per`` says who is counted together (``caller``, ``address``,
    ``everyone``, ``header:NAME``); ``unit`` is ``request`` or ``megabyte`` (10^6 bytes of request body); without a
    ``strategy`` the general one holds; with ``dry_run`` it counts and refuses nobody."""

    quota: str
    per: str = "caller"
    unit: str = "request"
    strategy: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many requests may be under way at once. Up to ``max_waiting`` more wait for a slot, each at most
    ``max_wait_s``. Routes that give the same ``name`` share the slots."""

    slots: int
    per: str = "everyone"
    name: str | None = None
    max_waiting: int = 0
    max_wait_s: float = 1.0
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Cors:
    """Which web pages may read the gateway's own answers: ``origins`` are whole origins, or ``*`` for every one."""

    origins: tuple[str, ...]
    credentials: bool = False


@dataclass(frozen=True, slots=True)
class ApiCaller:
    """Someone with API keys, known by their SHA-256 in hexadecimal. ``routes`` are those it may use, ``None`` for all;
    its ``limits`` count over all of them."""

    name: str
    keys: tuple[str, ...] = field(repr=False)
    routes: frozenset[str] | None = None
    limits: tuple[str | Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class Route:
    """One feature. ``path`` is an exact path or ends in ``/*`` for everything below it; it is matched against the raw,
    still percent-encoded path. ``active`` maps backend names to whole percents that sum to 100. ``cost`` is what one
    request counts under limits on requests; a ``public`` route asks for no API key. With ``fallback`` the route's other
    backend answers what the chosen one cannot take. With ``websocket`` GET requests may open one."""

    name: str
    path: str
    methods: frozenset[str]
    baseline: str
    candidate: str
    active: Mapping[str, int]
    shadow: ShadowRule = field(default_factory=ShadowRule)
    keep: KeepRule = field(default_factory=KeepRule)
    limits: tuple[str | Limit, ...] = ()
    concurrency: Concurrency | None = None
    cost: int = 1
    public: bool = False
    cors: Cors | None = None
    max_body_bytes: int = 32 * 1024 * 1024
    fallback: bool = False
    websocket: bool = False


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """How requests are counted. ``storage`` is ``memory://`` or ``async+redis://…``; ``strategy`` is ``fixed-window``,
    ``sliding-window-counter`` or ``moving-window``; ``on_failure`` says what happens when the storage cannot answer
    within ``timeout_s``: ``open`` lets the request pass, ``closed`` answers 503, ``local`` counts in this process.
    ``trusted_proxies`` are networks (CIDR) whose ``forwarded_header`` (X-Forwarded-For or Forwarded) counts."""

    storage: str = field(default="memory://", repr=False)
    strategy: str = "moving-window"
    on_failure: str = "open"
    timeout_s: float = 0.05
    trusted_proxies: tuple[str, ...] = ()
    forwarded_header: str = "X-Forwarded-For"


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The gateway's own certificate: paths of the PEM files of the chain and of its key. ``minimum_version`` is ``1.2``
    or ``1.3``."""

    certificate: str
    key: str
    minimum_version: str = "1.2"


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Where spans go: ``endpoint`` is an OTLP/HTTP URL for traces, ``sample`` the share (0 to 1) of the traces that
    begin here; of a client's trace the client decides."""

    endpoint: str
    sample: float = 0.01


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the gateway needs, parsed and checked. ``transport`` is ``own`` or ``httpx``, ``parser`` ``httptools``
    or ``h11``; ``http2`` and ``proxy`` (the URL of one that all requests go through) are for ``httpx`` alone.
    ``replay_budget_bytes`` bounds all bodies that are kept for a fallback; with a ``stream`` workers make the shadow
    calls; ``forwarded`` is the mode of ``gateway.forwarding``."""

    backends: Mapping[str, Backend]
    routes: tuple[Route, ...]
    limits: LimitSettings = field(default_factory=LimitSettings)
    gateway_limits: tuple[str | Limit, ...] = ()
    callers: tuple[ApiCaller, ...] = ()
    mirror: MirrorLimits = field(default_factory=MirrorLimits)
    stream: StreamRule | None = None
    store_url: str | None = field(default=None, repr=False)
    bodies_dir: str | None = None
    store_key: str | None = None
    keep_bodies_days: float = 7.0
    transport: str = "own"
    parser: str = "httptools"
    http2: bool = False
    proxy: str | None = field(default=None, repr=False)
    replay_budget_bytes: int = 64 * 1024 * 1024
    tls: TlsSettings | None = None
    forwarded: str = "off"
    tracing: TracingSettings | None = None


class SettingsSource(Protocol):
    """Where settings come from and how a change is noticed."""

    def fingerprint(self) -> str:
        """Return a value that changes when the settings may have changed. Cheap; called several times a second."""

    def load(self) -> Settings:
        """Parse and check the settings. Raises ``ValueError`` with a message for a person when they are not valid."""
