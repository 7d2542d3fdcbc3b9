"""Boxes of a detector: matched one to one, then counted. Pure, symmetric; Hungarian assignment on 1 - IoU (scipy)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

MAX_BOXES = 2_000
"""Per side; the assignment takes the third power of it."""
_LARGEST = 10**15
_KEYS = ("box", "bbox", "bounding_box")
_CORNERS = (("xmin", "ymin", "xmax", "ymax"), ("x1", "y1", "x2", "y2"), ("left", "top", "right", "bottom"))
BoxFormat = Literal["xyxy", "xywh"]


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes of one side: ``corners`` ``(n, 4)`` as x1, y1, x2, y2 in any unit, with a label and a score each."""

    corners: NDArray[np.float64]
    labels: tuple[str, ...]
    scores: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class BoxMatch:
    """``f1`` over boxes that meet with the least IoU and the same label; ``mean_iou`` and ``largest_score_gap`` are of
    those that do."""

    f1: float
    missed: int
    extra: int
    mean_iou: float
    largest_score_gap: float


def read_boxes(value: Any, form: BoxFormat = "xyxy") -> Boxes | None:
    """Return the boxes of a JSON list, ``None`` when it is none: each item four numbers, or an object with them under
    ``box``, ``bbox`` or by the names of corners, beside ``label`` (or ``class``) and ``score`` (or ``confidence``)."""
    if not isinstance(value, list) or len(value) > MAX_BOXES:
        return None
    corners, labels, scores = [], [], []
    for item in value:
        four = _four(item)
        if four is None:
            return None
        x, y, right, low = four
        corners.append((x, y, x + right, y + low) if form == "xywh" else four)
        fields: Mapping[str, Any] = item if isinstance(item, dict) else {}
        labels.append(str(fields.get("label", fields.get("class", ""))))
        score = fields.get("score", fields.get("confidence"))
        scores.append(float(score) if _number(score) else None)
    return Boxes(np.array(corners, dtype=np.float64).reshape(-1, 4), tuple(labels), tuple(scores))


def _number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return False
    number = Decimal(value)
    return number.is_finite() and abs(number) < _LARGEST


def _four(item: Any) -> tuple[float, float, float, float] | None:
    if isinstance(item, dict):
        inner = next((item[key] for key in _KEYS if key in item), item)
        if isinstance(inner, dict):
            names = next((names for names in _CORNERS if all(name in inner for name in names)), None)
            inner = None if names is None else [inner[name] for name in names]
    else:
        inner = item
    if not isinstance(inner, list) or len(inner) != 4 or not all(map(_number, inner)):
        return None
    a, b, c, d = map(float, inner)
    return a, b, c, d


def overlaps(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the intersection over union of every box of ``a`` ``(n, 4)`` with every one of ``b`` ``(m, 4)``."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    inner = np.clip(high - low, 0, None).prod(axis=2)
    areas = [np.clip(side[:, 2:] - side[:, :2], 0, None).prod(axis=1) for side in (a, b)]
    union = areas[0][:, None] + areas[1][None, :] - inner
    ratio: NDArray[np.float64] = np.divide(inner, union, out=np.zeros_like(inner), where=union > 0)
    return ratio


def match_boxes(a: Boxes, b: Boxes, min_iou: float = 0.5) -> BoxMatch:
    """Match one to one so that the sum of overlaps is largest; boxes of different labels never meet."""
    n, m = len(a.labels), len(b.labels)
    if n == 0 or m == 0:
        return BoxMatch(float(n == m), n, m, 1.0, 0.0)
    same = np.array([[x == y for y in b.labels] for x in a.labels])
    ratio = np.where(same, overlaps(a.corners, b.corners), 0.0)
    usable = np.where(ratio >= min_iou, ratio, 0.0)
    rows, columns = linear_sum_assignment(-usable)
    pairs = [(i, j) for i, j in zip(rows, columns, strict=True) if usable[i, j] > 0]
    gaps = [_gap(a.scores[i], b.scores[j]) for i, j in pairs]
    mean = float(np.mean([ratio[i, j] for i, j in pairs])) if pairs else 0.0
    return BoxMatch(2 * len(pairs) / (n + m), n - len(pairs), m - len(pairs), mean, max(gaps, default=0.0))


def _gap(x: float | None, y: float | None) -> float:
    return abs(x - y) if x is not None and y is not None else 0.0 if x is y else 1.0
