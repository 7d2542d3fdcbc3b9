"""Let torchvision import beside a CPU-only torch that lacks its compiled operators.

torchvision 0.28 registers fake kernels for ``torchvision::nms`` at import; with the plain wheel beside a CPU-only
torch the operator itself is never defined, so the import fails ("operator torchvision::nms does not exist"). ``mend``
defines what is missing and imports again. It also registers ``torchvision.transforms.functional_tensor``, which
torchvision removed and basicsr still imports. It must run before anything else imports torchvision, and from one
thread.
"""

from __future__ import annotations

import importlib
import logging
import sys
import types
from typing import Any

import torch

_log = logging.getLogger("onprem_backend")


def nms(boxes: torch.Tensor, scores: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Return the indices of the boxes that greedy non-maximum suppression keeps, by falling score.

    ``boxes`` is ``(N, 4)`` as x1, y1, x2, y2, ``scores`` ``(N,)``. A box goes when its intersection over union with a
    kept one is above ``iou_threshold``, as in torchvision's own kernel.
    """
    order = scores.argsort(descending=True, stable=True)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    keep: list[torch.Tensor] = []
    while order.numel() > 0:
        best, rest = order[0], order[1:]
        keep.append(best)
        corner = torch.minimum(boxes[best, 2:], boxes[rest, 2:])
        size = (corner - torch.maximum(boxes[best, :2], boxes[rest, :2])).clamp(min=0)
        overlap = size[:, 0] * size[:, 1]
        order = rest[~(overlap / (areas[best] + areas[rest] - overlap) > iou_threshold)]
    return torch.stack(keep) if keep else torch.empty(0, dtype=torch.int64)


def mend() -> bool:
    """Import torchvision, mending it where needed; return whether it was needed. Further calls change nothing.

    Raises ``RuntimeError`` on a CUDA build of torch: there the operators belong in torchvision, and their absence
    means a mismatched pair of packages.
    """
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        if torch.version.cuda is not None:
            raise RuntimeError(f"torch {torch.__version__} and torchvision do not belong together: {error}") from error
        _define_operators()
        _log.warning("torchvision has no compiled operators beside torch %s; using plain ones", torch.__version__)
        mended = True
    else:
        mended = False
    _register_functional_tensor()
    return mended


def _define_operators() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.impl("nms", nms, "CPU")
    torchvision: Any = importlib.import_module("torchvision")
    # A Library undoes its registrations when it is collected; it has to live exactly as long as the module it mends.
    torchvision._mended_library = library
    boxes: Any = importlib.import_module("torchvision.ops.boxes")
    boxes._assert_has_ops = lambda: None


def _register_functional_tensor() -> None:
    name = "torchvision.transforms.functional_tensor"
    if name in sys.modules:
        return
    functional = importlib.import_module("torchvision.transforms.functional")
    module = types.ModuleType(name)
    module.rgb_to_grayscale = functional.rgb_to_grayscale  # type: ignore[attr-defined]
    sys.modules[name] = module
