"""From a result to bytes: which format, and how.

JPEG stays JPEG (quality 95, no chroma subsampling), every other format becomes PNG, and a result with transparency
becomes PNG, unless the request's Accept says otherwise. Nothing of the input's metadata is written.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from onprem_backend.images import Picture
from onprem_backend.problems import Problem

OFFERED = ("image/png", "image/jpeg", "image/webp")
_LONGEST_SIDE_PX = {"image/png": 2**31 - 1, "image/jpeg": 65_500, "image/webp": 16_383}
_QVALUE = re.compile(r"(0(\.\d{0,3})?|1(\.0{0,3})?)")
_OPTIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "image/png": ("PNG", {"compress_level": 4}),
    "image/jpeg": ("JPEG", {"quality": 95, "subsampling": 0}),
    "image/webp": ("WEBP", {"quality": 95}),
}


def choose_media_type(accept: str | None, *, source_format: str, transparent: bool, longest_px: int) -> str:
    """Return the media type of the result.

    The one that ``accept`` (RFC 9110 section 12.5.1) wants most, of equals the natural one. JPEG cannot hold
    transparency: where it is wanted most, the result is flattened. Raises ``Problem("not_acceptable")``.
    """
    natural = "image/jpeg" if source_format == "JPEG" and not transparent else "image/png"
    possible = [m for m in (natural, *OFFERED) if longest_px <= _LONGEST_SIDE_PX[m]]
    wanted = {media_type: _quality(accept, media_type) for media_type in possible}
    best = max(possible, key=lambda media_type: wanted[media_type])  # of equals the first, so the natural one
    if wanted[best] <= 0:
        offered = [media_type for media_type in OFFERED if media_type in possible]
        raise Problem("not_acceptable", "no format that can hold this result is acceptable", offered=offered)
    return best


def _quality(accept: str | None, media_type: str) -> float:
    """Return the quality that ``accept`` gives to ``media_type``; of its ranges the most specific one decides."""
    if not accept or not accept.strip():
        return 1.0
    best = (0.0, -1)
    for item in accept.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        specific = {media_type: 2, "image/*": 1, "*/*": 0}.get(name, -1)
        if specific > best[1]:
            best = (_parse_quality(parameters), specific)
    return best[0]


def _parse_quality(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return float(value) if _QVALUE.fullmatch(value.strip()) else 1.0
    return 1.0


def encode(picture: Picture, media_type: str) -> bytes:
    """Encode a picture. Blocking."""
    name, options = _OPTIONS[media_type]
    if picture.alpha is None:
        image = Image.fromarray(picture.rgb)
    elif media_type == "image/jpeg":
        image = Image.fromarray(picture.flattened())
    else:
        image = Image.fromarray(np.dstack([picture.rgb, picture.alpha]))
    target = io.BytesIO()
    image.save(target, name, **options)
    return target.getvalue()
