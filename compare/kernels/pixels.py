"""Decode a picture the same way for both sides: type from the bytes, pixels capped, upright, sRGB, RGB or RGBA.

The header is read first, so that a decompression bomb is refused before its pixels exist.
"""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms, ImageOps, JpegImagePlugin, UnidentifiedImageError

from compare.phrases import Phrase, say

Pixels = NDArray[np.uint8]
Tags = Mapping[int, Any]
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "AVIF")
LOSSLESS_FORMATS = frozenset({"PNG", "BMP", "TIFF", "GIF"})
ORIENTATION_TAG = 0x0112
_JPEG_SCAN, _MOST_SCANS = b"\xff\xda", 100
"""Encoders make some ten scans. Each one passes over the whole picture, and may take no more than 20 bytes of the
file."""
_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262
_WHITE_IS_ZERO = 0
"""Tags of TIFF 6.0 and a value."""
# What Pillow's readers are known to raise on hostile bytes; anything else is a fault of ours and must show.
DECODE_ERRORS = (
    OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError, AssertionError,
    RuntimeError, OverflowError, ZeroDivisionError, struct.error, zlib.error,
    Image.DecompressionBombError, Image.DecompressionBombWarning,
)  # fmt: skip
_SRGB_GAMMA, _SAME_GAMMA, _SMALLEST_GAMMA = 1 / 2.2, 0.02, 0.1
_SUBSAMPLING = {0: "4:4:4", 1: "4:2:2", 2: "4:2:0"}


@dataclass(frozen=True, slots=True)
class Picture:
    """A decoded picture. ``pixels`` is ``(H, W, 3)`` or ``(H, W, 4)`` uint8 in sRGB, upright, alpha not premultiplied.

    ``orientation`` is the tag that was applied (1 for none). ``quality`` is estimated from a JPEG's tables. ``frames``
    is how many the file has; the pixels are those of one, which is shown for ``lasts_ms`` (0 where nothing says so).
    ``bits`` is the depth of a sample in the file; ``values`` ``(H, W)`` of a grey picture of more than 8 are what it
    holds, of which the pixels show the highest bits alone.
    """

    pixels: Pixels
    format: str
    orientation: int = 1
    quality: int | None = None
    subsampling: str | None = None
    frames: int = 1
    lasts_ms: float = 0.0
    bits: int = 8
    values: NDArray[Any] | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]

    @property
    def has_alpha(self) -> bool:
        """Whether there is an alpha channel."""
        return bool(self.pixels.shape[2] == 4)

    @property
    def rgb(self) -> Pixels:
        """The colour channels, a view."""
        return self.pixels[..., :3]

    @property
    def alpha(self) -> Pixels:
        """The alpha channel; opaque where the picture has none."""
        return self.pixels[..., 3] if self.has_alpha else np.full(self.pixels.shape[:2], 255, np.uint8)


@dataclass(frozen=True, slots=True)
class Undecodable:
    """Why bytes are no picture that could be judged. ``too_large`` ones may well be good: they are never held against
    anybody."""

    why: Phrase
    too_large: bool = False


def decode(data: bytes, max_pixels: int) -> Picture | Undecodable:
    """Return the first frame of ``data`` or why not. Never raises on input; memory is bounded by ``max_pixels``."""
    return next(decode_frames(data, max_pixels))


def decode_frames(data: bytes, max_pixels: int) -> Iterator[Picture | Undecodable]:
    """Yield the frames of ``data`` one by one, at least one; a frame that cannot be decoded is the last.

    Never raises on input; no frame takes more than ``max_pixels``.
    """
    if not data:
        yield Undecodable(say("empty"))
        return
    if data.startswith(b"\xff\xd8") and data.count(_JPEG_SCAN) > _MOST_SCANS:
        yield Undecodable(say("more than {most} scans", most=_MOST_SCANS), too_large=True)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                frames = getattr(image, "n_frames", 1)
                for number in range(frames):
                    image.seek(number)
                    width, height = image.size
                    if width * height > max_pixels:
                        yield Undecodable(_too_many(width, height, max_pixels), too_large=True)
                        return
                    picture = _decode_open(image)
                    yield replace(picture, frames=frames, lasts_ms=_lasts_ms(image), bits=_bits(image, data))
        except Image.DecompressionBombError:
            yield Undecodable(say("more than {most} pixels", most=max_pixels), too_large=True)
        except MemoryError:
            yield Undecodable(say("it takes more memory than there is"), too_large=True)
        except DECODE_ERRORS as error:
            yield Undecodable(_reason(data, error))


def _too_many(width: int, height: int, most: int) -> Phrase:
    return say("{width} x {height} is more than {most} pixels", width=width, height=height, most=most)


def _reason(data: bytes, error: BaseException) -> Phrase:
    if isinstance(error, UnidentifiedImageError):
        return say("not a picture in a known format ({n} bytes)", n=len(data))
    return say("damaged or truncated ({error})", error=type(error).__name__)


def _decode_open(image: Image.Image) -> Picture:
    name = image.format or "?"
    quality, subsampling = _jpeg_facts(image)
    profile = image.info.get("icc_profile")
    _scale_key(image)
    image.load()  # before the orientation: to look for that in a PNG Pillow loads it, and would not fail a second time
    orientation = _orientation(image)
    tags: Tags = getattr(image, "tag_v2", {})
    upright = _upright(image)
    values = np.asarray(upright) if _is_deep(upright) else None
    pixels = np.asarray(_to_srgb(upright, profile, tags))
    gamma = None if profile or "srgb" in image.info else image.info.get("gamma")
    if isinstance(gamma, float) and gamma > _SMALLEST_GAMMA and abs(gamma - _SRGB_GAMMA) > _SAME_GAMMA:
        pixels = np.dstack([_from_gamma(gamma)[pixels[..., :3]], pixels[..., 3:]])
    return Picture(pixels, name, orientation, quality, subsampling, values=values)


