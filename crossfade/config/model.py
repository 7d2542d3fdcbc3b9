"""The shape of the config file, as frozen pydantic models. Unknown keys are refused; secrets never show in a repr.

``crossfade config schema`` prints the JSON Schema made from these classes, so every field says what it is for.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, field_serializer, field_validator, model_validator

from crossfade.config.backends import BackendConfig, check_port
from crossfade.config.comparing import CompareConfig, ComparisonConfig
from crossfade.config.dashboard import DashboardConfig
from crossfade.config.limits import CallerConfig, ConcurrencyConfig, CorsConfig, LimitEntry
from crossfade.config.mirroring import MEBIBYTE, Method, MirrorConfig, Percent, ShadowConfig
from crossfade.config.ramp import RampConfig
from crossfade.config.section import Name, Networks, Section
from shadow.store.json_redaction import parse_path


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


class TlsConfig(Section):
    """The gateway's own certificate. Renewed files are taken up within a second, without dropping a connection."""

    certificate: str = Field(description="PEM file of the certificate and its chain")
    key: str = Field(description="PEM file of its key, not encrypted")
    minimum_version: Literal["1.2", "1.3"] = Field("1.2", description="the oldest TLS version that is spoken")


class GatewayConfig(Section):
    """Where the gateway listens."""

    listen: str = Field("127.0.0.1:8080", description="host:port; [::1]:8080 for IPv6")
    transport: Literal["own", "httpx"] = Field(
        "own", description="how backends are called: the gateway's own fast HTTP/1.1, or stock httpx"
    )
    http2: bool = Field(
        False,
        description="speak HTTP/2 with https backends that offer it; for httpx, with crossfade[http2]",
    )
    proxy: SecretStr | None = Field(
        None, description="http://host:port, with user:password@ if it asks, of a proxy to all backends; for httpx"
    )
    parser: Literal["httptools", "h11"] = Field(
        "httptools", description="what reads clients' requests: httptools (C, fast) or h11 (Python, slow); same answers"
    )
    tls: TlsConfig | None = Field(None, description="serve HTTPS; left out: plain HTTP, for loopback or behind a proxy")
    forwarded: Literal["off", "x-forwarded", "forwarded", "both"] = Field(
        "off",
        description="what backends are told of a request's origin: nothing of ours, X-Forwarded-For/-Proto/-Host, "
        "Forwarded (RFC 7239), or both; a client's own such fields are removed unless it is in limits.trusted_proxies",
    )
    replay_budget_bytes: Annotated[int, Field(ge=0)] = Field(
        64 * MEBIBYTE, description="bound on all bodies that are kept for a fallback; one over it cannot fall back"
    )

    @field_validator("proxy")
    @classmethod
    def _check_proxy(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not re.fullmatch(r"https?://([^/?#\s@]+@)?[^/?#\s@]+/?", value.get_secret_value()):
            raise ValueError("must look like http://host:port or http://user:password@host:port")
        return value

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if self.transport == "own" and (self.http2 or self.proxy is not None):
            raise ValueError("http2 and proxy need transport: httpx")
        return self

    @field_validator("listen")
    @classmethod
    def _check_listen(cls, value: str) -> str:
        host, colon, port = value.rpartition(":")
        if not colon or not re.fullmatch(r"\[[0-9A-Fa-f:.]+\]|[^:/\s\[\]]+", host):
            raise ValueError("must be host:port, for example 127.0.0.1:8080 or [::1]:8080")
        check_port(port, lowest=0)  # 0: any free one
        return value

    @property
    def address(self) -> tuple[str, int]:
        """Return (host, port)."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)

    def anchored(self, folder: Path) -> GatewayConfig:
        """Return the same with relative paths taken from ``folder``."""
        if self.tls is None:
            return self
        paths = {"certificate": str(folder / self.tls.certificate), "key": str(folder / self.tls.key)}
        return self.model_copy(update={"tls": self.tls.model_copy(update=paths)})


class MatchConfig(Section):
    """Which requests belong to a route."""

    methods: Annotated[tuple[Method, ...], Field(min_length=1)] = Field(
        ("GET", "HEAD", "POST"), description="any other gets 405"
    )
    path: Annotated[str, Field(pattern=r"^/[^?#\s]*$")] = Field(
        description="an exact path, or a prefix that ends in /*"
    )


class KeepConfig(Section):
    """What the store keeps of a route's bodies. Numbers, sizes and keyed digests are always kept."""

    bodies: Literal["all", "mismatches", "hashes"] = Field(
        "all",
        description="all; mismatches: those of matches are deleted as soon as the pair is judged; hashes: none, so "
        "outputs are only equal or not, and nothing can be looked at or replayed",
    )
    matches_percent: Percent = Field(
        1.0, description="with mismatches: the sample of matches that is kept all the same"
    )
    redact_json: tuple[str, ...] = Field(
        (),
        description="JSON paths such as user.email or items[*].name whose values are replaced before anything is "
        "written, in requests, answers and event streams; text that is no JSON is then not kept",
    )

    redact_form: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (),
        description="names of form fields, files among them, whose values are replaced before anything is written, in "
        "multipart and urlencoded bodies up to 16 MiB; a form that is larger or cannot be read is then not kept",
    )

    @field_validator("redact_json")
    @classmethod
    def _check_paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for path in value:
            parse_path(path)
        return value


