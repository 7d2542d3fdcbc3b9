"""Bodies that are no pictures, as lines for two columns. Pure, bounded, never raises on input.

JSON is laid out one value a line, spelled as it was sent: numbers are not parsed, duplicate keys are kept, so that two
documents which differ only in how a number is written can be told apart. What is too long is cut, and says so.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from compare.phrases import say

MAX_BYTES = 256 * 1024
MAX_LINES = 400
MAX_LINE = 300
_STEP = "  "


class Spelled(NamedTuple):
    """A number or constant of a JSON text, as it was written. (A tuple: no JSON value equals one.)"""

    text: str


class Members(NamedTuple):
    """A JSON object with its members in order, duplicates kept."""

    items: list[tuple[str, object]]


class Parsed(NamedTuple):
    """The value of a JSON text, of which ``None`` is one."""

    value: object


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a column; ``differs`` when the other column has no such line in that place."""

    text: str
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A body as lines. ``note`` says what was cut, or why there is nothing to show; ``json`` is what was parsed."""

    lines: tuple[Line, ...] = ()
    note: str = ""
    json: Parsed | None = None


def read_text(data: bytes | None, media_type: str) -> Text:
    """Return a body as lines: JSON laid out, other text as it is, anything else as a note."""
    if data is None:
        return Text(note=say("The body is not kept any more, or never was: only its hash and size are."))
    if not data:
        return Text(note=say("An empty body."))
    if len(data) > MAX_BYTES:
        return Text(note=say("{n:,} bytes are too many to show here.", n=len(data)))
    kind = media_type.partition(";")[0].strip().lower()
    try:
        parsed = _parse(data)
        return _bounded(list(_lay_out(parsed.value, "", "", "")), parsed)
    except (ValueError, RecursionError):
        pass  # no JSON, or one that nests too deeply: shown as the text that it is
    if kind.startswith("text/") or "json" in kind or "xml" in kind or not kind:
        text = data.decode("utf-8", "replace")
        if "\x00" not in text:
            return _bounded(text.splitlines())
    about = {"n": len(data), "kind": kind or say("unknown type")}
    return Text(note=say("{n:,} bytes of {kind}, which is neither a picture nor text.", **about))


def mark_differences(one: Text, other: Text) -> tuple[Text, Text]:
    """Return both texts with the lines marked that the other one does not have in that place."""
    left, right = ([line.text for line in side.lines] for side in (one, other))
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=len(left) + len(right) > MAX_LINES)
    same: tuple[set[int], set[int]] = (set(), set())
    for a, b, size in matcher.get_matching_blocks():
        same[0].update(range(a, a + size))
        same[1].update(range(b, b + size))
    return _marked(one, same[0]), _marked(other, same[1])


def _marked(text: Text, same: set[int]) -> Text:
    return Text(tuple(Line(line.text, i not in same) for i, line in enumerate(text.lines)), text.note, text.json)


def _bounded(lines: list[str], parsed: Parsed | None = None) -> Text:
    note = say("The first {n} of {all:,} lines.", n=MAX_LINES, all=len(lines)) if len(lines) > MAX_LINES else ""
    return Text(tuple(Line(_cut(line)) for line in lines[:MAX_LINES]), note, parsed)


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else f"{line[:MAX_LINE]} … {len(line) - MAX_LINE:,} more characters"


def _parse(data: bytes) -> Parsed:
    """Return what a JSON text says. Raises ``ValueError`` or ``RecursionError``."""
    return Parsed(
        json.loads(
            data.decode("utf-8-sig"),
            parse_float=Spelled,
            parse_int=Spelled,
            parse_constant=Spelled,
            object_pairs_hook=Members,
        )
    )


def _lay_out(node: object, indent: str, head: str, tail: str) -> Iterator[str]:
    """Yield the lines of ``node``: ``head`` is its key, ``tail`` the comma after it."""
    if isinstance(node, Members):
        entries = [(f"{json.dumps(key, ensure_ascii=False)}: ", value) for key, value in node.items]
        brackets = "{}"
    elif isinstance(node, list):
        entries, brackets = [("", value) for value in node], "[]"
    else:
        shown = node.text if isinstance(node, Spelled) else json.dumps(node, ensure_ascii=False)
        yield f"{indent}{head}{shown}{tail}"
        return
    if not entries:
        yield f"{indent}{head}{brackets}{tail}"
        return
    yield f"{indent}{head}{brackets[0]}"
    for place, (key, value) in enumerate(entries, 1):
        yield from _lay_out(value, indent + _STEP, key, "," if place < len(entries) else "")
    yield f"{indent}{brackets[1]}{tail}"
