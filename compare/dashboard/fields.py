"""Two JSON documents as one tree of fields, the baseline's value beside the candidate's. Pure, bounded, never raises.

Values are compared as they are spelled, keys whatever their order, lists by place; in lists of different length what is
the same is found first. Equal parts are folded. Of a large tree what differs has more room than what does not, and what
is left out is counted.
"""

from __future__ import annotations

import difflib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from compare.dashboard.texts import Members, Parsed, Spelled
from compare.phrases import joined, plural, say

DEEPEST = 20
MOST_DIFFERING, MOST_SAME = 500, 250
_LONGEST_ALIGNED = 400
_MAX_VALUE = 300
_ABSENT = object()
_SIGNS = {"same": "=", "off": "≠", "near": "≈", "gone": "\N{MINUS SIGN}", "new": "+"}


@dataclass(frozen=True, slots=True)
class Field:
    """A field of either document. ``tone`` is same, off (counted as a difference), near (tolerated), gone (of the
    baseline alone) or new (of the candidate alone). What has ``children`` or ``more`` is an object or a list, which
    ``about`` describes; ``more`` says what of it is left out."""

    name: str
    tone: str
    left: str = ""
    right: str = ""
    about: str = ""
    children: tuple[Field, ...] = ()
    more: str = ""
    differing: int = 0

    @property
    def sign(self) -> str:
        return _SIGNS[self.tone]

    @property
    def folds(self) -> bool:
        return bool(self.children or self.more)


@dataclass(slots=True)
class _Room:
    """How many more rows may be shown. Lives for one call."""

    tone: str
    differing: int = MOST_DIFFERING
    same: int = MOST_SAME

    def take(self, *, same: bool) -> bool:
        """Take a row; whether there was one."""
        if same:
            self.same -= 1
            return self.same >= 0
        self.differing -= 1
        return self.differing >= 0


def build_fields(one: Parsed | None, other: Parsed | None, *, tolerated: bool) -> Field | None:
    """Return the tree of both documents, ``None`` where one is not JSON, or nests too deeply. ``tolerated`` says that
    the comparison found the pair equivalent, so that no difference in spelling counts."""
    if one is None or other is None:
        return None
    try:
        return _field("", one.value, other.value, _Room("near" if tolerated else "off"), 0)
    except RecursionError:
        return None


def _field(name: str, one: object, other: object, room: _Room, depth: int) -> Field:
    if one is _ABSENT:
        return Field(name, "new", right=compact(other), differing=1)
    if other is _ABSENT:
        return Field(name, "gone", left=compact(one), differing=1)
    pairs = _pairs(one, other) if depth < DEEPEST else []
    if not pairs:
        same = one == other
        return Field(name, "same" if same else room.tone, compact(one), compact(other), differing=int(not same))
    children, left_out = [], Counter[bool]()
    for key, a, b in pairs:
        if room.take(same=(same := a == b)):
            children.append(_field(key, a, b, room, depth + 1))
        else:
            left_out[same] += 1
    differing = sum(child.differing for child in children) + left_out[False]
    tone = room.tone if differing else "same"
    about = _about(one, len(pairs), differing)
    return Field(name, tone, about=about, children=tuple(children), more=_more(left_out), differing=differing)


def _about(node: object, count: int, differing: int) -> str:
    size = plural(count, "field") if isinstance(node, Members) else plural(count, "item")
    return joined(", ", (size, plural(differing, "difference") if differing else say("all the same")))


def _more(left_out: Counter[bool]) -> str:
    parts = []
    if left_out[False]:
        parts.append(say("{n:,} more that differ are not shown", n=left_out[False]))
    if left_out[True]:
        parts.append(say("{n:,} more that are the same are not shown", n=left_out[True]))
    return joined(" · ", parts) if parts else ""


def _pairs(one: object, other: object) -> list[tuple[str, object, object]]:
    """Return (name, value, value) of what is inside of two objects or two lists, empty for anything else."""
    if isinstance(one, Members) and isinstance(other, Members):
        left, right = _numbered(one), _numbered(other)
        keys = dict.fromkeys([*left, *right])
        return [(json.dumps(k[0], ensure_ascii=False), left.get(k, _ABSENT), right.get(k, _ABSENT)) for k in keys]
    if isinstance(one, list) and isinstance(other, list):
        return list(_aligned(one, other))
    return []


def _numbered(node: Members) -> dict[tuple[str, int], object]:
    """Return the values by key and how often the key came before."""
    seen = Counter[str]()
    found: dict[tuple[str, int], object] = {}
    for key, value in node.items:
        found[key, seen[key]] = value
        seen[key] += 1
    return found


def _aligned(one: list[object], other: list[object]) -> Iterator[tuple[str, object, object]]:
    if len(one) == len(other) or max(len(one), len(other)) > _LONGEST_ALIGNED:
        for i in range(max(len(one), len(other))):
            yield f"[{i}]", one[i] if i < len(one) else _ABSENT, other[i] if i < len(other) else _ABSENT
        return
    matcher = difflib.SequenceMatcher(None, [repr(x) for x in one], [repr(x) for x in other], autojunk=False)
    for _, a, a_end, b, b_end in matcher.get_opcodes():
        for i in range(max(a_end - a, b_end - b)):
            left = one[a + i] if a + i < a_end else _ABSENT
            right = other[b + i] if b + i < b_end else _ABSENT
            yield f"[{a + i if left is not _ABSENT else b + i}]", left, right


def compact(node: object) -> str:
    """Return a value in one line as it was spelled, cut where it is long."""
    text = ""
    for piece in _pieces(node):
        text += piece
        if len(text) > _MAX_VALUE:
            return f"{text[:_MAX_VALUE]} …"
    return text


def _pieces(node: object) -> Iterator[str]:
    if isinstance(node, Members):
        yield "{"
        for place, (key, value) in enumerate(node.items):
            yield f"{', ' if place else ''}{json.dumps(key, ensure_ascii=False)}: "
            yield from _pieces(value)
        yield "}"
    elif isinstance(node, list):
        yield "["
        for place, value in enumerate(node):
            yield ", " if place else ""
            yield from _pieces(value)
        yield "]"
    else:
        yield node.text if isinstance(node, Spelled) else json.dumps(node, ensure_ascii=False)
