"""The gateway's own certificate, taken up anew when it is renewed, without a connection lost.

The context is made once and handed to the server; a renewal loads the new chain into this same context, which new
handshakes use, while connections that are open go on with what they have. Certificate and key are two files and are
rarely replaced in the same moment: a pair that does not fit, or does not parse, changes nothing, is logged once, and is
looked at again when the files change again.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from pathlib import Path

from gateway.settings import TlsSettings

POLL_S = 1.0

_log = logging.getLogger(__name__)
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


class Certificate:
    """Owns the TLS context. Raises ``ValueError`` with a message for a person when it cannot be made."""

    def __init__(self, settings: TlsSettings) -> None:
        if settings.minimum_version not in _VERSIONS:
            raise ValueError("gateway.tls.minimum_version must be 1.2 or 1.3")
        self._settings = settings
        self._seen = self._fingerprint()
        self.context = self._load()

    def poll(self) -> None:
        """Look once whether the files changed, and take up a pair that fits."""
        try:
            seen = self._fingerprint()
            if seen == self._seen:
                return
            self._seen = seen
            self._load()  # into a context of its own first: a pair that does not fit must not touch the one in use
            self._load_into(self.context)
        except ValueError as error:
            _log.error("the renewed certificate cannot be used, the old one stays: %s", error)
        else:
            _log.warning("a renewed certificate is in use")

    async def run(self, poll_s: float = POLL_S) -> None:
        """Poll until cancelled."""
        while True:
            await asyncio.sleep(poll_s)
            self.poll()

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self._settings.minimum_version]
        context.set_alpn_protocols(["http/1.1"])
        self._load_into(context)
        return context

    def _load_into(self, context: ssl.SSLContext) -> None:
        certificate, key = self._settings.certificate, self._settings.key
        try:
            # A password is never asked for at a terminal.
            context.load_cert_chain(certificate, key, password=lambda: b"")
        except ssl.SSLError as error:
            reason = error.reason or "not PEM, or an encrypted key"
            raise ValueError(f"gateway.tls: {certificate} and {key} do not make a pair: {reason}") from error
        except OSError as error:
            raise ValueError(f"gateway.tls: {error.filename or certificate}: {error.strerror}") from error

    def _fingerprint(self) -> bytes:
        digest = hashlib.sha256()
        for name in (self._settings.certificate, self._settings.key):
            try:
                digest.update(Path(name).read_bytes())
            except OSError as error:
                raise ValueError(f"gateway.tls: {name}: {error.strerror}") from error
        return digest.digest()
