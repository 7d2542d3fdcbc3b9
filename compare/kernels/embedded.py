"""Pictures inside of JSON: base64 in a string (RFC 4648 section 4), with or without ``data:`` (RFC 2397) before it.

Two encoders of one picture share no byte of it, so such strings are compared as the pictures that they are.
"""

from __future__ import annotations

import base64
import binascii

from compare.kernels.sniffing import is_picture

_HEAD = 16
"""Characters of base64 that hold the twelve bytes by which a picture is known."""


def embedded_picture(text: str) -> bytes | None:
    """Return the picture that a string holds, ``None`` where it holds none."""
    if text.startswith("data:image/"):
        head, _, text = text.partition(",")
        if not head.endswith(";base64"):
            return None
    try:
        if not is_picture(base64.b64decode(text[:_HEAD], validate=True)):
            return None
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return None