class RouteConfig(Section):
    """One feature: which requests, which two backends, who serves now."""

    name: Name = Field(description="letters, digits, dot, dash, underscore")
    match: MatchConfig = Field(description="which requests belong to it")
    baseline: Name = Field(description="the backend that served until now")
    candidate: Name = Field(description="the backend that should take over")
    active: Name | dict[Name, Annotated[int, Field(ge=0, le=100)]] = Field(
        description="the toggle: a backend's name, or percents such as {cloud: 95, onprem: 5}"
    )
    shadow: ShadowConfig = Field(ShadowConfig(), description="how it is mirrored; not at all if left out")
    limits: tuple[LimitEntry, ...] = Field((), description="each a text such as 10/second, or with these keys")
    concurrency: ConcurrencyConfig | None = Field(None, description="requests at once, with a queue; any if left out")
    cost: Annotated[int, Field(ge=1)] = Field(1, description="what a request counts under limits on requests")
    public: bool = Field(False, description="asks for no API key, even with callers in the config")
    cors: CorsConfig | None = Field(None, description="lets web pages read refusals; preflights go to the backend")
    max_body_bytes: Annotated[int, Field(gt=0)] = Field(32 * MEBIBYTE, description="larger requests get 413")
    fallback: bool = Field(
        False, description="the other backend answers what the active one cannot take (X-Crossfade-Fallback: 1)"
    )
    websocket: bool = Field(False, description="bridge WebSockets to the active backend; they are never mirrored")
    keep: KeepConfig = Field(KeepConfig(), description="what the store keeps of its bodies")
    compare: CompareConfig = Field(CompareConfig(), description="what it must show before it may move")
    ramp: RampConfig = Field(RampConfig(), description="how `crossfade ramp` moves it, and what brings it back")

    @model_validator(mode="after")
    def _check_toggle(self) -> Self:
        if self.baseline == self.candidate:
            raise ValueError("baseline and candidate must be two different backends")
        split = self.split
        strangers = sorted(set(split) - {self.baseline, self.candidate})
        if strangers:
            known = f"{self.baseline} and {self.candidate}"
            hint = _did_you_mean(strangers[0], (self.baseline, self.candidate))
            raise ValueError(f"active names {', '.join(strangers)}, but this route has {known}{hint}")
        if sum(split.values()) != 100:
            raise ValueError(f"active must sum to 100 percent, not {sum(split.values())}")
        return self

    @property
    def split(self) -> Mapping[str, int]:
        """Return the toggle as percents by backend name; a backend that gets nothing is left out."""
        if isinstance(self.active, str):
            return {self.active: 100}
        return {name: percent for name, percent in self.active.items() if percent}


class LimitsConfig(Section):
    """How requests are counted against their limits."""

    storage: SecretStr = Field(SecretStr("memory://"), description="memory:// or async+redis://host:6379/0")
    strategy: Literal["moving-window", "fixed-window", "sliding-window-counter"] = Field(
        "moving-window", description="moving-window never admits more; the others may at a window's edge"
    )
    on_failure: Literal["open", "closed", "local"] = Field(
        "open", description="while the storage does not answer: let pass, refuse, or count in this process alone"
    )
    timeout_s: Annotated[float, Field(gt=0, le=5)] = Field(0.05, description="how long the storage may take")
    trusted_proxies: Networks = Field((), description="networks (CIDR) whose forwarded_header is believed")
    forwarded_header: Literal["X-Forwarded-For", "Forwarded"] = Field(
        "X-Forwarded-For", description="the field that the trusted proxies write; the other is not read"
    )
    gateway: tuple[LimitEntry, ...] = Field((), description="limits that hold for all routes together")

    @field_validator("storage")
    @classmethod
    def _check_storage(cls, value: SecretStr) -> SecretStr:
        if value.get_secret_value() != "memory://":
            from gateway.limiting.store import redis_url  # the client library is slow to import, and seldom needed

            redis_url(value.get_secret_value())
        return value


class TracingConfig(Section):
    """Spans of every request, by OTLP; needs crossfade[otel]. A client's own sampling decision is followed."""

    endpoint: Annotated[str, Field(pattern=r"^https?://")] = Field(
        description="such as http://collector:4318/v1/traces"
    )
    sample: Annotated[float, Field(ge=0, le=1)] = Field(0.01, description="share of the traces that begin here")


