"""Alpha along the edges of the picture itself: the guided filter (He, Sun, Tang, 2013), on a grey guide."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from onprem_backend.images import Pixels

_RADIUS_SHARE = 1 / 64
_SMALLEST_RADIUS_PX = 2
_EPSILON = 1e-4
_SURE = (6, 249)


def refine_alpha(alpha: Pixels, rgb: Pixels) -> Pixels:
    """Return ``alpha`` (``(H, W) uint8``) redrawn along the edges of ``rgb`` (``(H, W, 3) uint8``).

    A network's alpha is a small map made large, so its edges are soft and beside the true ones. As in the paper's
    feathering, alpha is cut at one half and the filter draws the transition anew. Only where alpha is unsure, and
    within the filter's radius of there, does it change; what is surely foreground or background stays.
    """
    height, width = alpha.shape
    radius = max(_SMALLEST_RADIUS_PX, round(max(height, width) * _RADIUS_SHARE))
    unsure = ((alpha > _SURE[0]) & (alpha < _SURE[1])).astype(np.uint8)
    band = cv2.dilate(unsure, np.ones((2 * radius + 1, 2 * radius + 1), dtype=np.uint8)).astype(np.bool_)
    guide = np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY) / 255, dtype=np.float32)
    refined = _guided_filter(guide, (alpha >= 128).astype(np.float32), radius)
    pixels = np.rint(refined.clip(0, 1) * 255).astype(np.uint8)
    return np.where(band, pixels, alpha)


def _guided_filter(guide: NDArray[np.float32], source: NDArray[np.float32], radius: int) -> NDArray[np.float32]:
    """Within each window the result is the line ``a * guide + b`` nearest to ``source``; windows are averaged
    (equations 5, 6 and 8 of the paper)."""

    def mean(values: NDArray[np.float32]) -> NDArray[np.float32]:
        size = (2 * radius + 1, 2 * radius + 1)
        return np.asarray(cv2.blur(values, size, borderType=cv2.BORDER_REFLECT), dtype=np.float32)

    mean_guide, mean_source = mean(guide), mean(source)
    variance = mean(guide * guide) - mean_guide * mean_guide
    covariance = mean(guide * source) - mean_guide * mean_source
    slope = np.asarray(covariance / (variance.clip(min=0) + _EPSILON), dtype=np.float32)
    offset = mean_source - slope * mean_guide
    return mean(slope) * guide + mean(offset)
