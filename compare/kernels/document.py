"""Parse JSON exactly and within bounds (RFC 8259): numbers are never floats, duplicate keys and a BOM are seen.

Fixed rules: integers of any length are exact; 1, 1.0 and 1e0 are equal with a note of the type; NaN equals NaN and
infinities themselves although RFC 8259 has neither; a duplicate key is a difference from a document without it or with
another value under it. A text of many documents (JSON lines, RFC 7464) is a list of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from compare.phrases import Phrase, say

_PLAIN_INT_DIGITS = 300
_OUT_OF_RANGE = "a number is out of range"


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed value: dict, list, str, int, Decimal, bool, None. ``flags`` name what was odd about the text.

    ``hidden`` are the members that a later one of the same key took the place of, in their order."""

    value: Any
    flags: frozenset[str] = field(default_factory=frozenset)
    hidden: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Unparsable:
    """Why bytes are no document that could be judged. ``too_large`` or too deep ones may well be good."""

    why: Phrase
    too_large: bool = False


def parse(data: bytes, max_bytes: int, max_depth: int) -> Document | Unparsable:
    """Return the document or why not. Never raises on input; time is linear in ``max_bytes``."""
    if len(data) > max_bytes:
        return Unparsable(say("{n} bytes are more than {most}", n=len(data), most=max_bytes), too_large=True)
    flags, hidden = set[str](), list[tuple[str, Any]]()
    if data.startswith(b"\xef\xbb\xbf"):
        flags.add("byte order mark")
    try:
        value = json.loads(
            data.decode("utf-8-sig"),
            parse_int=_integer,
            parse_float=_decimal,
            parse_constant=_constant(flags),
            object_pairs_hook=_object(hidden),
        )
    except RecursionError:
        return Unparsable(say("nested too deeply"), too_large=True)
    except ValueError as error:
        return Unparsable(_why(error))
    if any(depth_beyond(side, max_depth) for side in (value, *(shadowed for _, shadowed in hidden))):
        return Unparsable(say("nested deeper than {most}", most=max_depth), too_large=True)
    return Document(value, frozenset(flags), tuple(hidden))


def parse_lines(data: bytes, max_bytes: int, max_depth: int) -> Document | Unparsable:
    """Return the documents of a text that has one on each line, as one list, or why not. Empty lines and the record
    separators of RFC 7464 are passed over."""
    if len(data) > max_bytes:
        return Unparsable(say("{n} bytes are more than {most}", n=len(data), most=max_bytes), too_large=True)
    found = list[Document]()
    for number, line in enumerate(data.split(b"\n"), 1):
        text = line.strip(b"\x1e \t\r")
        document = parse(text, max_bytes, max_depth - 1) if text else None
        if isinstance(document, Unparsable):
            return Unparsable(say("line {n}: {why}", n=number, why=document.why), document.too_large)
        if document is not None:
            found.append(document)
    hidden = tuple(member for document in found for member in document.hidden)
    return Document([d.value for d in found], frozenset[str]().union(*(d.flags for d in found)), hidden)


def _why(error: ValueError) -> Phrase:
    """Return the reason without quoting the text."""
    if isinstance(error, json.JSONDecodeError):
        return say("not JSON from character {n} on", n=error.pos)
    if isinstance(error, UnicodeDecodeError):
        return say("not JSON: no UTF-8 at byte {n}", n=error.start)
    return say("not JSON: a number out of range")


def _integer(text: str) -> int | Decimal:
    # Python refuses to convert very long digit strings to int; Decimal keeps every digit.
    return int(text) if len(text) <= _PLAIN_INT_DIGITS else Decimal(text)


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(_OUT_OF_RANGE) from error


def _constant(flags: set[str]) -> Callable[[str], Decimal]:
    def convert(name: str) -> Decimal:
        flags.add(name)
        return Decimal(name)

    return convert


def _object(hidden: list[tuple[str, Any]]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            last = {key: place for place, (key, _) in enumerate(pairs)}
            hidden.extend(pair for place, pair in enumerate(pairs) if last[pair[0]] != place)
        return result

    return build


def children(value: object) -> Iterator[Any]:
    """Yield the values inside a container."""
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def depth_beyond(value: object, limit: int) -> bool:
    """Whether the value nests deeper than ``limit`` containers; breadth first, so that no stack is used up."""
    level: list[Any] = [value]
    for _ in range(limit + 1):
        level = [child for item in level for child in children(item) if isinstance(child, (dict, list))]
        if not level:
            return False
    return True
