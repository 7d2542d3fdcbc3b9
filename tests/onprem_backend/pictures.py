"""Small picture files for tests."""

from __future__ import annotations

import importlib
import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image, ImageCms

from onprem_backend.images import Limits, Pixels

SAMPLES: Any = importlib.import_module("skimage.data")
"""scikit-image's real pictures; it carries no types."""
LIMITS = Limits(max_pixels=50_000_000, max_frames=1000)


def save(image: Image.Image, name: str = "PNG", **options: Any) -> bytes:
    """Encode with Pillow."""
    target = io.BytesIO()
    image.save(target, name, **options)
    return target.getvalue()


def png(pixels: Pixels) -> bytes:
    """Encode an array as PNG."""
    return save(Image.fromarray(pixels))


def jpeg(pixels: Pixels, **options: Any) -> bytes:
    """Encode an array as JPEG."""
    return save(Image.fromarray(pixels), "JPEG", **{"quality": 95, **options})


def load(data: bytes) -> Image.Image:
    """Decode with Pillow."""
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def array(data: bytes) -> Pixels:
    """Decode into an array."""
    return np.asarray(load(data))


def half_red(width: int = 40, height: int = 20) -> Image.Image:
    """Left half red, right half blue."""
    image = Image.new("RGB", (width, height), (0, 0, 255))
    image.paste((255, 0, 0), (0, 0, width // 2, height))
    return image


def noise(width: int = 64, height: int = 64, channels: int = 3, seed: int = 7) -> Pixels:
    """Random pixels, always the same."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def with_orientation(image: Image.Image, value: int, name: str = "JPEG", **options: Any) -> bytes:
    """Encode with an EXIF orientation."""
    exif = Image.Exif()
    exif[0x0112] = value
    return save(image, name, exif=exif, **options)


def srgb_profile(gamma: float | None = None) -> bytes:
    """An ICC profile that calls itself sRGB; with ``gamma`` it has that tone curve instead of sRGB's."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    if gamma is not None:
        for begin in range(132, 132 + 12 * struct.unpack_from(">I", data, 128)[0], 12):
            if bytes(data[begin : begin + 4]) in (b"rTRC", b"gTRC", b"bTRC"):
                (curve,) = struct.unpack_from(">I", data, begin + 4)
                assert data[curve : curve + 4] == b"para"
                numbers = [round(value * 65536) for value in (gamma, 1, 0, 1, 0)]
                struct.pack_into(">HH5i", data, curve + 8, 3, 0, *numbers)
    return bytes(data)


def chunk(kind: bytes, body: bytes, error: int = 0) -> bytes:
    """A chunk of a PNG; ``error`` spoils its checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body) ^ error)


def raw_png(width: int, bits: int, colour: int, rows: list[bytes], *before: bytes, height: int | None = None) -> bytes:
    """A PNG of unfiltered rows, with chunks before its pixels; ``height`` is what its header says."""
    header = struct.pack(">IIBBBBB", width, len(rows) if height is None else height, bits, colour, 0, 0, 0)
    packed = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = (chunk(b"IHDR", header), *before, chunk(b"IDAT", packed), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)
