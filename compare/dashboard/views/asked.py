"""What was asked: the request of a pair, its header fields, and a command that asks the same again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compare.curl import curl_command
from compare.dashboard.views.words import NOTHING, size
from compare.phrases import joined, say
from shadow.exchange import Exchange, Headers

_MAX_FIELDS = 100
_MAX_VALUE = 400


@dataclass(frozen=True, slots=True)
class Asked:
    """The request."""

    line: str
    caption: str
    headers: tuple[tuple[str, str], ...]
    kept: bool
    picture: bool


def build_asked(exchange: Exchange, *, kept: bool, picture: bool) -> Asked:
    """Return the request; ``kept`` says whether the store still has its body, ``picture`` whether that can be drawn."""
    request = exchange.request
    line = f"{request.method} {request.target.decode('latin-1')[:2000]}"
    about: list[str] = [request.body.media_type.partition(";")[0][:80] or say("no type"), size(request.body.size_bytes)]
    if not kept and request.body.size_bytes:
        about.append(say("not kept any more"))
    caption = joined(" · ", about) if request.body.size_bytes else say("no body")
    return Asked(line, caption, _fields(request.headers), kept, picture)


def build_curl(exchange: Exchange) -> str:
    """Return a command that asks the gateway the same again, with the downloaded body; a byte that is no UTF-8 cannot
    stand on a page."""
    body = f"{exchange.id[:8]}-request.bin" if exchange.request.body.size_bytes else None
    command = curl_command(exchange.request, "http://127.0.0.1:8080", body)
    return command.encode(errors="surrogateescape").decode(errors="replace")


def header_rows(sides: Sequence[Headers]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return a row per field name in the order of appearance; repeated fields stand in one cell, separated by bars."""
    columns = []
    for headers in sides:
        column: dict[str, list[str]] = {}
        for name, value in _fields(headers):
            column.setdefault(name.lower(), []).append(value)
        columns.append(column)
    names = dict.fromkeys(name for column in columns for name in column)
    return tuple((name, tuple(" | ".join(column.get(name, [NOTHING])) for column in columns)) for name in names)


def _fields(headers: Headers) -> tuple[tuple[str, str], ...]:
    shown = headers[:_MAX_FIELDS]
    return tuple((name.decode("latin-1")[:200], _value(value)) for name, value in shown)


def _value(value: bytes) -> str:
    text = value.decode("latin-1")
    return text if len(text) <= _MAX_VALUE else f"{text[:_MAX_VALUE]} …"
