"""Ranked lists of labels with scores. Rank-biased overlap after Webber, Moffat, Zobel, ACM TOIS 28(4), 2010."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

PERSISTENCE = 0.8
_Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Ranked:
    """One place of a ranking."""

    label: str
    score: float


@dataclass(frozen=True, slots=True)
class RankingResult:
    """``same`` when labels agree up to ties and scores lie within tolerance. ``tied`` when a tie had to excuse the
    order."""

    same: bool
    tied: bool
    top_same: bool
    rbo: float
    largest_gap: float


def rbo_ext(a: Sequence[str], b: Sequence[str], p: float = PERSISTENCE) -> float:
    """Return extrapolated rank-biased overlap of two lists of equal length without repeats, in [0, 1]."""
    depth = min(len(a), len(b))
    if depth == 0:
        return 1.0 if len(a) == len(b) else 0.0
    overlap, total = 0, 0.0
    seen_a: set[str] = set()
    seen_b: set[str] = set()
    for d, (x, y) in enumerate(zip(a, b, strict=False), 1):
        overlap += (x == y) + (x != y) * ((x in seen_b) + (y in seen_a))
        seen_a.add(x)
        seen_b.add(y)
        total += overlap / d * p**d
    return float(overlap / depth * p**depth + (1 - p) / p * total)


def average_overlap(a: Sequence[str], b: Sequence[str]) -> float:
    """Return the mean over depths of the share of common labels."""
    depths = range(1, min(len(a), len(b)) + 1)
    return sum(len(set(a[:d]) & set(b[:d])) / d for d in depths) / max(1, len(depths))


def compare_rankings(a: Sequence[Ranked], b: Sequence[Ranked], tolerance: float) -> RankingResult:
    """Compare two rankings of at most a few labels. Symmetric.

    Labels whose scores lie within ``tolerance`` are tied and may change places, also over the list's end;
    but a first label must be somewhere in the other list.
    """
    order_a, order_b = _places(a), _places(b)
    scores_a, scores_b = (
        {place: r.score for place, r in zip(order, side, strict=True)} for order, side in ((order_a, a), (order_b, b))
    )
    shared = scores_a.keys() & scores_b.keys()
    gap = max((score_gap(scores_a[label], scores_b[label]) for label in shared), default=0.0)
    cut_a, cut_b = (min(scores.values(), default=0.0) for scores in (scores_a, scores_b))
    tops_shared = {*order_a[:1], *order_b[:1]} <= shared
    ends_tied = (
        tops_shared
        and all(_at_most(scores_a[x], cut_b, tolerance) for x in scores_a.keys() - shared)
        and all(_at_most(scores_b[x], cut_a, tolerance) for x in scores_b.keys() - shared)
    )
    places_tied = all(
        _tied(scores_a, x, y, tolerance) and _tied(scores_b, x, y, tolerance)
        for x, y in zip(order_a, order_b, strict=False)
        if x != y
    )
    ties = len(a) == len(b) and ends_tied and places_tied
    return RankingResult(
        same=ties and gap <= tolerance,
        tied=ties and order_a != order_b,
        top_same=order_a[:1] == order_b[:1],
        rbo=rbo_ext([r.label for r in a], [r.label for r in b]),
        largest_gap=gap,
    )


def _places(ranking: Sequence[Ranked]) -> list[_Place]:
    """Return the labels in order, each with how often it came before: one that comes twice has two scores."""
    seen = Counter[str]()
    places = []
    for ranked in ranking:
        places.append((ranked.label, seen[ranked.label]))
        seen[ranked.label] += 1
    return places


def _tied(scores: dict[_Place, float], x: _Place, y: _Place, tolerance: float) -> bool:
    """Whether two labels are tied on one side; a label below the list's end counts as being at the end."""
    end = min(scores.values(), default=0.0)
    return score_gap(scores.get(x, end), scores.get(y, end)) <= tolerance


def _at_most(score: float, end: float, tolerance: float) -> bool:
    return score <= end or score_gap(score, end) <= tolerance


def score_gap(x: float, y: float) -> float:
    """Return how far two scores are apart: NaN and NaN not at all, NaN and a number without end."""
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    gap = abs(x - y)
    return math.inf if math.isnan(gap) else gap
