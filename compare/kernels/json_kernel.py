"""Two JSON documents, walked together over typed paths such as ``items[*].score``, one rule per path.

Without a rule order counts and numbers are exact. Headers are no part of the comparison. Time is linear in the
documents (sets: n log n); of many differences the first few are kept, and all are counted.

What is said of a difference outlives the bodies, in measurements, verdicts and reports. So it names the path, the kinds
and counts, never a value; a key that does not look like a name of a schema (an address, a number) is not told either.
The one exception are the labels of a classification (``structured``): they are the model's own vocabulary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from compare.kernels.document import Document, Unparsable, parse, parse_lines
from compare.kernels.embedded import embedded_picture
from compare.kernels.image import judge_image
from compare.kernels.json_rules import QUIET, TOLERANCES, canonical, is_number, same_items
from compare.measurement import PATH, UNMATCHED, Critical, Diagnosis, Judgement, Number, OutputClass
from compare.phrases import Phrase, joined, mark, plain, say
from compare.policy import ImageBands, JsonRule, Policy, RuleName

_KEPT = 10
_TOLD = 2
_MOST_MATCHED = 100
_SCHEMA_NAME = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]{0,63}")


@dataclass(slots=True)
class _Walk:
    """What one comparison has found so far. Lives for one call."""

    rules: Mapping[str, JsonRule]
    bands: ImageBands
    critical: Critical | None = None
    differences: Counter[str] = field(default_factory=Counter)
    kept: list[Phrase] = field(default_factory=list)
    notes: Counter[Phrase] = field(default_factory=Counter)
    used: set[str] = field(default_factory=set)
    ignored: int = 0
    tolerated: int = 0

    def below(self, path: str, *names: RuleName) -> dict[str, JsonRule]:
        """Return the rules of places inside of the one at ``path``, those of these names where there are any."""
        starts = (f"{path}.", f"{path}[*]") if path else ("",)
        return {
            inner: rule
            for inner, rule in self.rules.items()
            if inner != path and inner.startswith(starts) and (not names or rule.rule in names)
        }

    def differ(self, path: str, words: Phrase) -> None:
        """Count a difference. ``path`` is the one that is told."""
        self.differences[path] += 1
        if len(self.kept) < _KEPT:
            self.kept.append(say("{path}: {words}", path=_path(path), words=words))

    def differ_in_value(self, path: str, a: object, b: object, under: str = "") -> None:
        """Count a difference of two values; it is put into words only while there is room for them."""
        words = _against(a, b) if len(self.kept) < _KEPT else _UNTOLD
        self.differ(path, say("{difference}, under rule {rule}", difference=words, rule=under) if under else words)


@dataclass(frozen=True, slots=True)
class _Place:
    """A typed path as rules name it (``path``), and as it is told (``told``)."""

    path: str = ""
    told: str = ""

    def below(self, key: str) -> _Place:
        told = key if _SCHEMA_NAME.fullmatch(key) else "{key}"
        return _Place(_join(self.path, key), _join(self.told, told))

    def items(self) -> _Place:
        return _Place(f"{self.path}[*]", f"{self.told}[*]")


_Step = tuple[_Place, Any, Any, JsonRule | None]
"""A place, its two values, and the rule that is handed down to it."""
_UNTOLD = say("")


def _path(path: str) -> str:
    """Return a path as it is told, cut where it is long."""
    return path[:150] or say("the document")


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def judge_json(baseline: bytes, candidate: bytes, policy: Policy, *, lines: bool = False) -> Judgement:
    """Compare two JSON bodies by the policy's rules. With ``lines`` each has a document on every line and is taken for
    the list of them."""
    documents = parse_both(baseline, candidate, policy, lines=lines)
    if isinstance(documents, Judgement):
        return documents
    old, new = documents
    walk = _Walk({rule.path: rule for rule in policy.json_rules}, policy.image)
    with localcontext(QUIET):
        compare_values(walk, _Place(), old.value, new.value)
    if old.hidden or new.hidden:
        _compare_hidden(walk, old, new)
    for flag in sorted(old.flags ^ new.flags):
        walk.notes[say("{flag} on one side", flag=flag)] += 1
    return _judgement(walk, old, new)


def _compare_hidden(walk: _Walk, old: Document, new: Document) -> None:
    """Compare what stood under duplicate keys and no reader of the value sees."""
    if [key for key, _ in old.hidden] != [key for key, _ in new.hidden]:
        walk.differ("", say("duplicate keys: {old} against {new}", old=len(old.hidden), new=len(new.hidden)))
    elif any(canonical(a) != canonical(b) for (_, a), (_, b) in zip(old.hidden, new.hidden, strict=True)):
        walk.differ("", say("other values under duplicate keys"))
    else:
        walk.notes[say("duplicate keys on both sides")] += 1


def parse_both(
    baseline: bytes, candidate: bytes, policy: Policy, *, lines: bool = False
) -> tuple[Document, Document] | Judgement:
    """Return both documents, or the judgement on what is none."""
    read = parse_lines if lines else parse
    old, new = (read(data, policy.max_json_bytes, policy.max_json_depth) for data in (baseline, candidate))
    if isinstance(old, Document) and isinstance(new, Document):
        return old, new
    if baseline == candidate:
        return Judgement(OutputClass.IDENTICAL, note=say("equal bytes that are not compared as JSON"))
    for name, side in (("baseline", old), ("candidate", new)):
        if isinstance(side, Unparsable) and side.too_large:
            source = mark("the {side}'s document is too large or too deep to compare: {why}")
            return Judgement(None, note=say(source, side=plain(name), why=side.why))
    if isinstance(old, Unparsable) and isinstance(new, Unparsable):
        return Judgement(None, note=say("neither answer is JSON: {old}; {new}", old=old.why, new=new.why))
    if isinstance(new, Unparsable):
        words = say("the {side}'s answer is broken: {why}", side=plain("candidate"), why=new.why)
        found = Diagnosis("not_json", words)
        return Judgement(OutputClass.BROKEN, diagnoses=(found,), critical=Critical.UNDECODABLE, note=found.sentence)
    why = old.why if isinstance(old, Unparsable) else ""
    words = say("the {side}'s answer is broken: {why}", side=plain("baseline"), why=why)
    return Judgement(OutputClass.BROKEN, diagnoses=(Diagnosis("baseline_not_json", words),))


def _judgement(walk: _Walk, old: Document, new: Document) -> Judgement:
    total = walk.differences.total()
    numbers: dict[str, Number] = {"differences": total, "suppressed": walk.ignored, "tolerated": walk.tolerated}
    numbers |= {f"{PATH}{path or '$'}": count for path, count in walk.differences.most_common(_KEPT)}
    unused = sorted(set(walk.rules) - walk.used)
    if unused:
        numbers[UNMATCHED] = ", ".join(unused)
    note = joined("; ", walk.notes) if walk.notes else ""
    if total == 0:
        same = walk.ignored == 0 and walk.tolerated == 0
        return Judgement(OutputClass.IDENTICAL if same else OutputClass.EQUIVALENT, numbers, note=note)
    words = say("one value differs, at {told}", told=walk.kept[0])
    if total > 1:
        words = say("{n} values differ: {told}", n=total, told=joined("; ", walk.kept[:_TOLD]))
    if total > _TOLD:
        words = say("{values} and {n} more", values=words, n=total - _TOLD)
    found = Diagnosis("json_values", words)
    if type(old.value) is not type(new.value) and isinstance(old.value, (dict, list)) | isinstance(
        new.value, (dict, list)
    ):
        source = mark("the candidate answers {new} where the baseline answers {old}")
        broken = Diagnosis("schema", say(source, new=_name(new.value), old=_name(old.value)))
        return Judgement(OutputClass.BROKEN, numbers, (broken,), Critical.BROKEN_SCHEMA, note)
    name = OutputClass.BROKEN if walk.critical else OutputClass.DIFFERENT
    return Judgement(name, numbers, (found,), walk.critical, note)


_NAMES: Mapping[type, Phrase] = {
    dict: say("an object"),
    list: say("a list"),
    str: say("a string"),
    bool: say("a boolean"),
    type(None): say("null"),
}
_NUMBER = say("a number")
_OTHER = {"a string": say("another string"), "a boolean": say("another boolean"), "a number": say("another number")}


def _name(value: object) -> Phrase:
    return _NAMES.get(type(value), _NUMBER)


def compare_values(walk: _Walk, start: _Place, old: Any, new: Any) -> None:
    """Walk with a stack of our own: documents may nest as deeply as the parser allowed. A tolerance goes on into what
    is inside of its place, up to a place with a rule of its own."""
    stack: list[_Step] = [(start, old, new, None)]
    while stack:
        place, a, b, rule = stack.pop()
        own = walk.rules.get(place.path)
        if own is not None:
            walk.used.add(place.path)
            rule = own
        if rule is None or rule.rule is RuleName.EXACT:
            handed_down = None
        elif rule.rule is RuleName.TOLERANCE and type(a) is type(b) and isinstance(a, (dict, list)):
            handed_down = rule
        elif rule.rule is RuleName.ORDERED:
            handed_down = None
            ignored = walk.below(place.path, RuleName.IGNORE).keys()
            if a != b and same_items(*(_pruned(ignored, place.path, side, Counter()) for side in (a, b))):
                walk.differ(place.told, say("the same {n} items in another order", n=len(a)))
                continue
        else:
            _apply(walk, rule, place, a, b)
            continue
        stack.extend(reversed(list(_plain(walk, place, a, b, handed_down))))


_ONLY_OLD, _ONLY_NEW = say("only in the baseline"), say("only in the candidate")
_FRACTION = say("an integer on one side is written as a fraction on the other")


def _plain(walk: _Walk, place: _Place, a: Any, b: Any, rule: JsonRule | None) -> Iterator[_Step]:
    """Compare exactly; yield the pairs of children still to be compared, under ``rule`` where they have none."""
    if isinstance(a, dict) and isinstance(b, dict):
        for key in (*a, *(key for key in b if key not in a)):
            below = place.below(key)
            if key in a and key in b:
                yield below, a[key], b[key], rule
            elif (own := walk.rules.get(below.path)) is not None and own.rule is RuleName.IGNORE:
                walk.used.add(below.path)
                walk.ignored += 1
            else:
                walk.differ(below.told, _ONLY_OLD if key in a else _ONLY_NEW)
    elif isinstance(a, list) and isinstance(b, list):
        items = place.items()
        if len(a) != len(b):
            walk.differ(items.told, say("{old} items against {new}", old=len(a), new=len(b)))
        yield from ((items, x, y, rule) for x, y in zip(a, b, strict=False))
    elif not (_same_scalar(walk, a, b) or _judged_as_pictures(walk, place, a, b)):
        walk.differ_in_value(place.told, a, b)


def _judged_as_pictures(walk: _Walk, place: _Place, a: Any, b: Any) -> bool:
    """Compare two strings that hold pictures as such, where no rule says how; whether that was done."""
    if not (isinstance(a, str) and isinstance(b, str)) or place.path in walk.rules:
        return False
    old, new = embedded_picture(a), embedded_picture(b)
    if old is None or new is None:
        return False
    found = judge_image(old, new, walk.bands)
    if found.output_class is None:
        return False
    if found.output_class.mismatch:
        walk.critical = walk.critical or found.critical
        walk.differ(
            place.told, say("another picture: {words}", words=joined("; ", (d.sentence for d in found.diagnoses)))
        )
    elif found.output_class is OutputClass.EQUIVALENT:
        walk.tolerated += 1
    else:
        walk.notes[say("the same picture in other bytes")] += 1
    return True


def _same_scalar(walk: _Walk, a: Any, b: Any) -> bool:
    if is_number(a) and is_number(b):
        if isinstance(a, Decimal) and a.is_nan():
            return isinstance(b, Decimal) and b.is_nan()
        same = bool(a == b)
        if same and isinstance(a, int) != isinstance(b, int):
            walk.notes[_FRACTION] += 1
        return same
    return type(a) is type(b) and bool(a == b)


def _against(a: object, b: object) -> Phrase:
    """Say how two values differ without telling them."""
    if _name(a) != _name(b):
        return say("{old} against {new}", old=_name(a), new=_name(b))
    if isinstance(a, str) and isinstance(b, str):
        return say("another string, {old} characters against {new}", old=len(a), new=len(b))
    if isinstance(a, list) and isinstance(b, list):
        return say("another list, {old} items against {new}", old=len(a), new=len(b))
    return _OTHER.get(_name(a)) or say("another object")


def _apply(walk: _Walk, rule: JsonRule, place: _Place, a: Any, b: Any) -> None:
    if rule.rule is RuleName.IGNORE:
        walk.ignored += 1
        return
    ignored = walk.below(place.path, RuleName.IGNORE).keys()
    if ignored:
        left_out: tuple[Counter[str], Counter[str]] = Counter(), Counter()
        a, b = (_pruned(ignored, place.path, side, seen) for side, seen in zip((a, b), left_out, strict=True))
        walk.used |= left_out[0].keys() | left_out[1].keys()
        walk.ignored += max(seen.total() for seen in left_out)
    if canonical(a) == canonical(b):
        return
    if rule.rule is RuleName.SET and isinstance(a, list) and isinstance(b, list):
        same = len(a) == len(b) and _match_items(walk, place, a, b)
    else:
        same = TOLERANCES[rule.rule](rule, a, b)
    if same:
        walk.tolerated += 1
    else:
        walk.differ_in_value(place.told, a, b, rule.rule.value)


def _pruned(ignored: Set[str], path: str, value: Any, left_out: Counter[str]) -> Any:
    """Return the value without what is ignored inside of it, counting by path what that was."""
    if not ignored:
        return value
    if isinstance(value, list):
        inner = f"{path}[*]"
        if inner not in ignored:
            return [_pruned(ignored, inner, item, left_out) for item in value]
        left_out[inner] += len(value)
        return []
    if not isinstance(value, dict):
        return value
    kept = {}
    for key, item in value.items():
        inner = _join(path, key)
        if inner in ignored:
            left_out[inner] += 1
        else:
            kept[key] = _pruned(ignored, inner, item, left_out)
    return kept


def _match_items(walk: _Walk, place: _Place, a: list[Any], b: list[Any]) -> bool:
    """Whether the items of two lists of one length are the same in some order, each by the rules inside of it.

    What is equal meets at once; of the rest, which rules may tolerate, no more than ``_MOST_MATCHED`` are tried.
    """
    left, right = _unmatched(a, b), _unmatched(b, a)
    inner = walk.below(place.path)
    if not left or not inner or len(left) > _MOST_MATCHED:
        return not left
    tried = [[_Walk(inner, walk.bands) for _ in right] for _ in left]
    for row, x in zip(tried, left, strict=True):
        for one, y in zip(row, right, strict=True):
            compare_values(one, place.items(), x, y)
            walk.used |= one.used
    fits = np.array([[not one.differences for one in row] for row in tried])
    return bool((maximum_bipartite_matching(csr_array(fits)) >= 0).all())


def _unmatched(a: list[Any], b: list[Any]) -> list[Any]:
    """Return the items of the one list that the other has not, or not as often."""
    spare = Counter(map(canonical, b))
    found = []
    for item in a:
        key = canonical(item)
        if spare[key]:
            spare[key] -= 1
        else:
            found.append(item)
    return found
