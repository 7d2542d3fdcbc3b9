"""Faces found with CenterFace (Xu et al., 2019) and made unrecognisable."""

from __future__ import annotations

import json
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from onprem_backend.images import Picture, Pixels
from onprem_backend.onnx_networks import load_network
from onprem_backend.runtime import Runtime
from onprem_backend.sessions import BatchModel, Job, Prepared, Result

Boxes = NDArray[np.float32]
"""``(N, 5)``: x1, y1, x2, y2 in pixels of the picture, score 0..1; by falling score."""

_SCORE = 0.5
_OVERLAP = 0.3
_STRIDE = 4
_ALIGN = 32
_MARGIN = 1.3
_CELLS = {"blur": 8, "mosaic": 8}
_MAX_LISTED = 64


def load_centerface(runtime: Runtime) -> BatchModel:
    """Load centerface.onnx."""
    network = load_network(runtime.models_dir / "centerface.onnx", runtime, fixed_shape=None)
    return BatchModel(network, lambda job: _prepare(job, runtime.detect_side_px))


def _prepare(job: Job, detect_side_px: int) -> Prepared:
    search = Search(job.picture.flattened(), detect_side_px)
    return Prepared(search.tensor, lambda outputs: _answer(job, search.faces(outputs)))


def _answer(job: Job, boxes: Boxes) -> Result:
    """Hide every face; nothing outside the ellipses around them changes. ``X-Faces`` counts them, ``X-Face-Boxes``
    lists the first 64 as ``[x1, y1, x2, y2, score]``. With the option ``output=boxes`` the answer is a document with
    all of them instead of a picture."""
    picture = job.picture
    listed = [[*(round(float(v)) for v in box[:4]), round(float(box[4]), 3)] for box in boxes]
    headers = {"X-Faces": str(len(boxes)), "X-Face-Boxes": json.dumps(listed[:_MAX_LISTED], separators=(",", ":"))}
    if job.options.get("output") == "boxes":
        faces = [{"box": box[:4], "score": box[4]} for box in listed]
        document = {"width": picture.size[0], "height": picture.size[1], "faces": faces}
        return Result(document=document, headers=headers)
    rgb = hide_faces(picture.rgb, picture.visible(), boxes, job.options.get("mode", "blur"))
    return Result(Picture(rgb, picture.alpha, picture.format, picture.frames), headers=headers)


class Search:
    """One picture, ``(H, W, 3)`` sRGB, as the detector sees it: longer ones at ``detect_side_px``. Pictures of one
    size have tensors of one shape."""

    def __init__(self, rgb: Pixels, detect_side_px: int) -> None:
        height, width = rgb.shape[:2]
        scale = min(1.0, detect_side_px / max(width, height))
        small_w, small_h = max(1, round(width * scale)), max(1, round(height * scale))
        small = rgb if scale == 1.0 else cv2.resize(rgb, (small_w, small_h), interpolation=cv2.INTER_AREA)
        shape = (3, -(-small_h // _ALIGN) * _ALIGN, -(-small_w // _ALIGN) * _ALIGN)
        self.tensor = np.zeros(shape, dtype=np.float32)
        self.tensor[:, :small_h, :small_w] = small.transpose(2, 0, 1)
        self._size, self._small_size = (width, height), (small_w, small_h)

    def faces(self, outputs: Sequence[NDArray[np.float32]]) -> Boxes:
        """Return the faces that the network's outputs for this tensor (no batch axis) mean."""
        heatmap, sizes, offsets, _landmarks = outputs
        boxes = _suppress(_decode(heatmap[0], sizes, offsets, self._small_size))
        boxes[:, [0, 2]] *= self._size[0] / self._small_size[0]
        boxes[:, [1, 3]] *= self._size[1] / self._small_size[1]
        return boxes


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
        sides = np.minimum(best[2:4], boxes[:, 2:4]) - np.maximum(best[:2], boxes[:, :2])
        shared = sides.clip(min=0).prod(axis=1)
        areas = (boxes[:, 2:4] - boxes[:, :2]).prod(axis=1)
        union = (best[2:4] - best[:2]).prod() + areas - shared
        boxes = boxes[shared < _OVERLAP * union]
    return np.stack(kept) if kept else np.empty((0, 5), dtype=np.float32)


def hide_faces(rgb: Pixels, visible: Pixels, boxes: Boxes, mode: str) -> Pixels:
    """Return a copy of ``rgb`` with each face replaced by a few colours of ``visible``.

    The strength follows the face: whatever its size, what remains of it is an 8 by 8 grid, smooth (``blur``) or in
    squares (``mosaic``). Ellipses are 1.3 times the box. A small face keeps at least one cell.
    """
    result = rgb.copy()
    height, width = rgb.shape[:2]
    for box in boxes:
        centre = (box[:2] + box[2:4]) / 2
        half = np.maximum((box[2:4] - box[:2]) / 2 * _MARGIN, 0.5)
        x1, y1 = (int(v) for v in np.floor(np.maximum(centre - half, 0)))
        x2, y2 = (int(v) for v in np.ceil(np.minimum(centre + half, (width, height))))
        if x2 <= x1 or y2 <= y1:
            continue
        rows, columns = np.mgrid[y1:y2, x1:x2]
        inside = ((columns + 0.5 - centre[0]) / half[0]) ** 2 + ((rows + 0.5 - centre[1]) / half[1]) ** 2 <= 1
        region = result[y1:y2, x1:x2]
        region[inside] = _coarsen(visible[y1:y2, x1:x2], mode)[inside]
    return result


def _coarsen(region: Pixels, mode: str) -> Pixels:
    """Return ``region`` reduced to at most 8 by 8 colours and brought back to its size."""
    height, width = region.shape[:2]
    cells = _CELLS[mode]
    grid = cv2.resize(region, (min(cells, width), min(cells, height)), interpolation=cv2.INTER_AREA)
    way = cv2.INTER_NEAREST if mode == "mosaic" else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(grid, (width, height), interpolation=way), dtype=np.uint8)
