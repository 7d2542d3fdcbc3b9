"""How many frames a picture file holds, found in bounded time, and what the first one covers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def count_frames(image: Image.Image, name: str, data: bytes, limit: int) -> int:
    """Return the number of frames, or ``limit + 1`` when there are more.

    Pillow counts GIF frames and TIFF pages by walking all of them, which a small hostile file makes very long; these
    two are counted here. The second picture of a JPEG (MPO, as phones write it) is a preview or depth map, not a
    frame.
    """
    if name == "GIF":
        return _gif_frames(data, limit)
    if name == "TIFF":
        return _tiff_pages(data, limit)
    return 1 if name == "JPEG" else int(getattr(image, "n_frames", 1))


def uncovered(image: Image.Image) -> NDArray[np.bool_] | None:
    """Return ``(H, W)`` true where the first frame of a GIF leaves its canvas free, ``None`` where it covers all. Such
    pixels are transparent in every viewer; Pillow gives them a colour of the palette. To be called before loading."""
    tiles = getattr(image, "tile", [])
    if not tiles:
        return None
    left, top, right, bottom = tiles[0].extents
    if (left, top, right, bottom) == (0, 0, *image.size):
        return None
    free = np.ones((image.height, image.width), dtype=np.bool_)
    free[top:bottom, left:right] = False
    return free


def _gif_frames(data: bytes, limit: int) -> int:
    """Count image descriptors (GIF89a section 20), stepping over sub-blocks without decoding."""
    position = 13 + _gif_table_bytes(data[10])
    frames = 0
    while position < len(data) and frames <= limit:
        kind = data[position]
        if kind == 0x2C:
            frames += 1
            position = _after_sub_blocks(data, position + 11 + _gif_table_bytes(data[position + 9]))
        elif kind == 0x21:
            position = _after_sub_blocks(data, position + 2)
        else:
            break
    return max(frames, 1)


def _gif_table_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _after_sub_blocks(data: bytes, position: int) -> int:
    while position < len(data) and data[position]:
        position += data[position] + 1
    return position + 1


def _tiff_pages(data: bytes, limit: int) -> int:
    """Follow the chain of image file directories (TIFF 6.0 section 2)."""
    order = "little" if data[:2] == b"II" else "big"
    position = _number(data, 4, 4, order)
    pages = 0
    while position and position + 2 <= len(data) and pages <= limit:
        pages += 1
        entries = _number(data, position, 2, order)
        position = _number(data, position + 2 + 12 * entries, 4, order)
    return max(pages, 1)


def _number(data: bytes, position: int, size: int, order: str) -> int:
    return int.from_bytes(data[position : position + size], "little" if order == "little" else "big")
