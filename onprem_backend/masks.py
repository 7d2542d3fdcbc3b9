"""Which pixels a mask marks."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onprem_backend.images import Limits, Picture, decode
from onprem_backend.problems import Problem

THRESHOLD = 128
"""A pixel is marked when its value is at least this; so a lossy mask's in-between values fall on one side."""
_SAME_COLOUR = 8
"""Values this near are one colour: soft edges round differently."""


def decode_mask(data: bytes, limits: Limits, size: tuple[int, int]) -> NDArray[np.bool_]:
    """Decode a mask for a picture of ``size`` (width, height) and return ``(H, W) bool``, true where it marks.

    A mask is an upright picture like any other, and has to have the upright picture's size: it is never resized. Its
    brightness (ITU-R BT.601 luma) counts, and what is transparent marks nothing; but where all that is opaque has one
    colour, that colour says nothing and the alpha channel alone holds the strokes (as drawn on an empty canvas).
    Raises ``Problem`` with code ``mask_size_mismatch``, or what ``images.decode`` raises with the field's name.
    """
    try:
        mask = decode(data, limits)
    except Problem as problem:
        raise problem.of_field("mask") from problem
    if mask.size != size:
        wanted, got = (f"{width}x{height}" for width, height in (size, mask.size))
        raise Problem(
            "mask_size_mismatch", f"the picture is {wanted} (upright), the mask {got}", image=wanted, mask=got
        )
    return _values(mask) >= THRESHOLD


def _values(mask: Picture) -> NDArray[np.uint8]:
    luma = np.asarray(Image.fromarray(mask.rgb).convert("L"))
    alpha = mask.alpha
    if alpha is None or alpha.min() == 255:
        return luma
    opaque = mask.rgb[alpha >= THRESHOLD]
    if len(opaque) == 0 or np.ptp(opaque, axis=0).max() <= _SAME_COLOUR:
        return alpha
    return np.asarray(np.minimum(luma, alpha))
