"""From bytes to a picture, or a typed problem. Pure: no file, no network, no global Pillow setting.

Rules, the same for every feature:

* the content decides about the format, never a name or a Content-Type; JPEG, PNG, WebP, GIF, TIFF, BMP and AVIF are
  accepted;
* limits are checked from the header, before any pixel is decoded; a truncated or damaged file is refused, never half
  shown; damage that touches no pixel (a text chunk, a missing end marker) is passed over;
* EXIF orientation (EXIF 2.3 section 4.6.4) is applied, so a picture is what a viewer shows;
* colours end as 8-bit sRGB (``onprem_backend.colours``); transparency stays beside them;
* of an animation the first frame counts, and the number of frames is reported.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from onprem_backend import jpegs, pngs
from onprem_backend.colours import to_srgb
from onprem_backend.frames import count_frames, uncovered
from onprem_backend.problems import Problem

Pixels = NDArray[np.uint8]

ACCEPTED = ("image/jpeg", "image/png", "image/webp", "image/gif", "image/tiff", "image/bmp", "image/avif")
BACKGROUND = (255, 255, 255)
"""The colour that shows through where a picture is transparent and the result, or the model, has no transparency."""

# What Pillow's decoders raise on bytes that are not what they claim to be.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    zlib.error,
    IndexError,
    KeyError,
    TypeError,
    AttributeError,
    AssertionError,
    RuntimeError,
    OverflowError,
    ZeroDivisionError,
)
_ORIENTATION = 0x0112
_MEND: Mapping[str, Callable[[bytes], bytes]] = {"JPEG": jpegs.with_end, "PNG": pngs.with_good_chunks}
_TURN: Mapping[int, Callable[[Pixels], Pixels]] = {
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: a.swapaxes(0, 1)[:, ::-1],
    7: lambda a: a.swapaxes(0, 1)[::-1, ::-1],
    8: lambda a: a.swapaxes(0, 1)[::-1],
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What a picture may be at most."""

    max_pixels: int
    max_frames: int


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """An upright picture. ``rgb`` is ``(H, W, 3) uint8`` sRGB, not premultiplied; ``alpha`` is ``(H, W) uint8`` or
    ``None`` when the file has no transparency. ``format`` is Pillow's name of the file's format, ``frames`` how many
    it holds."""

    rgb: Pixels
    alpha: Pixels | None = None
    format: str = "PNG"
    frames: int = 1

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.rgb.shape[1], self.rgb.shape[0]

    def flattened(self, colour: tuple[int, ...] = BACKGROUND) -> Pixels:
        """Return the picture over ``colour``, ``(H, W, 3) uint8``: what the eye sees, and what models look at."""
        if self.alpha is None:
            return self.rgb
        alpha = self.alpha[:, :, None].astype(np.uint16)
        back = np.asarray(colour, dtype=np.uint16)
        return ((self.rgb * alpha + back * (255 - alpha) + 127) // 255).astype(np.uint8)

    def visible(self) -> Pixels:
        """Return ``rgb`` with ``BACKGROUND`` where a pixel is fully transparent, so that colours hidden there cannot
        spread."""
        if self.alpha is None:
            return self.rgb
        return np.where(self.alpha[:, :, None] == 0, np.asarray(BACKGROUND, dtype=np.uint8), self.rgb)


def sniff(data: bytes) -> str | None:
    """Return Pillow's name of the accepted format that ``data`` begins like, or ``None``."""
    if data[:3] == b"\xff\xd8\xff":
        return "JPEG"
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return "PNG"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return "GIF"
    if data[:4] in (b"II*\x00", b"MM\x00*"):
        return "TIFF"
    if data[:2] == b"BM":
        return "BMP"
    if data[4:8] == b"ftyp" and _is_avif(data):
        return "AVIF"
    return None


def _is_avif(data: bytes) -> bool:
    """Look for an AVIF brand in the ``ftyp`` box: major brand, minor version, then compatible brands, four bytes
    each."""
    end = min(int.from_bytes(data[:4], "big"), 256)
    brands = {data[8:12], *(data[i : i + 4] for i in range(16, end, 4))}
    return not brands.isdisjoint({b"avif", b"avis"})


def decode(data: bytes, limits: Limits) -> Picture:
    """Decode ``data`` completely.

    Raises ``Problem``: ``empty_body``, ``unsupported_format`` (with the accepted ones), ``too_many_pixels``,
    ``too_many_frames``, ``unsupported_pixels`` or ``damaged_image``. Blocking; holds about eight bytes per pixel.
    """
    name = _known_format(data)
    try:
        whole = _MEND.get(name, bytes)(data)
        with _open(whole, name, limits) as image:
            frames = count_frames(image, name, whole, limits.max_frames)
            if frames > limits.max_frames:
                raise Problem("too_many_frames", f"more than {limits.max_frames} frames", max_frames=limits.max_frames)
            free = uncovered(image) if name == "GIF" else None
            _load(image, name, whole, had_end=whole is data)
            turn = _TURN.get(_orientation(image))
            rgb, alpha = to_srgb(image)
            if free is not None:
                alpha = np.where(free, 0, 255 if alpha is None else alpha).astype(np.uint8)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise Problem("too_many_pixels", str(error)) from error
    except _DAMAGE as error:
        raise Problem("damaged_image", f"this {name} file is damaged or truncated: {_reason(error)}") from error
    if turn is not None:
        rgb = np.ascontiguousarray(turn(rgb))
        alpha = None if alpha is None else np.ascontiguousarray(turn(alpha))
    return Picture(rgb, alpha, name, frames)


def _known_format(data: bytes) -> str:
    if not data:
        raise Problem("empty_body", "the picture has no bytes")
    name = sniff(data)
    if name is None:
        raise Problem("unsupported_format", "the content is none of the accepted formats", accepted=list(ACCEPTED))
    return name


def _open(data: bytes, name: str, limits: Limits) -> Image.Image:
    """Read the header and check the size it announces, before any pixel is decoded."""
    image = Image.open(io.BytesIO(data), formats=[name])
    pixels = image.width * image.height
    if pixels > limits.max_pixels:
        raise Problem(
            "too_many_pixels",
            f"{image.width}x{image.height} is {pixels} pixels, at most {limits.max_pixels} are accepted",
            max_pixels=limits.max_pixels,
        )
    return image


def _load(image: Image.Image, name: str, data: bytes, *, had_end: bool) -> None:
    """Decode the pixels. ``had_end``: nothing was put to the end of ``data``. Raises ``ValueError`` where some are
    missing that Pillow fills up without a word."""
    if name == "PNG":
        pngs.scale_key(image)
    image.load()
    if name == "PNG":
        pngs.check_complete(data, image)
    elif name == "JPEG":
        jpegs.check_complete(data, image, had_end=had_end)


def _reason(error: BaseException) -> str:
    """Say why. Pillow names the object it read from where it cannot tell."""
    if isinstance(error, UnidentifiedImageError):
        return "its header cannot be read, or its pixels are of a kind that is not supported"
    return str(error) or "it contradicts itself"


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation, 1 when it is absent or cannot be read. Valid after ``load`` (TIFF turns itself)."""
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except _DAMAGE:
        return 1
    return value if isinstance(value, int) else 1
