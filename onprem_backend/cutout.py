"""Background removal with the U2-Net family (Qin et al., 2020 and, for IS-Net, 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onprem_backend.images import Picture, Pixels
from onprem_backend.onnx_networks import load_network
from onprem_backend.refinement import refine_alpha
from onprem_backend.runtime import Runtime
from onprem_backend.sessions import BatchModel, Job, Prepared, Result

_MEAN = (0.485, 0.456, 0.406)


@dataclass(frozen=True, slots=True)
class Variant:
    """One network of the family: its file, the side it looks at, and the deviation it divides by."""

    file: str
    side_px: int
    std: tuple[float, float, float]


U2NETP = Variant("u2netp.onnx", 320, (0.229, 0.224, 0.225))
U2NET = Variant("u2net.onnx", 320, (0.229, 0.224, 0.225))
ISNET = Variant("isnet-general-use.onnx", 1024, (1.0, 1.0, 1.0))
"""As rembg prepares pictures for this file, which is how it is known."""


def load_u2netp(runtime: Runtime) -> BatchModel:
    """Load the small U2-Net."""
    return load_variant(runtime, U2NETP)


def load_u2net(runtime: Runtime) -> BatchModel:
    """Load the full U2-Net."""
    return load_variant(runtime, U2NET)


def load_isnet(runtime: Runtime) -> BatchModel:
    """Load IS-Net for general use."""
    return load_variant(runtime, ISNET)


def load_variant(runtime: Runtime, variant: Variant) -> BatchModel:
    """Load one network of the family. Its first output is the saliency ``(N, 1, side, side)``."""
    shape = (1, 3, variant.side_px, variant.side_px)
    network = load_network(runtime.models_dir / variant.file, runtime, fixed_shape=shape)
    return BatchModel(network, lambda job: _prepare(job, variant))


def _prepare(job: Job, variant: Variant) -> Prepared:
    tensor = _normalise(job.picture.flattened(), variant)
    return Prepared(tensor, lambda outputs: cut_out(job, outputs))


def cut_out(job: Job, outputs: Sequence[NDArray[np.float32]]) -> Result:
    """Return the picture with the background made transparent, or, with the option ``background``, of that colour.
    What was transparent before stays so. ``refine`` redraws the edge along the picture's own."""
    picture = job.picture
    alpha = _to_alpha(outputs[0][0], picture.size)
    if job.options.get("refine") == "1":
        alpha = refine_alpha(alpha, picture.visible())
    if picture.alpha is not None:
        alpha = ((alpha.astype(np.uint16) * picture.alpha + 127) // 255).astype(np.uint8)
    cut = Picture(picture.rgb, alpha, picture.format, picture.frames)
    colour = job.options.get("background")
    if colour:
        flat = cut.flattened(tuple(bytes.fromhex(colour)))
        cut = Picture(flat, None, picture.format, picture.frames)
    return Result(cut)


def _normalise(rgb: Pixels, variant: Variant) -> NDArray[np.float32]:
    """Return ``(3, side, side) float32``, scaled by the picture's own maximum, then normalised, as these networks
    were trained."""
    side = (variant.side_px, variant.side_px)
    small = np.asarray(Image.fromarray(rgb).resize(side, Image.Resampling.LANCZOS), dtype=np.float32)
    scaled = small / max(float(small.max()), 1.0)
    mean, std = (np.asarray(values, dtype=np.float32) for values in (_MEAN, variant.std))
    normal = (scaled - mean) / std
    return np.ascontiguousarray(normal.transpose(2, 0, 1), dtype=np.float32)


def _to_alpha(saliency: NDArray[np.float32], size: tuple[int, int]) -> Pixels:
    """Stretch ``(side, side)`` saliency to 0..255 and to ``size``. A flat map has no foreground to stretch: it is kept
    as is."""
    low, high = float(saliency.min()), float(saliency.max())
    if high - low > 1e-6:
        saliency = (saliency - low) / (high - low)
    mask = Image.fromarray((saliency.clip(0, 1) * 255).astype(np.uint8))
    return np.asarray(mask.resize(size, Image.Resampling.LANCZOS))
