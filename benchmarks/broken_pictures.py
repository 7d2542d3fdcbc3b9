"""Pictures that are broken in a known way, and what the kernel says of them."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from compare.kernels.image import judge_image
from compare.policy import ImageBands

Pixels = NDArray[np.uint8]


def encode(pixels: Pixels, **options: object) -> bytes:
    """Return the picture as PNG."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", **options)
    return buffer.getvalue()


def break_picture(name: str, pixels: Pixels) -> Pixels:
    """Return the picture with a fault: red and blue swapped, a block of 32 x 32 inverted, or turned by a quarter."""
    broken = pixels.copy()
    if name == "colour swap":
        return broken[..., ::-1]
    if name == "tile damage":
        broken[64:96, 64:96] = 255 - broken[64:96, 64:96]
        return broken
    return np.ascontiguousarray(np.rot90(broken))


def class_of_fault(name: str, pixels: Pixels) -> bool:
    """Return whether the kernel calls the fault critical. Raises ``ValueError`` where it does not see it at all."""
    found = judge_image(encode(pixels), encode(break_picture(name, pixels)), ImageBands())
    if found.output_class is None or not found.output_class.mismatch:
        raise ValueError(f"the kernel does not see: {name}")
    return found.critical is not None
