"""Faces found with CenterFace (Xu et al., 2019).

The detector sees a face well from about 16 to 500 pixels. So tiny pictures are enlarged, large ones made smaller, and a
face that fills a large picture, of which only parts would be found, is looked for once more in a coarse copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from onprem_backend.images import Pixels

Boxes = NDArray[np.float32]
"""``(N, 5)``: x1, y1, x2, y2 in pixels of the picture, score 0..1; by falling score."""
MAPS = 4
"""How many outputs the network has."""
LARGEST_SEEN_PX = 640
"""A picture with no side longer than this is seen well, however much of it a face fills."""
COARSE_SIDE_PX = 320

_SCORE = 0.5
_OVERLAP = 0.3
_STRIDE = 4
_ALIGN = 32
_TINY_PX, _ENLARGED_PX, _MOST_ENLARGED = 128, 256, 4
_LARGE_PX = 400
_SWALLOWED, _PART = 0.7, 0.2


class Search:
    """One picture, ``(H, W, 3)`` sRGB, as the detector sees it: a large one with as many pixels as a square of
    ``side_px`` has, a tiny one enlarged. Pictures of one size have tensors of one shape. ``searched`` is the width and
    height that the detector sees, ``scale`` what they are to the picture's own."""

    def __init__(self, rgb: Pixels, side_px: int) -> None:
        height, width = rgb.shape[:2]
        self.scale = _scale(width, height, side_px)
        small_w, small_h = max(1, round(width * self.scale)), max(1, round(height * self.scale))
        way = cv2.INTER_AREA if self.scale < 1 else cv2.INTER_CUBIC
        small = rgb if self.scale == 1 else cv2.resize(rgb, (small_w, small_h), interpolation=way)
        shape = (3, -(-small_h // _ALIGN) * _ALIGN, -(-small_w // _ALIGN) * _ALIGN)
        self.tensor = np.zeros(shape, dtype=np.float32)
        self.tensor[:, :small_h, :small_w] = small.transpose(2, 0, 1)
        self._size, self.searched = (width, height), (small_w, small_h)

    def faces(self, outputs: Sequence[NDArray[np.float32]]) -> Boxes:
        """Return the faces that the network's outputs for this tensor (no batch axis) mean."""
        heatmap, sizes, offsets, _landmarks = outputs
        boxes = _suppress(_decode(heatmap[0], sizes, offsets, self.searched))
        boxes[:, [0, 2]] *= self._size[0] / self.searched[0]
        boxes[:, [1, 3]] *= self._size[1] / self.searched[1]
        return boxes


def _scale(width: int, height: int, side_px: int) -> float:
    """Return what to multiply both sides with. The pixels count, not the longer side, so that a panorama is not looked
    at through a slit; but what a side is padded to is bounded, too."""
    side = math.sqrt(width * height)
    if side < _TINY_PX:
        return min(_MOST_ENLARGED, min(_ENLARGED_PX, side_px) / side)
    return min(1.0, side_px / side, max(side_px**2 / _ALIGN, _ALIGN) / max(width, height))


def _decode(
    heatmap: NDArray[np.float32], sizes: NDArray[np.float32], offsets: NDArray[np.float32], size: tuple[int, int]
) -> Boxes:
    """Turn CenterFace's maps (stride 4; height before width) into boxes within ``size`` (width, height)."""
    rows, columns = np.nonzero(heatmap > _SCORE)
    half_h, half_w = (np.exp(sizes[axis, rows, columns]) * _STRIDE / 2 for axis in (0, 1))
    middle_y = (rows + offsets[0, rows, columns] + 0.5) * _STRIDE
    middle_x = (columns + offsets[1, rows, columns] + 0.5) * _STRIDE
    x1, x2 = ((middle_x + side * half_w).clip(0, size[0]) for side in (-1, 1))
    y1, y2 = ((middle_y + side * half_h).clip(0, size[1]) for side in (-1, 1))
    boxes = np.stack([x1, y1, x2, y2, heatmap[rows, columns]], axis=1).astype(np.float32)
    return boxes[(boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1])]


def _suppress(boxes: Boxes) -> Boxes:
    """Greedy non-maximum suppression."""
    boxes = boxes[np.argsort(-boxes[:, 4], kind="stable")]
    kept: list[NDArray[np.float32]] = []
    while len(boxes):
        best, boxes = boxes[0], boxes[1:]
        kept.append(best)
        shared = _shared(best, boxes)
        union = _areas(best[None]) + _areas(boxes) - shared
        boxes = boxes[shared < _OVERLAP * union]
    return np.stack(kept) if kept else np.empty((0, 5), dtype=np.float32)


def _shared(box: NDArray[np.float32], boxes: Boxes) -> NDArray[np.float32]:
    sides = np.minimum(box[2:4], boxes[:, 2:4]) - np.maximum(box[:2], boxes[:, :2])
    return np.asarray(sides.clip(min=0).prod(axis=1), dtype=np.float32)


def _areas(boxes: Boxes) -> NDArray[np.float32]:
    return np.asarray((boxes[:, 2:4] - boxes[:, :2]).prod(axis=1), dtype=np.float32)


def join(fine: Boxes, coarse: Boxes, scale: float) -> Boxes:
    """Return the faces of two looks at one picture; ``scale`` is the fine look's. Of a face too large for the fine look
    only the coarse box counts, and replaces those that the fine look drew around its parts; smaller ones are the fine
    look's."""
    large = coarse[(coarse[:, 2:4] - coarse[:, :2]).max(axis=1) * scale > _LARGE_PX]
    for box in large:
        area = _areas(fine)
        part = (_shared(box, fine) > _SWALLOWED * area) & (area > _PART * _areas(box[None]))
        fine = fine[~part]
    return _suppress(np.concatenate([large, fine]))
