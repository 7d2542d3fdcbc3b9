"""The parts of the config file that say where requests can go, and how."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from crossfade.config.section import HeaderName, Section

MAX_SOCKET_PATH_BYTES = 107  # what the kernel takes for a Unix socket
_SERVER = re.compile(r"https?://(?:\[[0-9A-Fa-f:.]+\]|[^/?#\s@:\[\]]+)(?::(?P<port>[^/?#\s@]*))?(?:/[^?#\s]*)?")
_FRAMING = frozenset({"content-length", "transfer-encoding", "host", "connection", "te", "upgrade", "expect"})


def _is_latin(text: str) -> bool:
    return all(ord(character) < 256 for character in text)


def _check_server(url: str) -> str:
    if url.startswith("unix:"):
        path = url.removeprefix("unix://")
        if not path.startswith("/") or len(path.encode()) > MAX_SOCKET_PATH_BYTES:
            raise ValueError(f"must look like unix:///run/model.sock, of at most {MAX_SOCKET_PATH_BYTES} bytes")
        return url
    found = _SERVER.fullmatch(url)
    if found is None:
        raise ValueError(
            "must look like http://host:port, https://host:port/prefix (without user, query or fragment) or "
            "unix:///path/of.sock"
        )
    if found["port"] is not None:
        check_port(found["port"], lowest=1)
    return url.rstrip("/")


def check_port(text: str, *, lowest: int) -> int:
    """Return the port. Raises ``ValueError`` for what is none."""
    if not (text.isascii() and text.isdecimal() and lowest <= int(text) <= 65535):
        raise ValueError(f"the port must be a number from {lowest} to 65535, not '{text}'")
    return int(text)


ServerUrl = Annotated[str, AfterValidator(_check_server)]


class AuthConfig(Section):
    """The gateway's own credential for a backend; with it set, the client's Authorization never gets there."""

    header: HeaderName = Field("Authorization", description="name of the header field")
    value: SecretStr = Field(description="text with ${ENV} variables, or file:/path of a file that holds it")

    @field_validator("value")
    @classmethod
    def _check_value(cls, value: SecretStr) -> SecretStr:
        text = value.get_secret_value().strip()  # secrets from files and mounts often end in a line feed
        if not text or not text.isprintable() or not _is_latin(text):
            raise ValueError("must be one line of printable Latin-1 text, and not empty")
        return SecretStr(text)

    @field_validator("header")
    @classmethod
    def _check_header(cls, header: str) -> str:
        if header.lower() in _FRAMING:
            raise ValueError(f"{header} belongs to the message itself and cannot carry a credential")
        return header


class HealthConfig(Section):
    """An active check of every server of a backend; an answer from 200 to 399 in time is a success."""

    path: Annotated[str, Field(pattern=r"^/[!-~]*$")] = Field(description="what is asked for with GET")
    interval_s: Annotated[float, Field(ge=0.01, le=3600)] = Field(5.0, description="between two checks of a server")
    timeout_s: Annotated[float, Field(gt=0, le=300)] = Field(2.0, description="for the whole answer to a check")
    up_after: Annotated[int, Field(ge=1)] = Field(2, description="successes in a row that bring a server back")
    down_after: Annotated[int, Field(ge=1)] = Field(3, description="failures in a row that take a server out")


class ServersConfig(Section):
    """When a server of a backend gets no requests for a while. The last one that is left is never ejected."""

    eject_after: Annotated[int, Field(ge=1)] = Field(5, description="failed requests in a row that eject a server")
    eject_s: Annotated[float, Field(ge=0)] = Field(10.0, description="for how long; longer each time, at most tenfold")
    breaker_failures: Annotated[int, Field(ge=1)] = Field(
        5, description="refused connections in a row after which nobody connects for breaker_reset_s"
    )
    breaker_reset_s: Annotated[float, Field(ge=0)] = Field(1.0, description="after that one request tries")
    slow_start_s: Annotated[float, Field(ge=0)] = Field(
        0.0, description="over how long the share of a server that joins or comes back grows to a full one"
    )


class BackendTlsConfig(Section):
    """How a backend with https:// servers is spoken to. Files are read at the start and at every reload."""

    ca: str | None = Field(None, description="PEM file of the authorities to believe; left out: the usual ones")
    certificate: str | None = Field(None, description="PEM file of the chain that the gateway shows; with key")
    key: str | None = Field(None, description="PEM file of its key, not encrypted; with certificate")
    server_name: Annotated[str, Field(pattern=r"^[0-9A-Za-z._-]{1,253}$")] | None = Field(
        None, description="the name in SNI and in the server's certificate; left out: the URL's host"
    )

    @model_validator(mode="after")
    def _check_pair(self) -> Self:
        if (self.certificate is None) is not (self.key is None):
            raise ValueError("certificate and key are needed together")
        return self


class BackendConfig(Section):
    """Where requests can go."""

    servers: Annotated[tuple[ServerUrl, ...], Field(min_length=1)] = Field(
        description="base URLs, may have a path; or unix:///path/of.sock"
    )
    tls: BackendTlsConfig | None = Field(None, description="client certificate, own authorities, server name")
    auth: AuthConfig | None = Field(None, description="the gateway's own credential for this backend")
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        30.0, description="for the whole answer; for a stream of events, JSON lines or pictures between two parts of it"
    )
    stream_max_s: Annotated[float, Field(gt=0)] | None = Field(None, description="for a whole stream; any if left out")
    connect_timeout_s: Annotated[float, Field(gt=0, le=300)] = Field(5.0, description="for the connection")
    health: HealthConfig | None = Field(None, description="active checks; none if left out")
    balancing: ServersConfig = Field(ServersConfig(), description="when a server gets no requests for a while")

    def anchored(self, folder: Path) -> BackendConfig:
        """Return the same with relative paths taken from ``folder``."""
        if self.tls is None:
            return self
        named = {"ca": self.tls.ca, "certificate": self.tls.certificate, "key": self.tls.key}
        paths = {key: str(folder / path) for key, path in named.items() if path is not None}
        return self.model_copy(update={"tls": self.tls.model_copy(update=paths)})
