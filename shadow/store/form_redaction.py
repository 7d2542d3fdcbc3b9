"""Replace values of named fields in a form that is about to be stored: multipart/form-data and urlencoded. Pure.

A field is named as in the form, whatever its case; a file is a field too, and loses its name with its content. A form
with a named field is written anew from what was understood, so that nothing else passes. One that two readers could
understand differently (RFC 7578 with a second name, an extended parameter, bare line feeds, a boundary within a part),
or that is broken, compressed unreadably or beyond the bound, is not kept at all: better no body than one secret.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from shadow.store.json_redaction import MAX_BYTES, Unreadable, decompress, kind_of, start_of

REDACTED_FIELD = b"[redacted]"
FORM, URLENCODED = "multipart/form-data", "application/x-www-form-urlencoded"

_NOBODY = logging.Logger("nobody", logging.CRITICAL + 1)
"""The parser would log a line with a byte of the body for each form that is broken."""

_NAME = re.compile(rb"(?:^|;)\s*name(\*[^=;]*)?\s*=", re.IGNORECASE)
_ENCODED_WORD = re.compile(rb"=\?[^?]+\?[bqBQ]\?")
"""RFC 2047, which a form must not use (RFC 7578, section 5.1) and which mail parsers decode."""


@dataclass(slots=True)
class _Part:
    fields: list[tuple[bytes, bytes]] = field(default_factory=list)
    data: list[bytes] = field(default_factory=list)


def is_form(media_type: str, start: bytes) -> bool:
    """Whether a body of this type that starts so (``start_of``) may be a form, or be taken for one."""
    kind = kind_of(media_type)
    return kind.startswith("multipart/") or kind == URLENCODED or (start[:2] == b"--" and b"form-data" in start.lower())


def redact_form(content: bytes, media_type: str, encoding: str, names: Sequence[str]) -> bytes:
    """Return the form with the values of the fields ``names`` replaced; the very same object where there are none.

    What comes back is not compressed when something was replaced. Raises ``Unreadable``.
    """
    if not content:
        return content
    if len(content) > MAX_BYTES:
        raise Unreadable("too large")
    plain = decompress(content, encoding)
    wanted = frozenset(name.casefold() for name in names)
    match kind_of(media_type):
        case "application/x-www-form-urlencoded":
            redacted = b"&".join(_covered_pair(pair, wanted) for pair in plain.split(b"&"))
            return content if redacted == plain else redacted
        case "multipart/form-data":
            return _redact_multipart(plain, media_type, wanted) or content
        case other:
            raise Unreadable(other)


def holds_json(content: bytes, encoding: str) -> bool:
    """Whether what is called a form is JSON: so it is where a client names no type. Raises ``Unreadable``."""
    return start_of([decompress(content, encoding)])[:1] in (b"{", b"[")


def _covered_pair(pair: bytes, wanted: frozenset[str]) -> bytes:
    """Cover from the value of a named field on. Some readers end a pair at a semicolon, others do not: it may begin a
    named field, and never ends one."""
    pieces = pair.split(b";")
    for number, piece in enumerate(pieces):
        name, equals, _ = piece.partition(b"=")
        if equals and _text(unquote_to_bytes(name.replace(b"+", b" "))) in wanted:
            return b";".join([*pieces[:number], name + b"=" + REDACTED_FIELD])
    return pair


def _redact_multipart(plain: bytes, media_type: str, wanted: frozenset[str]) -> bytes | None:
    boundary = parse_options_header(media_type)[1].get(b"boundary", b"")
    if not boundary:
        raise Unreadable("no boundary")
    parts = _parse(plain, boundary)
    covered = [_covered(part, boundary, wanted) for part in parts]
    if not any(covered):
        return None
    lines: list[bytes] = []
    for part in (new or old for new, old in zip(covered, parts, strict=True)):
        lines += [b"--" + boundary, *(name + b": " + value for name, value in part.fields), b"", b"".join(part.data)]
    return b"\r\n".join([*lines, b"--" + boundary + b"--", b""])


def _parse(plain: bytes, boundary: bytes) -> list[_Part]:
    """Return the parts of a form that is whole. Raises ``Unreadable``."""
    parts: list[_Part] = []
    ended: list[bool] = []
    name, value = bytearray(), bytearray()

    def end_field() -> None:
        parts[-1].fields.append((bytes(name), bytes(value)))
        name.clear()
        value.clear()

    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": lambda: parts.append(_Part()),
                "on_header_field": lambda data, start, end: name.extend(data[start:end]),
                "on_header_value": lambda data, start, end: value.extend(data[start:end]),
                "on_header_end": end_field,
                "on_part_data": lambda data, start, end: parts[-1].data.append(data[start:end]),
                "on_end": lambda: ended.append(True),
            },
        )
        parser.logger = _NOBODY
        parser.write(plain)
        parser.finalize()
    except FormParserError as error:
        raise Unreadable("broken form") from error
    if not ended:
        raise Unreadable("a form without an end")
    return parts


def _covered(part: _Part, boundary: bytes, wanted: frozenset[str]) -> _Part | None:
    """Return the part without its value where its field is named, ``None`` where it may stay. Raises ``Unreadable``."""
    dispositions = [value for name, value in part.fields if name.lower() == b"content-disposition"]
    if len(dispositions) != 1 or any(b"\n" in value or b"\r" in value for _, value in part.fields):
        raise Unreadable("a part that is no field")
    if [match[1] for match in _NAME.finditer(dispositions[0])] != [None]:
        raise Unreadable("a field without exactly one name")
    options = parse_options_header(dispositions[0].decode("latin-1"))[1]
    name = options.get(b"name", b"")
    if b"\\" in name or _ENCODED_WORD.search(name):
        raise Unreadable("a name that some readers decode and others do not")
    if _text(name) in wanted:
        disposition = b'form-data; name="' + name.replace(b'"', b"%22") + b'"'
        if b"filename" in dispositions[0].lower():
            disposition += b'; filename="' + REDACTED_FIELD + b'"'
        kept = [pair for pair in part.fields if pair[0].lower() == b"content-type"]
        return _Part([(b"Content-Disposition", disposition), *kept], [REDACTED_FIELD])
    if b"--" + boundary in b"".join(part.data):
        raise Unreadable("a boundary within a part")
    return None


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace").strip().casefold()
