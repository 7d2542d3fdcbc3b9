"""Grey pictures of more than 8 bits (depth maps, heights, masks of many classes): told apart at their full depth.

Divided down to 0..255 by what the file format could hold, a map of some hundred values is two or three levels and any
other is the same. So two such pictures are stretched over the range of both together before they are scored.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from compare.kernels.pixels import Picture, Pixels

_LEAST_SPAN = 255.0
"""Of whole numbers: one unit is at most one level."""
_LEAST_SHARE = 0.01
"""Of floats: the least span as a share of the largest magnitude, or the rounding errors of a flat map would fill it."""
_MARKS = ((np.isnan, (255, 0, 255)), (np.isposinf, (255, 255, 0)), (np.isneginf, (0, 255, 255)))


def stretched(old: Picture, new: Picture) -> tuple[Picture, Picture]:
    """Return both with pixels that show what their values are within the range of both; as they are where one of them
    has no more than 8 bits. What is no finite number has a colour of its own."""
    if old.values is None or new.values is None:
        return old, new
    sides = [side.values.astype(np.float64) for side in (old, new) if side.values is not None]
    finite = np.concatenate([side[np.isfinite(side)] for side in sides])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    whole = all(side.values is not None and side.values.dtype.kind in "iu" for side in (old, new))
    least = _LEAST_SPAN if whole else _LEAST_SHARE * max(abs(low), abs(high))
    span = max(high - low, least) or 1.0
    return replace(old, pixels=_drawn(sides[0], low, span)), replace(new, pixels=_drawn(sides[1], low, span))


def same_values(old: Picture, new: Picture) -> bool:
    """Whether two pictures that both have values have the same ones, in every bit that counts."""
    if old.values is None or new.values is None:
        return False
    return np.array_equal(old.values, new.values, equal_nan=True)


def _drawn(values: NDArray[np.float64], low: float, span: float) -> Pixels:
    levels = np.nan_to_num((values - low) / span * 255, nan=0.0, posinf=0.0, neginf=0.0)
    pixels = np.repeat(levels.round().clip(0, 255).astype(np.uint8)[..., None], 3, axis=2)
    for is_such, colour in _MARKS:
        pixels[is_such(values)] = colour
    return pixels
