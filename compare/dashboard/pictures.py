"""Pictures for the pages: made anew from decoded pixels, never the bytes that came over the wire.

All functions block and use memory in proportion to ``MAX_PIXELS``; the pages call them in threads, a few at a time.
Pixels are upright and sRGB, exactly as the comparison saw them (``compare.kernels.pixels``).
"""

from __future__ import annotations

import io
import warnings

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.ndimage import binary_dilation, binary_erosion

from compare.kernels.depth import stretched
from compare.kernels.face_blur import changed, regions
from compare.kernels.pixels import DECODE_ERRORS, FORMATS, Pixels, Undecodable, decode, read_orientation

MAX_PIXELS = 64 * 1024 * 1024
VIEW_SIDE = 1600
THUMB_SIDE = 240
FULL_HEAT = 32
"""The difference in levels (of 255) that is drawn at full heat: what anybody would see in the picture itself."""
_BRIGHT, _DARK = (255, 214, 10, 255), (20, 20, 20, 255)
_STOPS = np.array([[30, 20, 70], [150, 30, 110], [235, 90, 40], [255, 240, 150]], np.float32)


def describe_picture(data: bytes) -> tuple[str, int, int] | None:
    """Return (format, width, height) of a picture that ``render_picture`` would draw, read from its header alone; the
    sides are those of the upright picture. ``None`` for anything else."""
    orientation = read_orientation(data)
    if orientation is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                width, height, name = image.width, image.height, image.format or "?"
        except DECODE_ERRORS:
            return None
    if width * height > MAX_PIXELS:
        return None
    return (name, height, width) if orientation >= 5 else (name, width, height)


def render_picture(data: bytes, side: int) -> bytes | None:
    """Return ``data`` as a PNG of at most ``side`` pixels each way, ``None`` for no picture, or one beyond the cap."""
    picture = decode(data, MAX_PIXELS)
    if isinstance(picture, Undecodable):
        return None
    shown, _ = stretched(picture, picture)  # a depth map would be black otherwise
    image = Image.fromarray(shown.pixels)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    return _png(image)


def render_difference(baseline: bytes, candidate: bytes) -> bytes | None:
    """Return a heat map over the dimmed baseline as a PNG, ``None`` where the two cannot be laid on each other.

    Heat is the largest difference of any channel, colour weighted by alpha. A large map shrinks by the maximum of each
    block, so that a small fault keeps its heat.
    """
    pair = (decode(baseline, MAX_PIXELS), decode(candidate, MAX_PIXELS))
    if isinstance(pair[0], Undecodable) or isinstance(pair[1], Undecodable) or pair[0].size != pair[1].size:
        return None
    old, new = stretched(pair[0], pair[1])
    heat = _difference(old.pixels, new.pixels)
    block = -(-max(heat.shape) // VIEW_SIDE)
    return _png(Image.fromarray(_paint(_shrink(heat, block), old.rgb[::block, ::block])))


def render_regions(source: bytes, answer: bytes) -> bytes | None:
    """Return boxes around the regions that ``answer`` changed of ``source``, on nothing, as a PNG; ``None`` where there
    is nothing to compare with. The regions are those that the comparison itself finds."""
    pair = (decode(source, MAX_PIXELS), decode(answer, MAX_PIXELS))
    if isinstance(pair[0], Undecodable) or isinstance(pair[1], Undecodable) or pair[0].size != pair[1].size:
        return None
    width, height = pair[1].size
    sheet = Image.new("RGBA", (width, height))
    pen, line = ImageDraw.Draw(sheet), max(2, max(width, height) // 300)
    for found in regions(changed(pair[0].rgb, pair[1].rgb)):
        box = (found.x, found.y, found.x + found.width - 1, found.y + found.height - 1)
        pen.rectangle(box, outline=_DARK, width=2 * line)
        pen.rectangle(box, outline=_BRIGHT, width=line)
    return _small(sheet)


def render_mask(mask: bytes) -> bytes | None:
    """Return the edge of a mask, on nothing, as a PNG; ``None`` where the mask is no picture."""
    picture = decode(mask, MAX_PIXELS)
    if isinstance(picture, Undecodable):
        return None
    inside = picture.rgb.max(axis=2) > 127
    reach = max(2, max(inside.shape) // 300)
    edge = binary_dilation(inside, iterations=reach) & ~binary_erosion(inside, iterations=reach)
    sheet = np.zeros((*inside.shape, 4), np.uint8)
    sheet[edge] = _DARK
    sheet[edge & inside] = _BRIGHT
    return _small(Image.fromarray(sheet))


def _small(image: Image.Image) -> bytes:
    image.thumbnail((VIEW_SIDE, VIEW_SIDE), Image.Resampling.NEAREST)
    return _png(image)


def _difference(one: Pixels, other: Pixels) -> Pixels:
    """Return ``(H, W)`` uint8: the largest absolute difference of the channels, alpha included."""
    heat = np.zeros(one.shape[:2], np.uint8)
    alphas = [_alpha(one), _alpha(other)]
    for channel in range(3):
        sides = [p[..., channel].astype(np.uint16) * a // 255 for p, a in zip((one, other), alphas, strict=True)]
        np.maximum(heat, _apart(sides[0], sides[1]), out=heat)
    return np.maximum(heat, _apart(alphas[0], alphas[1]))


def _alpha(pixels: Pixels) -> NDArray[np.uint16]:
    if pixels.shape[2] == 4:
        return pixels[..., 3].astype(np.uint16)
    return np.full(pixels.shape[:2], 255, np.uint16)


def _apart(one: NDArray[np.uint16], other: NDArray[np.uint16]) -> Pixels:
    return (np.maximum(one, other) - np.minimum(one, other)).astype(np.uint8)


def _shrink(heat: Pixels, block: int) -> Pixels:
    if block == 1:
        return heat
    height, width = heat.shape
    padded = np.pad(heat, ((0, -height % block), (0, -width % block)))
    rows, columns = padded.shape[0] // block, padded.shape[1] // block
    shrunk: Pixels = padded.reshape(rows, block, columns, block).max(axis=(1, 3))
    return shrunk


def _paint(heat: Pixels, under: Pixels) -> Pixels:
    """Return ``(H, W, 3)``: dark grey where nothing differs, then violet, orange, yellow up to ``FULL_HEAT`` levels."""
    levels = np.arange(256, dtype=np.float32).clip(0, FULL_HEAT) / FULL_HEAT
    place = levels * (len(_STOPS) - 1)
    below = np.minimum(place.astype(np.intp), len(_STOPS) - 2)
    part = (place - below)[:, None]
    ramp = _STOPS[below] * (1 - part) + _STOPS[below + 1] * part
    cover = np.where(levels > 0, 0.35 + 0.65 * levels, 0).astype(np.float32)
    grey = (under.mean(axis=2, dtype=np.float32) * 0.3 + 12)[..., None]
    weight = cover[heat][..., None]
    painted: Pixels = (grey * (1 - weight) + ramp[heat] * weight).clip(0, 255).astype(np.uint8)
    return painted


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=3)
    return buffer.getvalue()
