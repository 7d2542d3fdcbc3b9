"""Heads as bytes: encode a request's, decode an answer's, and decide how their bodies are framed. Pure.

A head is refused where two readers could disagree about where its message ends (RFC 9112 sections 6.1, 6.3 and 11.2):
a request is never sent, an answer never believed, with both Transfer-Encoding and Content-Length, with more than one
length, or with a transfer coding other than ``chunked`` alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import httptools
import httpx

from gateway.lines import LENGTH_DIGITS, encode_lines, names_of

Fields = Sequence[tuple[bytes, bytes]]

_SPACED_NAME = re.compile(rb"(\r\n[!#$%&'*+\-.^_`|~0-9A-Za-z]++)[ \t]++:")
_IN_TARGETS = bytes([*range(0x21, 0x7F), *range(0x80, 0x100)])
_USUAL_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_METHOD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


class Framing(StrEnum):
    """How the end of a body is told."""

    NONE = "none"
    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


class RequestHead(NamedTuple):
    """An encoded request head. ``length`` is the number of body bytes, ``None`` where they are chunked."""

    data: bytes
    length: int | None


class AnswerHead(NamedTuple):
    """A decoded answer head. ``fields`` keep order, case, repetition and bytes, without the white space around values.

    ``persistent`` says whether the backend lets the connection be used again, as far as the head tells."""

    status: int
    reason: bytes
    version: bytes
    fields: list[tuple[bytes, bytes]]
    framing: Framing
    length: int
    persistent: bool


def encode_request(method: str, target: bytes, fields: Fields) -> RequestHead:
    """Return the head's bytes; nothing is added, left out or changed.

    Raises ``httpx.LocalProtocolError`` for what cannot be a head, or would be read differently by different readers.
    """
    is_method = method in _USUAL_METHODS or _METHOD.fullmatch(method)
    if not is_method or not target or target.translate(None, _IN_TARGETS):
        raise httpx.LocalProtocolError("the method or the target cannot be sent")
    lines = encode_lines(fields)
    if lines is None:
        raise httpx.LocalProtocolError("a header field cannot be sent")
    length = _read_framing(fields)
    data = b"%b %b HTTP/1.1\r\n%b\r\n" % (method.encode("ascii"), target, lines)
    return RequestHead(data, length)


def _is_length(value: bytes) -> bool:
    return value.isdigit() and len(value) <= LENGTH_DIGITS


def _lower_names(fields: Fields) -> list[bytes]:
    return b"\n".join(names_of(fields)).lower().split(b"\n")  # all at once: no name holds a line end


def _read_framing(fields: Fields) -> int | None:
    """Return the length of the body, ``None`` where it is chunked."""
    names = _lower_names(fields)
    lengths, codings = names.count(b"content-length"), names.count(b"transfer-encoding")
    if names.count(b"host") != 1:
        raise httpx.LocalProtocolError("a request has one Host field")
    if codings:
        if codings > 1 or fields[names.index(b"transfer-encoding")][1].lower() != b"chunked":
            raise httpx.LocalProtocolError("a transfer coding other than chunked alone")
        if lengths:
            raise httpx.LocalProtocolError("both Transfer-Encoding and Content-Length")
        return None
    if not lengths:
        return 0
    value = fields[names.index(b"content-length")][1]
    if lengths > 1 or not _is_length(value):
        raise httpx.LocalProtocolError("more than one Content-Length, or none that is a number")
    return int(value)


class _Callbacks:
    """Collects what httptools reports of one head."""

    __slots__ = ("fields", "reason")

    def __init__(self) -> None:
        self.fields: list[tuple[bytes, bytes]] = []
        self.reason = b""

    def on_status(self, reason: bytes) -> None:
        self.reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append((name, value.rstrip(b" \t")))


def decode_answer(data: bytes, method: str) -> AnswerHead:
    """Decode a head that ends with its empty line and is followed by nothing.

    ``method`` is the request's. Raises ``httpx.RemoteProtocolError``. White space between a name and its colon is taken
    out (RFC 9112 section 5.1); obsolete line folding is refused, which section 5.2 allows a gateway.
    """
    callbacks = _Callbacks()
    parser = httptools.HttpResponseParser(callbacks)
    try:
        parser.feed_data(data)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        mended = _SPACED_NAME.sub(rb"\1:", data)
        if mended != data:
            return decode_answer(mended, method)
        # The parser's text names what it expected; it quotes nothing that came.
        raise httpx.RemoteProtocolError(f"the answer's head is no HTTP/1.1: {error}") from None
    status, version = parser.get_status_code(), parser.get_http_version().encode("ascii")
    if version not in (b"1.0", b"1.1") or not 100 <= status <= 999 or status == 101:
        raise httpx.RemoteProtocolError("the answer has a version or a status that was not asked for")
    framing, length, persistent = _frame(callbacks.fields, method, status, version)
    return AnswerHead(status, callbacks.reason, version, callbacks.fields, framing, length, persistent)


def _frame(fields: Fields, method: str, status: int, version: bytes) -> tuple[Framing, int, bool]:
    """Decide as RFC 9112 section 6.3 does; return framing, length and whether the connection persists."""
    names = _lower_names(fields)
    lengths, codings, length = names.count(b"content-length"), names.count(b"transfer-encoding"), 0
    if lengths:
        value = fields[names.index(b"content-length")][1]
        if lengths > 1 or not _is_length(value):
            raise httpx.RemoteProtocolError("the answer has more than one length, or none that is a number")
        length = int(value)
    if codings:
        coding = fields[names.index(b"transfer-encoding")][1]
        if lengths or codings > 1 or coding.lower() != b"chunked" or version == b"1.0":
            raise httpx.RemoteProtocolError("the answer's transfer coding is ambiguous or unknown")
    options = _options(fields) if b"connection" in names else ()
    persistent = b"close" not in options and (version == b"1.1" or b"keep-alive" in options)
    if status < 200 or method == "HEAD" or status in (204, 304):
        # A 204 that announces a body may yet send it: what follows could be taken for the next answer.
        return Framing.NONE, 0, persistent and not (status == 204 and (length or codings))
    if codings:
        return Framing.CHUNKED, 0, persistent
    if lengths:
        return (Framing.LENGTH if length else Framing.NONE), length, persistent
    return Framing.CLOSE, 0, False


def _options(fields: Fields) -> list[bytes]:
    values = [value for name, value in fields if name.lower() == b"connection"]
    return [option.strip(b" \t").lower() for value in values for option in value.split(b",")]