def _from_gamma(gamma: float) -> Pixels:
    """Return the sRGB value of each of 256 values stored with ``gamma``: PNG's gAMA, which viewers apply where a file
    has neither a profile nor sRGB (PNG specification, section 11.3.2.2)."""
    light = (np.arange(256) / 255) ** (1 / gamma)
    encoded = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.asarray(np.rint(encoded * 255), dtype=np.uint8)


def _is_deep(image: Image.Image) -> bool:
    return image.mode.startswith("I") or image.mode == "F"


def _lasts_ms(image: Image.Image) -> float:
    told = image.info.get("duration", 0)
    return float(told) if isinstance(told, int | float) else 0.0


def _bits(image: Image.Image, data: bytes) -> int:
    """Return the depth of a sample as the file says it; Pillow makes 8 bits of the 16 of a colour."""
    if image.format == "PNG":
        return data[24]  # of IHDR, which is the first chunk: PNG specification section 11.2.1
    tags = getattr(image, "tag_v2", {})
    told = tags.get(_BITS_PER_SAMPLE, 8)
    return int(max(told)) if isinstance(told, tuple) and told else int(told) if isinstance(told, int) else 8


def _scale_key(image: Image.Image) -> None:
    """Bring a PNG's transparent colour to the 8 bits of the pixels, where Pillow leaves it as the file has it."""
    key = image.info.get("transparency")
    tiles = getattr(image, "tile", [])
    kind = tiles[0].args if image.format == "PNG" and tiles else None
    if kind == "RGB;16B" and isinstance(key, tuple):
        image.info["transparency"] = tuple(value >> 8 for value in key)
    elif kind in ("L;2", "L;4") and isinstance(key, int):
        image.info["transparency"] = key * (85 if kind == "L;2" else 17)


def read_orientation(data: bytes) -> int | None:
    """Return the EXIF orientation (1 to 8) of a picture's header, ``None`` when ``data`` is no picture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                return _orientation(image)
        except DECODE_ERRORS:
            return None


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(ORIENTATION_TAG, 1)
    except DECODE_ERRORS:
        return 1
    return value if isinstance(value, int) and 1 <= value <= 8 else 1


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except DECODE_ERRORS:
        return image


def _jpeg_facts(image: Image.Image) -> tuple[int | None, str | None]:
    tables = getattr(image, "quantization", None)
    if image.format != "JPEG" or not tables:
        return None, None
    # The IJG tables scale by 200 - 2 q above quality 50; the first table's sum stands for it (3699 at quality 50).
    scale = 100.0 * sum(tables[min(tables)]) / 3699
    quality = (200 - scale) / 2 if scale <= 100 else 5000 / scale
    return max(1, min(100, round(quality))), _SUBSAMPLING.get(JpegImagePlugin.get_sampling(image))


def _to_srgb(image: Image.Image, profile: bytes | None, tags: Tags) -> Image.Image:
    has_alpha = image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info
    if _is_deep(image):
        image = _to_eight_bits(image, tags)
    target = "RGBA" if has_alpha else "RGB"
    if profile:
        image = _apply_profile(image, profile, target)
    return image if image.mode == target else image.convert(target)


def _to_eight_bits(image: Image.Image, tags: Tags) -> Image.Image:
    """Bring grey of more bits to 8, with alpha where one value is transparent. Pillow reads a TIFF's values without
    looking at how many bits they have, or which end of their range is white."""
    stored = np.asarray(image)
    values = stored.astype(np.float64)
    if image.mode.startswith("I"):
        bits = min(16, tags.get(_BITS_PER_SAMPLE, (16,))[0])
        values = values * (255 / (2**bits - 1))
    elif values.size and np.nanmax(values) <= 1:
        values = values * 255
    grey = Image.fromarray(np.clip(np.nan_to_num(values), 0, 255).round().astype(np.uint8))
    if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO:
        grey = ImageOps.invert(grey)
    key = image.info.get("transparency")
    if key is not None:
        grey.putalpha(Image.fromarray(np.where(stored == key, 0, 255).astype(np.uint8)))
    return grey


def _apply_profile(image: Image.Image, profile: bytes, target: str) -> Image.Image:
    """Convert to sRGB; a corrupt profile, or one for another colour space, is ignored."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if source.profile.xcolor_space == "RGB " and image.mode != "CMYK":
            image = image.convert(target)  # grey and palettes may have a profile of colours
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), image.mode, target)
        if image.mode == target and _changes_nothing(transform, target):
            return image
        return transform.apply(image)
    except (ImageCms.PyCMSError, *DECODE_ERRORS):
        return image


def _changes_nothing(transform: ImageCms.ImageCmsTransform, mode: str) -> bool:
    """Tell sRGB in effect, whose conversion would only add rounding errors; its name does not decide."""
    steps = np.linspace(0, 255, 18).astype(np.uint8)
    cube = Image.fromarray(np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(18, -1, 3)).convert(mode)
    moved = np.asarray(transform.apply(cube)).astype(np.int16) - np.asarray(cube)
    return bool(np.abs(moved).max() <= 1)
