"""What a request's head must be before anybody is asked to serve it, whichever parser read it. Pure.

The target is taken in the forms of RFC 9112 section 3.2: *origin form* as it is; *absolute form* reduced to its path
and query, with its authority in place of ``Host`` (section 3.2.2); ``*`` for OPTIONS alone, to which an absolute form
without path and query amounts (section 3.2.4). CONNECT asks for a tunnel, and none is made. A fragment is part of no
form. ``Host`` is there once, and valid; only HTTP/1.0 may leave it out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from gateway.lines import LENGTH_DIGITS, names_of
from gateway.problem import BAD_REQUEST, UPGRADE_NOT_SUPPORTED, VERSION_NOT_SUPPORTED, Problem

Fields = Sequence[tuple[bytes, bytes]]
SLICE_BYTES = 16 * 1024
"""A head is fed to its parser in pieces of this size, so that no single read can carry it past its bound."""

_ABSOLUTE = re.compile(rb"https?://([^/?#]*)(/[^?#]*)?(\?[^#]*)?", re.IGNORECASE)
# RFC 9110 section 7.2 and RFC 3986 section 3.2.2: a literal in brackets or a name, and perhaps a port.
_NAME = rb"[0-9A-Za-z\-._~!$&'()*+,;=]"
_HOST = re.compile(rb"(?:\[(?:%b|:)+\]|(?:%b|%%[0-9A-Fa-f]{2})*)(?::[0-9]*)?" % (_NAME, _NAME))
_HASH = ord("#")  # a number is found in bytes several times as fast as bytes are
_NO_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """Bounds on a request's head. ``timeout_s`` runs from the connection, or from the first byte of a later request.
    ``unread_s`` is how long a client may take nothing of the answer that waits for it."""

    total_bytes: int = 64 * 1024
    fields: int = 1000
    target_bytes: int = 16 * 1024
    timeout_s: float = 10.0
    unread_s: float = 60.0

    @property
    def whole_bytes(self) -> int:
        """What a head may take as it crosses the wire: a target and fields within their bounds, and what is around."""
        return self.target_bytes + self.total_bytes + 1024


class Target(NamedTuple):
    """A request-target: ``raw`` in origin form, or ``*``; ``authority`` is what an absolute form names, else
    ``None``."""

    raw: bytes
    authority: bytes | None = None


def read_target(method: str, raw: bytes) -> Target | Problem:
    """Return the target, or the problem to answer with."""
    if method == "CONNECT":
        return UPGRADE_NOT_SUPPORTED
    if raw[:1] == b"/":
        return BAD_REQUEST if _HASH in raw else Target(raw)
    if raw == b"*" and method == "OPTIONS":
        return Target(raw)
    absolute = _ABSOLUTE.fullmatch(raw)
    if absolute is None or not absolute[1] or not _HOST.fullmatch(absolute[1]):
        return BAD_REQUEST
    authority, path, query = absolute.groups()
    if method == "OPTIONS" and path is None and query is None:
        return Target(b"*", authority)
    return Target((path or b"/") + (query or b""), authority)


def is_too_large(fields: Fields, limits: HeadLimits) -> bool:
    """Say whether the fields, each with its colon, space and line end, are more than a head may have."""
    size = len(b"".join(chain.from_iterable(fields))) + 4 * len(fields)
    return size > limits.total_bytes or len(fields) > limits.fields


def find_fault(version: str, fields: Fields) -> Problem | None:
    """Return the problem of a head whose field names are in lower case, ``None`` where it has none.

    A parser may let pass what two readers could take for two different messages (RFC 9112 section 6.1 and 11.2), or
    what cannot be a field's value (RFC 9110 section 5.5); here it ends.
    """
    if version not in ("1.1", "1.0"):
        return VERSION_NOT_SUPPORTED
    names = names_of(fields)
    hosts, lengths = names.count(b"host"), names.count(b"content-length")
    if hosts > 1 or (hosts == 0 and version == "1.1"):
        return BAD_REQUEST
    if hosts and not _HOST.fullmatch(fields[names.index(b"host")][1]):
        return BAD_REQUEST
    if lengths and len(fields[names.index(b"content-length")][1]) > LENGTH_DIGITS:
        return BAD_REQUEST
    if lengths > 1 or (b"transfer-encoding" in names and (lengths or version == "1.0")):
        return BAD_REQUEST
    return None


def has_bad_value(fields: Fields) -> bool:
    """Say whether a field's value holds what none may hold; for a parser that does not look."""
    return any(_NO_VALUE.search(value) for _, value in fields)


def expects(fields: Fields) -> bool:
    """Say whether the client waits for 100 Continue before it sends its body."""
    return b"expect" in dict(fields) and any(
        name == b"expect" and value.lower() == b"100-continue" for name, value in fields
    )


def may_continue(version: str, fields: Fields) -> bool:
    """Say whether a client that expects it may be sent 100 Continue: one of HTTP/1.1 that has content to send (RFC 9110
    section 10.1.1)."""
    if version == "1.0":
        return False
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0 \t")) for name, value in fields
    )


def without_upgrade(fields: Fields) -> list[tuple[bytes, bytes]]:
    """Return the fields of an HTTP/1.0 request, which cannot ask for another protocol (RFC 9110 section 7.8)."""
    return [field for field in fields if field[0] != b"upgrade"]


def with_authority(fields: Fields, authority: bytes) -> list[tuple[bytes, bytes]]:
    """Return the fields with this authority as their only Host."""
    return [(b"host", authority), *(field for field in fields if field[0] != b"host")]
