"""What Pillow does not tell about a JPEG (ITU-T T.81): whether its data is complete, and its bytes without metadata.

libjpeg fills what is missing with flat blocks and only warns, so a file that was cut and closed again would pass with a
grey area, and one that lacks nothing but its end marker would be refused. Both are told by one observation: a decoder
that has everything ignores what follows in the scan, one that lacks something takes it for pixels.

This cannot see a progressive file that was cut and closed again, which is less sharp all over, nor a fault within the
last few blocks.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import numpy as np
from PIL import Image

_START, _END, _SCAN, _RESTARTS = 0xD8, 0xD9, 0xDA, 0xDD
_END_BYTES = b"\xff\xd9"
_MARKER = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])", re.DOTALL)
"""A marker that ends entropy-coded data: no stuffed zero, no restart (T.81 section B.1.1.2)."""
_SEQUENTIAL = frozenset({0xC0, 0xC1})
_KEPT = frozenset({0xE0, 0xE2, 0xEE})
"""Application segments that say how to show the pixels: JFIF, ICC, Adobe."""
_BLOCK_PX = 8
_PROBES = (b"\x2a" * 64, b"\xd5" * 64)
_ORIENTATION = 0x0112
_MOST_SEGMENTS = 10_000


def _segments(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield marker, begin and end of every segment from the first to the end marker, entropy-coded data with its scan.
    A file without an end marker just stops; a segment that is cut ends beyond it. Raises ``ValueError`` when there are
    absurdly many.
    """
    position = 0
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(data, position)
        if found is None:
            return
        marker = found[1][0]
        length = 0 if marker in (_START, _END) else int.from_bytes(data[found.end() : found.end() + 2], "big")
        position = found.end() + length
        if marker == _SCAN:
            following = _MARKER.search(data, position)
            position = max(position, len(data)) if following is None else following.start()
        yield marker, found.start(), position
        if marker == _END:
            return
    raise ValueError(f"it has more than {_MOST_SEGMENTS} segments")


def with_end(data: bytes) -> bytes:
    """Return the file, with an end marker where a sequential file of one scan lacks it. Files of several scans, or with
    restarts, cannot be told complete without it and stay as they are."""
    segments = list(_segments(data))
    markers = [marker for marker, _, _ in segments]
    sequential = markers.count(_SCAN) == 1 and not _SEQUENTIAL.isdisjoint(markers) and _RESTARTS not in markers
    lacks_only_its_end = sequential and markers[-1] == _SCAN and segments[-1][2] == len(data)
    return data + _END_BYTES if lacks_only_its_end else data


def check_complete(data: bytes, image: Image.Image, *, had_end: bool) -> None:
    """Raise ``ValueError`` when missing pixels of ``image``, decoded from ``data``, were filled up. ``had_end``: the
    end marker was there from the beginning.

    Missing blocks are flat, so where the last block is not, and the end marker was there, nothing has to be decoded
    again; else once more for a block, or twice where a few bits may be all that lacks.
    """
    corner = np.asarray(image.crop((image.width - _BLOCK_PX, image.height - _BLOCK_PX, image.width, image.height)))
    if had_end and (corner != corner[-1, -1]).any():
        return
    end = next(begin for marker, begin, _ in _segments(data) if marker == _END)
    for probe in _PROBES[:1] if had_end else _PROBES:
        with Image.open(io.BytesIO(data[:end] + probe + _END_BYTES), formats=["JPEG"]) as other:
            if other.tobytes() != image.tobytes():
                raise ValueError("pixels are missing at its end")


def without_metadata(data: bytes) -> bytes | None:
    """Return the same compressed picture without EXIF, XMP, IPTC, comments and what follows its end, or ``None`` when
    its pixels are not shown as they are stored (turned, or not grey or YCbCr)."""
    with Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
        if image.mode not in ("L", "RGB") or image.getexif().get(_ORIENTATION, 1) not in (0, 1):
            return None
    kept = [
        data[begin:end]
        for marker, begin, end in _segments(data)
        if marker in _KEPT or not (0xE0 <= marker <= 0xEF or marker == 0xFE)
    ]
    return b"".join(kept)