class StoreConfig(Section):
    """Where both answers are kept. Bodies are people's data: encrypted, and unreadable after keep_bodies_days."""

    url: str = Field(
        "sqlite:///var/crossfade.db",
        repr=False,
        description="sqlite:///relative/path.db, sqlite:////absolute/path.db or "
        "postgresql+psycopg://USER:${PASSWORD}@HOST/DATABASE",
    )
    bodies: str = Field(
        "var/bodies",
        description="where bodies over 8 KiB are: a folder, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME "
        "(credentials from the environment)",
    )
    key: str | None = Field(
        None,
        description="the master key that bodies are encrypted under: file:PATH (made on first use) or env:NAME (64 "
        "hexadecimal digits); left out: a file beside the SQLite database",
    )
    keep_bodies_days: Annotated[float, Field(gt=0, le=3650)] = Field(
        7.0, description="the bodies of a UTC day are kept for so long after its end, then its key is destroyed"
    )
    redact: tuple[str, ...] = Field((), description="more headers and query parameters that carry credentials")

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str) -> str:
        if not value.startswith(("sqlite:///", "postgresql+psycopg://")):
            raise ValueError("must be sqlite:///relative/path.db or postgresql+psycopg://USER@HOST/DATABASE")
        return value

    @field_validator("key")
    @classmethod
    def _check_key(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"file:.+|env:[A-Za-z_][A-Za-z0-9_]*", value):
            raise ValueError("must be file:PATH or env:NAME, and never the key itself")
        return value

    @model_validator(mode="after")
    def _check_key_is_named(self) -> Self:
        if self.key is None and not self.url.startswith("sqlite"):
            raise ValueError("key must be set for PostgreSQL, for example key: file:/etc/crossfade/store.key")
        return self

    @field_serializer("url")
    def _hide_password(self, value: str) -> str:
        shown = re.sub(r"(://[^:/@]*:).*@", r"\1***@", value)
        return re.sub(r"([?&][^=&]*password=)[^&]*", r"\1***", shown, flags=re.IGNORECASE)

    def anchored(self, folder: Path) -> StoreConfig:
        """Return the same with relative paths taken from ``folder``."""
        changed: dict[str, str] = {}
        if self.url.startswith("sqlite:///"):
            changed["url"] = f"sqlite:///{folder / self.url.removeprefix('sqlite:///')}"
        if not self.bodies.startswith("s3://"):
            changed["bodies"] = str(folder / self.bodies)
        if self.key is not None and self.key.startswith("file:"):
            changed["key"] = f"file:{folder / self.key.removeprefix('file:')}"
        return self.model_copy(update=changed)


class Config(Section):
    """The whole file."""

    gateway: GatewayConfig = Field(GatewayConfig(), description="where the gateway listens")
    backends: Annotated[dict[Name, BackendConfig], Field(min_length=1)] = Field(description="by name")
    routes: Annotated[tuple[RouteConfig, ...], Field(min_length=1)] = Field(
        description="the features, in order of match"
    )
    limits: LimitsConfig = Field(LimitsConfig(), description="how requests are counted")
    callers: dict[Name, CallerConfig] = Field({}, description="who has API keys, by name; nobody needs one if empty")
    mirror: MirrorConfig = Field(MirrorConfig(), description="bounds of the mirror; a change needs a restart")
    store: StoreConfig = Field(StoreConfig(), description="where both answers are kept; a change needs a restart")
    tracing: TracingConfig | None = Field(None, description="spans; none if left out; a change needs a restart")
    dashboard: DashboardConfig = Field(DashboardConfig(), description="who may see the dashboard, behind a proxy")
    compare: ComparisonConfig = Field(ComparisonConfig(), description="where the comparison measures")
    audit: str = Field(
        "var/audit.jsonl", description="file that gets one line for every change, and for look at a body"
    )

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        seen: set[str] = set()
        taken: dict[tuple[str, str], str] = {}
        for route in self.routes:
            if route.name in seen:
                raise ValueError(f"two routes are called {route.name}")
            seen.add(route.name)
            for role in ("baseline", "candidate"):
                name = getattr(route, role)
                if name not in self.backends:
                    known = ", ".join(self.backends)
                    hint = _did_you_mean(name, self.backends)
                    raise ValueError(f"route {route.name}: {role} is {name}, but backends has {known}{hint}")
            for method in route.match.methods:
                other = taken.setdefault((route.match.path, method), route.name)
                if other != route.name:
                    raise ValueError(f"route {route.name}: {method} {route.match.path} already belongs to {other}")
        return self

    @model_validator(mode="after")
    def _check_callers(self) -> Self:
        names = {route.name for route in self.routes}
        owners: dict[str, str] = {}
        for name, caller in self.callers.items():
            strangers = sorted(set(caller.routes or ()) - names)
            if strangers:
                raise ValueError(f"caller {name}: routes has {strangers[0]}, but there is {', '.join(sorted(names))}")
            for key in caller.keys:
                if key in owners:
                    raise ValueError(f"caller {name}: this key is also listed for {owners[key]}")
                owners[key] = name
        return self

    def anchored(self, folder: Path) -> Config:
        """Return the same config with its relative paths taken from ``folder``."""
        changed = {
            "store": self.store.anchored(folder),
            "audit": str(folder / self.audit),
            "gateway": self.gateway.anchored(folder),
            "mirror": self.mirror.anchored(folder),
            "backends": {name: backend.anchored(folder) for name, backend in self.backends.items()},
        }
        return self.model_copy(update=changed)
