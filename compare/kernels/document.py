"""Parse JSON exactly and within bounds (RFC 8259): numbers are never floats, duplicate keys and a BOM are seen.

Fixed rules: integers of any length are exact; 1, 1.0 and 1e0 are equal with a note of the type; NaN equals NaN and
infinities themselves although RFC 8259 has neither; a duplicate key is a difference from a document without it.
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
    """A parsed value: dict, list, str, int, Decimal, bool, None. ``flags`` name what was odd about the text."""

    value: Any
    flags: frozenset[str] = field(default_factory=frozenset)
    duplicate_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unparsable:
    """Why bytes are no document that could be judged. ``too_large`` or too deep ones may well be good."""

    why: Phrase
    too_large: bool = False


def parse(data: bytes, max_bytes: int, max_depth: int) -> Document | Unparsable:
    """Return the document or why not. Never raises on input; time is linear in ``max_bytes``."""
    if len(data) > max_bytes:
        return Unparsable(say("{n} bytes are more than {most}", n=len(data), most=max_bytes), too_large=True)
    flags, duplicates = set[str](), list[str]()
    if data.startswith(b"\xef\xbb\xbf"):
        flags.add("byte order mark")
    try:
        value = json.loads(
            data.decode("utf-8-sig"),
            parse_int=_integer,
            parse_float=_decimal,
            parse_constant=_constant(flags),
            object_pairs_hook=_object(duplicates),
        )
    except RecursionError:
        return Unparsable(say("nested too deeply"), too_large=True)
    except ValueError as error:
        return Unparsable(_why(error))
    if depth_beyond(value, max_depth):
        return Unparsable(say("nested deeper than {most}", most=max_depth), too_large=True)
    return Document(value, frozenset(flags), tuple(duplicates[:20]))


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


def _object(duplicates: list[str]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            seen: set[str] = set()
            duplicates.extend(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
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
