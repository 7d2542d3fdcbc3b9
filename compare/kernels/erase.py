"""Eraser: the mask is in the request. Outside of it the pixels must agree; inside, two fillings may differ, but not
wildly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from compare.kernels.image import Pictures, compare_pictures, decode_to_compare
from compare.kernels.pixels import Picture, Pixels, decode
from compare.kernels.scores import WINDOW, score
from compare.measurement import Diagnosis, Judgement, OutputClass
from compare.phrases import say
from compare.policy import ImageBands

MASK_THRESHOLD = 128
_SAME_COLOUR = 8
"""Colours this near are one: soft edges round differently."""


def judge_erase(
    mask: bytes | None, baseline: bytes, candidate: bytes, bands: ImageBands, request_orientation: int | None = None
) -> Judgement:
    """Compare two answers; without a usable mask the whole pictures are compared, and the note says so."""
    pictures = decode_to_compare(baseline, candidate, bands, request_orientation)
    if isinstance(pictures, Judgement):
        return pictures
    area = read_mask(mask, pictures.baseline.size, bands.max_pixels)
    if area is None:
        return replace(compare_pictures(pictures, bands), note=say("no usable mask in the request"))
    return _compare_around(area, pictures, bands)


def read_mask(data: bytes | None, size: tuple[int, int], max_pixels: int) -> NDArray[np.bool_] | None:
    """Return ``(H, W)`` true where something was to be erased: bright (ITU-R BT.601 luma) at 128 or more and not
    transparent, or opaque at all when everything opaque has one colour, which then says nothing. ``None`` when there is
    no mask of this size."""
    picture = decode(data, max_pixels) if data else None
    if not isinstance(picture, Picture) or picture.size != size:
        return None
    area: NDArray[np.bool_] = _strength(picture) >= MASK_THRESHOLD
    return area


def _strength(mask: Picture) -> Pixels:
    luma, alpha = np.asarray(Image.fromarray(mask.rgb).convert("L")), mask.alpha
    opaque = mask.rgb[alpha >= MASK_THRESHOLD]
    if alpha.min() < 255 and (len(opaque) == 0 or np.ptp(opaque, axis=0).max() <= _SAME_COLOUR):
        return alpha
    return np.asarray(np.minimum(luma, alpha), dtype=np.uint8)


def _compare_around(area: NDArray[np.bool_], pictures: Pictures, bands: ImageBands) -> Judgement:
    old, new = pictures.baseline, pictures.candidate
    outside = compare_pictures(Pictures(_painted(old, area), _painted(new, area), pictures.request_orientation), bands)
    inside = _inside_ssim(area, old, new)
    numbers = {**outside.numbers, "inside_ssim": inside, "mask_share": round(float(area.mean()), 4)}
    if outside.output_class is not None and outside.output_class.mismatch:
        return Judgement(outside.output_class, numbers, (*outside.diagnoses, _OUTSIDE), outside.critical)
    if inside is not None and inside < bands.erase_inside_ssim:
        return Judgement(OutputClass.DIFFERENT, numbers, (_INSIDE,))
    return Judgement(OutputClass.EQUIVALENT, numbers)


def _painted(picture: Picture, area: NDArray[np.bool_]) -> Picture:
    """Hide the erased area under one grey on both sides, so that only what lies outside can differ."""
    pixels = picture.pixels.copy()
    pixels[area] = 128
    return replace(picture, pixels=pixels)


_OUTSIDE = Diagnosis("outside_mask", say("the pictures differ outside of the mask"))
_INSIDE = Diagnosis("inside_mask", say("the erased area is filled in another way: a person should look"))


def _inside_ssim(area: NDArray[np.bool_], old: Picture, new: Picture) -> float | None:
    """Return the SSIM of the mask's bounding box, ``None`` without a mask. Boxes below the window are enlarged to
    it."""
    if not area.any():
        return None
    ys, xs = np.nonzero(area)
    box = (slice(int(ys.min()), int(ys.max()) + 1), slice(int(xs.min()), int(xs.max()) + 1))
    a, b = old.rgb[box], new.rgb[box]
    lacking = [(0, max(0, WINDOW - side)) for side in a.shape[:2]]
    a, b = (np.pad(x, [*lacking, (0, 0)], mode="edge") for x in (a, b))
    similar = score(a, b).tile_ssim
    return None if similar is None else round(similar, 4)
