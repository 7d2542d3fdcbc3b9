"""What the gateway shows a backend over TLS, and whom it believes there: a client's context for each one's settings.

Contexts are kept by the content of their files, so that a reload which changes nothing keeps the connections that are
open, and one after a renewal makes new ones.
"""

from __future__ import annotations

import hashlib
import ssl
from pathlib import Path

import httpx

from gateway.settings import BackendTls


class ClientContexts:
    """Makes contexts and keeps them. Belongs to one gateway."""

    def __init__(self) -> None:
        self._kept: dict[tuple[BackendTls, bytes], ssl.SSLContext] = {}

    def get(self, backend: str, tls: BackendTls) -> ssl.SSLContext:
        """Return the context for these settings. Raises ``ValueError`` with a message for a person."""
        where = f"backends.{backend}.tls"
        if (tls.certificate is None) is not (tls.key is None):
            raise ValueError(f"{where}: certificate and key are needed together")
        key = tls, _digest(where, tls)
        if key not in self._kept:
            self._kept = {kept: context for kept, context in self._kept.items() if kept[0] != tls}
            self._kept[key] = _load(where, tls)
        return self._kept[key]


def _digest(where: str, tls: BackendTls) -> bytes:
    digest = hashlib.sha256()
    for name in (tls.ca, tls.certificate, tls.key):
        if name is not None:
            try:
                digest.update(hashlib.sha256(Path(name).read_bytes()).digest())
            except OSError as error:
                raise ValueError(f"{where}: {name}: {error.strerror}") from error
    return digest.digest()


def _load(where: str, tls: BackendTls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=tls.ca) if tls.ca is not None else httpx.create_ssl_context()
    except ssl.SSLError as error:
        raise ValueError(f"{where}: {tls.ca} holds no certificate in PEM form") from error
    context.set_alpn_protocols(["http/1.1"])
    if tls.certificate is not None:
        try:
            # A password is never asked for at a terminal.
            context.load_cert_chain(tls.certificate, tls.key, password=lambda: b"")
        except ssl.SSLError as error:
            reason = error.reason or "not PEM, or an encrypted key"
            raise ValueError(f"{where}: {tls.certificate} and {tls.key} do not make a pair: {reason}") from error
    return context
