"""What a rule of a JSON path tolerates: each is a pure, symmetric function of (rule, value, value).

Values are exact (see ``document``): int, Decimal, str, bool, None, list, dict.
"""

from __future__ import annotations

import base64
import math
import struct
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any, TypeGuard

from compare.kernels.boxes import match_boxes, read_boxes
from compare.kernels.ranking import Ranked, compare_rankings
from compare.kernels.text import MAX_CHARACTERS, broken_invariants, compare_texts
from compare.policy import JsonRule, RuleName

QUIET = Context(prec=50, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
_MOST_RANKED = 1000


def is_number(value: object) -> TypeGuard[int | Decimal]:
    """Whether a value is a JSON number."""
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def as_float(number: int | Decimal) -> float:
    """Return the nearest float, infinite beyond its range."""
    try:
        return float(number)
    except OverflowError:
        return math.inf


def canonical(value: object) -> Hashable:
    """Return a key that is equal for equal values: order of members does not count, 1, 1.0 and 1e0 are one number, of
    which every digit counts, NaN equals NaN; a string, a boolean and a number are never equal."""
    if isinstance(value, dict):
        return dict, frozenset((name, canonical(item)) for name, item in value.items())
    if isinstance(value, list):
        return list, *map(canonical, value)
    if isinstance(value, Decimal) and value.is_nan():
        return Decimal, "NaN"
    return (bool, value) if isinstance(value, bool) else value


def near(rule: JsonRule, a: Any, b: Any) -> bool:
    """Whether two numbers, or two lists or objects of them in the same shape, lie within the tolerance."""
    if is_number(a) and is_number(b):
        x, y = Decimal(a), Decimal(b)
        if not (x.is_finite() and y.is_finite()):
            return (x.is_nan() and y.is_nan()) or bool(x == y)
        allowed = Decimal(repr(rule.abs_tol)) + Decimal(repr(rule.rel_tol)) * max(abs(x), abs(y))
        return bool(abs(x - y) <= allowed)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(near(rule, x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(near(rule, a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b)


def same_items(a: Any, b: Any) -> bool:
    """Whether two lists hold the same items in any order, each as often."""
    if not (isinstance(a, list) and isinstance(b, list)) or len(a) != len(b):
        return False
    return Counter(map(canonical, a)) == Counter(map(canonical, b))


def read_ranking(value: Any, label: str, score: str, top_k: int) -> list[Ranked] | None:
    """Return the first ``top_k`` places, ``None`` when the value is no list of objects with a label and a score."""
    if not isinstance(value, list):
        return None
    places = []
    for item in value[:top_k]:
        if not isinstance(item, dict) or not isinstance(item.get(label), str) or not is_number(item.get(score)):
            return None
        places.append(Ranked(item[label], as_float(item[score])))
    return places


def _same_ranking(rule: JsonRule, a: Any, b: Any) -> bool:
    old, new = (read_ranking(side, rule.label, rule.score, _MOST_RANKED) for side in (a, b))
    return old is not None and new is not None and compare_rankings(old, new, rule.abs_tol).same


def read_vector(value: Any) -> list[float] | None:
    """Return a list of numbers as floats, ``None`` when the value is none.

    A text is taken for float32 in base64, little-endian, as the usual client of embeddings asks for them.
    """
    if isinstance(value, str):
        return _packed_vector(value)
    if not isinstance(value, list) or not all(map(is_number, value)):
        return None
    return [as_float(number) for number in value]


def _packed_vector(text: str) -> list[float] | None:
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return list(struct.unpack(f"<{len(data) // 4}f", data)) if data and len(data) % 4 == 0 else None


def cosine(x: list[float], y: list[float]) -> float | None:
    """Return the cosine of two vectors of one length: 1 for two zero vectors, 0 for one, ``None`` of what is not
    finite."""
    one, other = math.hypot(*x), math.hypot(*y)
    if not (math.isfinite(one) and math.isfinite(other)):
        return None
    if one == 0 or other == 0:
        return float(one == other)
    # Each vector is brought to length one first, so that no product leaves the range of floats.
    return max(-1.0, min(1.0, math.fsum((p / one) * (q / other) for p, q in zip(x, y, strict=True))))


def _same_direction(rule: JsonRule, a: Any, b: Any) -> bool:
    x, y = read_vector(a), read_vector(b)
    if x is None or y is None or len(x) != len(y):
        return False
    angle = cosine(x, y)
    return angle is not None and angle >= rule.min_cosine


def jaccard(a: Any, b: Any) -> float | None:
    """Return the share of tags that both lists have, 1 for two empty ones; ``None`` where one is no list of strings."""
    if not all(isinstance(side, list) and all(isinstance(tag, str) for tag in side) for side in (a, b)):
        return None
    one, other = set(a), set(b)
    return len(one & other) / len(one | other) if one | other else 1.0


def _same_tags(rule: JsonRule, a: Any, b: Any) -> bool:
    share = jaccard(a, b)
    return share is not None and share >= rule.min_jaccard


def _same_boxes(rule: JsonRule, a: Any, b: Any) -> bool:
    old, new = read_boxes(a, rule.box_format), read_boxes(b, rule.box_format)
    if old is None or new is None:
        return False
    return match_boxes(old, new, rule.min_iou).f1 >= rule.min_f1


def _same_text(rule: JsonRule, a: Any, b: Any) -> bool:
    if not (isinstance(a, str) and isinstance(b, str)) or max(len(a), len(b)) > MAX_CHARACTERS:
        return False
    return not broken_invariants(a, b) and compare_texts(a, b).chrf >= rule.min_similarity


TOLERANCES: Mapping[RuleName, Callable[[JsonRule, Any, Any], bool]] = {
    RuleName.TOLERANCE: near,
    RuleName.SET: lambda _rule, a, b: same_items(a, b),
    RuleName.RANKING: _same_ranking,
    RuleName.EMBEDDING: _same_direction,
    RuleName.TAGS: _same_tags,
    RuleName.BOXES: _same_boxes,
    RuleName.TEXT: _same_text,
}
"""What each rule that tolerates something tolerates. ``exact``, ``ordered`` and ``ignore`` are the walk's own."""
