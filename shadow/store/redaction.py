"""Take secrets out of an exchange before it is written: header fields, query parameters, JSON paths and form fields of
bodies. Applied by the store itself, so that no caller can forget it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import unquote_to_bytes

from shadow.exchange import Body, Exchange, Headers, Observation, Request
from shadow.rule import carries_secret
from shadow.store.form_redaction import holds_json, is_form, redact_form
from shadow.store.json_redaction import (
    MAX_BYTES,
    Unreadable,
    decompress,
    has_json_part,
    is_binary,
    is_packed,
    parse_path,
    redact_content,
    start_of,
)

REDACTED = b"[redacted]"

_PAIR = re.compile(rb"(?<=[?&#])[^&#]+")
_WITHIN_PAIR = re.compile(rb"([;?])")
_USERINFO = re.compile(rb"(?<=://)[^/?#\s]*@")
_WORD = re.compile(rb"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\[\]\s+]+")
"""Where a word begins in the name of a parameter: ``accessToken``, ``user[password]``."""
_LEVELS = 3


def redact(
    exchange: Exchange,
    secret_names: frozenset[str] = frozenset(),
    json_paths: Sequence[str] = (),
    form_fields: Sequence[str] = (),
) -> Exchange:
    """Return the exchange with the values of secret header fields, query parameters, JSON paths and form fields
    replaced.

    Names, order and all else stay; a body's hash and size remain those of what crossed. ``secret_names`` (lower case)
    are secret beside those that ``is_secret`` knows. A body in which ``json_paths`` or ``form_fields`` cannot be looked
    for loses its chunks.
    """
    steps = [parse_path(path) for path in json_paths]

    def secret(name: bytes) -> bool:
        return carries_secret(name.decode("latin-1"), secret_names)

    request = exchange.request

    def form(media_type: str, encoding: str, content: bytes) -> bytes:
        plain = content
        if steps and holds_json(content, encoding):
            plain = redact_content(content, media_type, encoding, steps)
        redacted = redact_form(plain, media_type, encoding if plain is content else "", form_fields)
        if steps and has_json_part(media_type, [decompress(content, encoding) if redacted is content else redacted]):
            raise Unreadable("JSON within a form")
        return redacted

    def content(body: Body) -> Body:
        packed = is_packed(body.content_encoding)
        start = b"" if packed or not (steps or form_fields) else start_of(body)
        if form_fields and is_form(body.media_type, start):
            return _redact_body(body, partial(form, *_labels(body)))
        if steps and (packed or not is_binary(body.media_type, start) or has_json_part(body.media_type, body)):
            return _redact_body(body, lambda content: redact_content(content, *_labels(body), steps))
        return body

    leg = partial(_redact_observation, secret=secret, content=content)
    return replace(
        exchange,
        request=replace(
            request,
            target=_redact_urls(request.target, secret),
            headers=_redact_headers(request.headers, secret),
            body=content(request.body),
        ),
        primary=leg(exchange.primary),
        shadow=exchange.shadow and leg(exchange.shadow),
        control=exchange.control and leg(exchange.control),
    )


def kept_headers(request: Request) -> Headers:
    """Return the header fields that fit the body as it was kept: a redacted one has lost its content encoding."""
    if request.body.content_encoding:
        return request.headers
    return tuple(field for field in request.headers if field[0].lower() != b"content-encoding")


def _redact_headers(headers: Headers, secret: Callable[[bytes], bool]) -> Headers:
    return tuple((name, REDACTED if secret(name) else _redact_urls(value, secret)) for name, value in headers)


def _redact_urls(text: bytes, secret: Callable[[bytes], bool], levels: int = _LEVELS) -> bytes:
    """Cover what is secret in a URL, or in the URLs of a field such as ``Location`` or ``Referer``."""
    covered = _USERINFO.sub(REDACTED + b"@", text) if b"@" in text else text
    return _PAIR.sub(lambda match: _covered_pair(match[0], secret, levels), covered) if b"=" in text else covered


def _covered_pair(pair: bytes, secret: Callable[[bytes], bool], levels: int) -> bytes:
    """Cover from the value of a secret parameter on. One may begin at a semicolon, which some readers take for an
    ampersand, or in a URL that is itself a value; neither ends one."""
    pieces = _WITHIN_PAIR.split(pair)
    for number, piece in enumerate(pieces):
        name, equals, value = piece.partition(b"=")
        if equals and (any(map(secret, _names(name))) or _holds_secret(value, secret, levels)):
            return b"".join([*pieces[:number], name, b"=", REDACTED])
    return pair


def _holds_secret(value: bytes, secret: Callable[[bytes], bool], levels: int) -> bool:
    """Whether a value is a URL, itself encoded, with a secret in it. One encoded too often is not looked into."""
    plain = unquote_to_bytes(value)
    return plain != value and (levels == 0 or _redact_urls(plain, secret, levels - 1) != plain)


def _names(name: bytes) -> tuple[bytes, bytes]:
    """Return the name of a parameter as servers read it, and with its words apart."""
    plain = unquote_to_bytes(name.replace(b"+", b" ")).strip()
    return plain, _WORD.sub(b"-", plain)


def _redact_observation(
    observation: Observation, secret: Callable[[bytes], bool], content: Callable[[Body], Body]
) -> Observation:
    body = None if observation.body is None else content(observation.body)
    return replace(observation, headers=_redact_headers(observation.headers, secret), body=body)


def _labels(body: Body) -> tuple[str, str]:
    return body.media_type, body.content_encoding


def _redact_body(body: Body, change: Callable[[bytes], bytes]) -> Body:
    if body.chunks is None:
        return body
    if body.size_bytes > MAX_BYTES:
        return replace(body, chunks=None, on_disk=False)
    content = b"".join(body.chunks)
    try:
        redacted = change(content)
    except Unreadable:
        return replace(body, chunks=None, on_disk=False)
    return body if redacted is content else replace(body, chunks=(redacted,), content_encoding="", on_disk=False)
