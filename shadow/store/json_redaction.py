"""Replace values at JSON paths in a body that is about to be stored. Pure.

A path is names and list steps as the comparison's rules write them: ``user.email``, ``items[*].name``, ``[0].id``;
``*`` stands for any name. What is at the path is replaced whole. A body that may hold what a path means but cannot be
read (broken, too deep, beyond the bound, in an unknown encoding) is not kept at all: better no body than one secret.
"""

from __future__ import annotations

import json
import re
import secrets
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

REDACTED_VALUE = "[redacted]"
MAX_BYTES = 16 * 1024 * 1024

Step = str | int
_STEP = re.compile(r"\.?([^.\[\]]+)|\[(\*|\d+)\]")
_BINARY = ("image/", "audio/", "video/", "font/", "multipart/", "application/octet-stream", "application/pdf")
_TEXT = (b"{", b"[", b"data:", b"event:")
_BLANK = b" \t\r\n\v\f\0\xef\xbb\xbf\xfe\xff"
"""White space, and what else may stand before the first character: byte order marks, the zero of UTF-16 and UTF-32."""
_START_BYTES = 1024
_JSON_PART = re.compile(
    rb"(?:^|\n)(?:--|[A-Za-z][\w-]*:)[^\n]{0,500}\n\r?\n[" + re.escape(_BLANK) + rb"]*[{\[](?!redacted\])"
)
_FIELDS = frozenset({b"", b"data", b"event", b"id", b"retry"})
"""Of an event stream; a comment has no name."""


class Unreadable(Exception):
    """The body cannot be redacted, so it may not be kept."""


def parse_path(path: str) -> tuple[Step, ...]:
    """Return the steps of a path; ``*`` is any name, -1 any item. Raises ``ValueError``."""
    steps: list[Step] = []
    place = 0
    while place < len(path):
        match = _STEP.match(path, place)
        if match is None:
            raise ValueError(f"'{path}' is not a JSON path such as user.email or items[*].name")
        name, index = match.groups()
        steps.append(name if name is not None else -1 if index == "*" else int(index))
        place = match.end()
    if not steps:
        raise ValueError("an empty JSON path would redact the whole body: set bodies to hashes instead")
    return tuple(steps)


def is_binary(media_type: str, start: bytes) -> bool:
    """Whether a body of this type that starts so (``start_of``) is a picture or the like, in which no path means
    anything."""
    return kind_of(media_type).startswith(_BINARY) and not start.startswith(_TEXT)


def start_of(chunks: Iterable[bytes]) -> bytes:
    """Return the first bytes of a body from its first character on."""
    start = b""
    for chunk in chunks:
        start = (start + chunk).lstrip(_BLANK)[:_START_BYTES]
        if len(start) == _START_BYTES:
            break
    return start


def has_json_part(media_type: str, chunks: Iterable[bytes]) -> bool:
    """Whether a part of a multipart body begins as JSON does; in others a path means nothing."""
    if not kind_of(media_type).startswith("multipart/"):
        return False
    end = b""
    for chunk in chunks:
        seen = end + chunk
        if _JSON_PART.search(seen):
            return True
        end = seen[-_START_BYTES:]
    return False


def is_packed(encoding: str) -> bool:
    """Whether nothing can be told of a body before it is decompressed."""
    return encoding.strip().lower() not in ("", "identity")


def redact_content(content: bytes, media_type: str, encoding: str, paths: Sequence[tuple[Step, ...]]) -> bytes:
    """Return the content with the values at ``paths`` replaced; the very same object where nothing is there.

    What comes back is not compressed when something was replaced. Raises ``Unreadable``.
    """
    if not content or _is_plain_picture(content, media_type, encoding):
        return content
    if len(content) > MAX_BYTES:
        raise Unreadable("too large")
    kind = kind_of(media_type)
    plain = decompress(content, encoding)
    if has_json_part(media_type, [plain]):
        raise Unreadable("JSON within a form")
    if is_binary(media_type, start_of([plain])):
        return content
    try:
        if kind == "text/event-stream":
            return _redact_events(plain, paths) or content
        return _redact_document(plain, paths) or content
    except (ValueError, RecursionError) as error:
        raise Unreadable(kind) from error


def _is_plain_picture(content: bytes, media_type: str, encoding: str) -> bool:
    is_picture = not is_packed(encoding) and is_binary(media_type, start_of([content]))
    return is_picture and not has_json_part(media_type, [content])


def kind_of(media_type: str) -> str:
    """Return the type without its parameters, in lower case."""
    return media_type.partition(";")[0].strip().lower()


def _redact_document(plain: bytes, paths: Sequence[tuple[Step, ...]]) -> bytes | None:
    # Numbers travel as marked texts: made a float and written again, one with more digits than fit would be another.
    mark = secrets.token_hex(8)
    document = json.loads(
        plain, object_pairs_hook=_once, parse_float=lambda digits: mark + digits, parse_int=lambda digits: mark + digits
    )
    found = [_replace(document, path) for path in paths]
    if not any(found):
        return None
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    return re.sub(f'"{mark}([^"]*)"', r"\1", text).encode()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a name that comes twice: only one of its values could be looked at. Raises ``ValueError``."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice in one object")
    return found


def _redact_events(plain: bytes, paths: Sequence[tuple[Step, ...]]) -> bytes | None:
    """Redact the JSON in each ``data`` line of an event stream; other data, such as ``[DONE]``, holds no path."""
    changed = False
    lines = plain.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True)
    for number, line in enumerate(lines):
        name, _, value = line.partition(b":")
        if name.rstrip(b"\r\n") not in _FIELDS:
            raise ValueError("a line that no event has: this may be JSON by a wrong name")
        if name != b"data" or not value.strip().startswith((b"{", b"[")) or value.strip() == b"[DONE]":
            continue
        redacted = _redact_document(value, paths)
        if redacted is not None:
            ending = line[len(line.rstrip(b"\r\n")) :]
            lines[number], changed = b"data: " + redacted + ending, True
    return b"".join(lines) if changed else None


def _replace(node: Any, path: Sequence[Step]) -> bool:
    places = list(_places(node, path[0]))
    if len(path) == 1:
        for place in places:
            node[place] = REDACTED_VALUE
        return bool(places)
    replaced = [_replace(node[place], path[1:]) for place in places]
    return any(replaced)


def _places(node: Any, step: Step) -> Iterator[Any]:
    if isinstance(node, dict):
        if step == "*":
            yield from list(node)
        elif step in node:
            yield step
    elif isinstance(node, list) and isinstance(step, int):
        yield from range(len(node)) if step == -1 else [step] if step < len(node) else []


def decompress(content: bytes, encoding: str) -> bytes:
    """Return the content without its encoding, at most ``MAX_BYTES``. Raises ``Unreadable``."""
    if not is_packed(encoding):
        return content
    if encoding.strip().lower() not in ("gzip", "x-gzip", "deflate"):
        raise Unreadable(f"encoding {encoding}")
    try:
        decompressor = zlib.decompressobj(47)  # gzip or zlib, by its first bytes
        plain = decompressor.decompress(content, MAX_BYTES)
    except zlib.error as error:
        raise Unreadable(encoding) from error
    if not decompressor.eof or decompressor.unused_data:
        raise Unreadable(f"{encoding} that is cut, too large or has several members")
    return plain
