"""Uploads: a request's body, bounded in size and time, and the files in it.

A file comes as the raw body, whatever its Content-Type says, or as a field of ``multipart/form-data`` (RFC 7578).
File names decide nothing.
"""

from __future__ import annotations

import asyncio
import binascii
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from onprem_backend.problems import Problem

_NOBODY = logging.Logger("nobody", logging.CRITICAL + 1)
"""The parser would log a line with a byte of the body for each form that is broken."""
_MAX_PARTS = 16
_ENCODINGS = frozenset({b"", b"7bit", b"8bit", b"binary", b"base64"})


class ByteBudget:
    """How many bytes all uploads together may hold. Touched by the event loop's thread only."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0

    @contextmanager
    def reservation(self) -> Iterator[Reservation]:
        """Yield a reservation that grows with ``take`` and is given back at the end of the ``with`` block."""
        reservation = Reservation(self)
        try:
            yield reservation
        finally:
            self.held_bytes -= reservation.taken_bytes

    def take(self, size_bytes: int) -> None:
        """Take bytes out of the budget. Raises ``Problem("overloaded")`` when they are not there."""
        if self.held_bytes + size_bytes > self._limit_bytes:
            raise Problem("overloaded", "uploads already hold all the memory set aside for them", retry_after_s=1)
        self.held_bytes += size_bytes


@dataclass(slots=True)
class Reservation:
    """One request's part of a budget."""

    budget: ByteBudget
    taken_bytes: int = 0

    def take(self, size_bytes: int) -> None:
        """Grow the reservation. Raises ``Problem("overloaded")``."""
        self.budget.take(size_bytes)
        self.taken_bytes += size_bytes


@dataclass(slots=True)
class Part:
    """One field of a form. ``is_file``: it has a file name, or a media type that is not text. ``filename`` is what the
    client calls it, to be repeated to it and for nothing else."""

    name: str = ""
    filename: str = ""
    is_file: bool = False
    content: bytearray = field(default_factory=bytearray)


async def read_body(request: Request, reservation: Reservation, *, max_bytes: int, timeout_s: float) -> bytes:
    """Read the whole body. Raises ``Problem`` with code ``body_too_large``, ``body_timeout`` or ``overloaded``."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    body = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            async for chunk in request.stream():
                if len(body) + len(chunk) > max_bytes:
                    raise _too_large(max_bytes)
                reservation.take(len(chunk))
                body += chunk
    except TimeoutError:
        raise Problem("body_timeout", f"the body was not complete within {timeout_s:g} s") from None
    return bytes(body)


def _too_large(max_bytes: int) -> Problem:
    return Problem("body_too_large", f"at most {max_bytes} bytes are accepted", max_bytes=max_bytes)


def is_form(content_type: str | None) -> bool:
    """Say whether a body of this Content-Type is a multipart form."""
    return parse_options_header(content_type)[0] == b"multipart/form-data"


def parse_form(content_type: str, body: bytes, *, max_parts: int = _MAX_PARTS) -> list[Part]:
    """Take a multipart body of at most ``max_parts`` fields apart.

    What stands before the first boundary and after the last one says nothing (RFC 2046 section 5.1.1). A field in
    base64, which RFC 7578 section 4.7 deprecates, is decoded. Raises ``Problem("malformed_form")``, also when the final
    boundary is missing.
    """
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise Problem("malformed_form", "the Content-Type names no boundary")
    collector = _Collector(max_parts)
    try:
        parser = MultipartParser(boundary, collector.callbacks())  # type: ignore[arg-type]
        parser.logger = _NOBODY
        parser.write(_without_preamble(body, boundary))
        parser.finalize()
    except FormParserError as error:
        raise Problem("malformed_form", f"the form cannot be read: {error}") from None
    if not collector.ended:
        raise Problem("malformed_form", "the form's final boundary is missing")
    return collector.parts


def _without_preamble(body: bytes, boundary: bytes) -> bytes:
    begin = 0 if body.startswith(b"--" + boundary) else body.find(b"\r\n--" + boundary)
    return body if begin <= 0 else body[begin + 2 :]


class _Collector:
    """Builds parts from the parser's callbacks. States: in a header (name, then value), in a part's data, ended."""

    def __init__(self, max_parts: int) -> None:
        self.parts: list[Part] = []
        self._max_parts = max_parts
        self.ended = False
        self._header_name = b""
        self._header_value = b""
        self._has_filename = False
        self._media_type = b""
        self._encoding = b""

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin_part,
            "on_header_field": self._add_header_name,
            "on_header_value": self._add_header_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._add_data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }

    def _begin_part(self) -> None:
        if len(self.parts) >= self._max_parts:
            raise FormParserError(f"more than {self._max_parts} fields")
        self.parts.append(Part())
        self._has_filename = False
        self._media_type = b""
        self._encoding = b""

    def _add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        name, value = self._header_name.lower(), self._header_value
        self._header_name = self._header_value = b""
        if name == b"content-disposition":
            _, options = parse_options_header(value)
            self.parts[-1].name = options.get(b"name", b"").decode("utf-8", "replace")
            self.parts[-1].filename = options.get(b"filename", b"").decode("utf-8", "replace")
            # RFC 7578 section 4.2 forbids filename*, yet it is sent; that it is there is all that matters here.
            self._has_filename = b"filename" in options or b"filename*=" in value.lower()
        elif name == b"content-type":
            self._media_type = parse_options_header(value)[0]
        elif name == b"content-transfer-encoding":
            self._encoding = value.strip().lower()

    def _end_headers(self) -> None:
        if self._encoding not in _ENCODINGS:
            raise FormParserError(f"a field comes in the transfer encoding {self._encoding.decode('latin-1')!r}")
        typed = bool(self._media_type) and not self._media_type.startswith(b"text/")
        self.parts[-1].is_file = self._has_filename or typed

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        self.parts[-1].content += memoryview(data)[start:end]

    def _end_part(self) -> None:
        if self._encoding == b"base64":
            try:
                self.parts[-1].content = bytearray(binascii.a2b_base64(self.parts[-1].content))
            except binascii.Error as error:
                raise FormParserError(f"a field is not the base64 it claims to be: {error}") from None

    def _end(self) -> None:
        self.ended = True


def pick_file(parts: Sequence[Part], names: Sequence[str]) -> bytes:
    """Return the one file among the fields called ``names``.

    Raises ``Problem`` with code ``missing_field``, ``duplicate_field`` or ``not_a_file``, each naming the field.
    """
    found = [part for part in parts if part.name in names]
    if not found:
        raise Problem("missing_field", f"the form has no field {' or '.join(names)}", field=names[0])
    if len(found) > 1:
        raise Problem("duplicate_field", f"the form has {len(found)} fields {' or '.join(names)}", field=found[1].name)
    if not found[0].is_file:
        raise Problem("not_a_file", f"the field {found[0].name} is text, not a file", field=found[0].name)
    return bytes(found[0].content)
