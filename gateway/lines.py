"""Header fields as the lines of a message, and what none of them may hold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

# RFC 9110 section 5.6.2: a name is a token; section 5.5: a value has no control character but the tab.
_IN_NAMES = b"!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_name_of: Callable[[tuple[bytes, bytes]], bytes] = itemgetter(0)
_IN_VALUES = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])

LENGTH_DIGITS = 18
"""How many digits a Content-Length may have: no body is longer, and zeros before it are nobody's honest way."""


def names_of(fields: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Return the names as they are, in order."""
    return list(map(_name_of, fields))


def encode_lines(fields: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """Return the fields, each with its line end, or ``None`` where one cannot be sent or would be read as several."""
    if not fields:
        return b""
    lines = b"\r\n".join(map(b": ".join, fields)) + b"\r\n"
    names = names_of(fields)
    if not all(names) or b"".join(names).translate(None, _IN_NAMES):
        return None
    # What is left without all that a value may hold are the line ends: ours, and none besides.
    return lines if lines.translate(None, _IN_VALUES) == b"\r\n" * len(fields) else None
