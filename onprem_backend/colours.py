"""From whatever a decoder yields to 8-bit sRGB and alpha."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from onprem_backend.problems import Problem

_SIXTEEN_BIT = frozenset({"I;16", "I;16L", "I;16B", "I;16N"})
_BITS, _PHOTOMETRIC, _SAMPLE_FORMAT = 258, 262, 339
_WHITE_IS_ZERO, _SIGNED = 0, 2
"""Tags of TIFF 6.0 and their values."""
_PROFILE_SPACE = {"RGB": "RGB ", "L": "GRAY", "CMYK": "CMYK"}
_SRGB_GAMMA, _SAME_GAMMA, _SMALLEST_GAMMA = 1 / 2.2, 0.02, 0.1
_STEPS = np.linspace(0, 255, 18).astype(np.uint8)
_PROBE = Image.fromarray(np.stack(np.meshgrid(_STEPS, _STEPS, _STEPS), axis=-1).reshape(18, -1, 3))
"""Colours all over the cube, greys among them."""


def to_srgb(image: Image.Image) -> tuple[NDArray[np.uint8], NDArray[np.uint8] | None]:
    """Return ``(H, W, 3) uint8`` sRGB and ``(H, W) uint8`` alpha, ``None`` when the image has no transparency.

    An embedded ICC profile is applied when it can be read and fits the image, and ignored otherwise; a PNG's gamma is
    applied where there is no profile. Of 12 or 16 bits the highest 8 are kept, as Pillow's own 16-bit RGB decoding
    does. Raises ``Problem("unsupported_pixels")`` for pixels without a defined range or meaning in sRGB (floating
    point, signed or 32-bit whole numbers, Lab).
    """
    if image.mode in ("F", "I", "LAB", "HSV") or _SIGNED in _tags(image).get(_SAMPLE_FORMAT, ()):
        raise Problem("unsupported_pixels", f"pixels of kind {image.mode} are not accepted")
    profile = image.info.get("icc_profile")
    gamma = None if profile or "srgb" in image.info else image.info.get("gamma")
    if image.mode in _SIXTEEN_BIT:
        colour, alpha = _from_sixteen_bit(image)
    else:
        colour, alpha = _split(image)
    # Copies, because Pillow's arrays are read-only and torch refuses to share those.
    rgb = np.array(_apply_profile(colour, profile))
    if isinstance(gamma, float) and gamma > _SMALLEST_GAMMA and abs(gamma - _SRGB_GAMMA) > _SAME_GAMMA:
        rgb = _from_gamma(gamma)[rgb]
    return rgb, None if alpha is None else np.array(alpha)


def _from_gamma(gamma: float) -> NDArray[np.uint8]:
    """Return the sRGB value of each of 256 values stored with ``gamma`` (PNG's gAMA, its section 11.3.2.2, which
    viewers apply where a PNG has neither a profile nor sRGB)."""
    light = (np.arange(256) / 255) ** (1 / gamma)
    encoded = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
    return np.asarray(np.rint(encoded * 255), dtype=np.uint8)


def _from_sixteen_bit(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    values = np.asarray(image)
    transparent = image.info.get("transparency")
    alpha = None
    if isinstance(transparent, int):
        alpha = Image.fromarray(np.where(values == transparent, 0, 255).astype(np.uint8))
    tags = _tags(image)
    bits = tags.get(_BITS, (16,))[0]
    grey = (values.astype(np.uint16) >> (bits - 8)).clip(0, 255).astype(np.uint8)
    return Image.fromarray(255 - grey if tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO else grey), alpha


def _tags(image: Image.Image) -> Mapping[int, Any]:
    """Return a TIFF's tags: Pillow reads its values without looking at how many bits they have, or which end of their
    range is white."""
    tags: Mapping[int, Any] = getattr(image, "tag_v2", {})
    return tags


def _split(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    """Return the colours as L, RGB or CMYK and the transparency, from any 8-bit or 1-bit mode."""
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        return rgba.convert("RGB"), rgba.getchannel("A")
    if image.mode in ("L", "RGB", "CMYK"):
        return image, None
    return image.convert("L" if image.mode == "1" else "RGB"), None


def _apply_profile(colour: Image.Image, data: object) -> Image.Image:
    if isinstance(data, bytes) and data:
        try:
            profile = ImageCms.ImageCmsProfile(io.BytesIO(data))
            space = profile.profile.xcolor_space
            if colour.mode == "L" and space == "RGB ":
                colour = colour.convert("RGB")
            if space == _PROFILE_SPACE[colour.mode]:
                return _convert(colour, profile)
        except (OSError, ImageCms.PyCMSError):
            pass  # a profile that cannot be read says nothing about the colours
    return colour.convert("RGB")


def _convert(colour: Image.Image, profile: ImageCms.ImageCmsProfile) -> Image.Image:
    """Convert to sRGB, unless the profile is sRGB in effect: that conversion would only add rounding errors. Its name
    does not decide, nor do its primaries: there are files that call themselves sRGB with another tone curve."""
    transform = ImageCms.buildTransform(
        profile,
        ImageCms.createProfile("sRGB"),
        colour.mode,
        "RGB",
        renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
        flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
    )
    if colour.mode == "RGB":
        moved = np.asarray(transform.apply(_PROBE)).astype(np.int16) - np.asarray(_PROBE)
        if np.abs(moved).max() <= 1:
            return colour
    return transform.apply(colour)
