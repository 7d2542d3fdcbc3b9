"""A recorded request as a curl command: quoted for a shell, and the same on the wire but for what makes up the
connection and for what was redacted. Pure."""

from __future__ import annotations

import shlex
from urllib.parse import urlsplit

from shadow.exchange import Request
from shadow.store.redaction import REDACTED, kept_headers

_LEFT_OUT = frozenset(
    {b"host", b"content-length", b"transfer-encoding", b"connection", b"expect", b"accept-encoding", b"te", b"upgrade"}
)
_CURLS_OWN = (b"Accept", b"User-Agent")
"""What curl adds unless it is told not to; a Content-Type as well where there is a body."""
_SOCKET = "unix://"


def curl_command(request: Request, server: str, body: str | None) -> str:
    """Return the command. ``server`` is a base URL or ``unix://PATH``, ``body`` the name of the file with the body.

    Bytes that are no UTF-8 are surrogate escapes in it (PEP 383).
    """
    empty = not request.body.size_bytes and any(name.lower() == b"content-length" for name, _ in request.headers)
    data = f"@{body}" if body is not None else "" if empty and request.method not in ("GET", "HEAD") else None
    # With -X HEAD curl would wait for the body that the answer's head announces.
    method = ["--head"] if request.method == "HEAD" and data is None else ["-X", request.method]
    parts = ["curl", "-sS", "--globoff", "--path-as-is", *method]
    headers = kept_headers(request)
    for name, value in headers:
        if name.lower() not in _LEFT_OUT and value != REDACTED:
            parts += ["-H", f"{_text(name)}: {_text(value)}" if value else f"{_text(name)};"]
    seen = {name.lower() for name, _ in headers}
    for name in (*_CURLS_OWN, *([b"Content-Type"] if data is not None else [])):
        if name.lower() not in seen:
            parts += ["-H", f"{_text(name)}:"]
    if data is not None:
        parts += ["--data-binary", data]
    if server.startswith(_SOCKET):
        parts += ["--unix-socket", server.removeprefix(_SOCKET)]
        server = "http://localhost"
    url = server.rstrip("/") + _text(request.target)
    if not request.target.isascii():  # curl would write the other bytes as percents
        parts += ["--request-target", urlsplit(server).path.rstrip("/") + _text(request.target)]
    return shlex.join([*parts, url])


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
