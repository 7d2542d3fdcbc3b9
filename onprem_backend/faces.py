"""Faces found with CenterFace (Xu et al., 2019) and made unrecognisable."""

from __future__ import annotations

import json
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from onprem_backend.face_search import COARSE_SIDE_PX, LARGEST_SEEN_PX, MAPS, Boxes, Search, join
from onprem_backend.images import Picture, Pixels
from onprem_backend.onnx_networks import load_network
from onprem_backend.runtime import Runtime
from onprem_backend.sessions import BatchModel, Job, Prepared, Result

_MARGIN = 1.3
_CELLS = {"blur": 8, "mosaic": 8}
_MAX_LISTED = 64


def load_centerface(runtime: Runtime) -> BatchModel:
    """Load centerface.onnx."""
    network = load_network(runtime.models_dir / "centerface.onnx", runtime, fixed_shape=None)
    return BatchModel(network, lambda job: _prepare(job, runtime.detect_side_px))


def _prepare(job: Job, detect_side_px: int) -> Prepared:
    """Look at the picture, and where a face could be larger than the detector sees well, a second time, coarsely."""
    rgb = job.picture.flattened()
    fine, coarse = Search(rgb, detect_side_px), None
    if max(fine.searched) > LARGEST_SEEN_PX:
        coarse = Search(rgb, COARSE_SIDE_PX)
    del rgb

    def finish(outputs: Sequence[NDArray[np.float32]]) -> Result:
        boxes = fine.faces(outputs[:MAPS])
        if coarse is not None:
            boxes = join(boxes, coarse.faces(outputs[MAPS:]), fine.scale)
        return _answer(job, boxes)

    return Prepared(fine.tensor, finish, None if coarse is None else coarse.tensor)


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
    hidden = Picture(rgb, picture.alpha, picture.format, picture.frames)
    return Result(hidden, headers=headers, unchanged=len(boxes) == 0)


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
