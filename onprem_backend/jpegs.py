"""What Pillow does not tell about a JPEG (ITU-T T.81): whether its data is complete, and its bytes without metadata.

libjpeg fills what is missing with grey blocks and only warns, so a file that was cut and closed again would pass with a
grey area, and one that lacks nothing but its end marker would be refused. Both are told by one observation: a decoder
that has everything ignores what follows in the scan, one that lacks something takes it for pixels. Of a progressive
file the scans are counted: together they have to bring every bit of every coefficient. Restart markers have to come in
their order.

This cannot see wrong bits in the middle of data that is all there, nor a fault within the last few blocks.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image

_START, _END, _SCAN, _RESTARTS, _PROGRESSIVE = 0xD8, 0xD9, 0xDA, 0xDD, 0xC2
_END_BYTES = b"\xff\xd9"
_MARKER = re.compile(rb"\xff+([^\x00\xd0-\xd7\xff])", re.DOTALL)
"""A marker that ends entropy-coded data: no stuffed zero, no restart (T.81 section B.1.1.2)."""
_SEQUENTIAL = frozenset({0xC0, 0xC1})
_RESTART = re.compile(rb"\xff([\xd0-\xd7])")
_PASSED_OVER = frozenset({0xDC, *range(0xE0, 0xF0), 0xFE})
"""What libjpeg does not read for the pixels: DNL, application segments, comments. It refuses what it does not know."""
_JFIF, _PROFILE, _ADOBE = 0xE0, 0xE2, 0xEE
_KEPT = {_JFIF: b"JFIF\0", _PROFILE: b"ICC_PROFILE\0", _ADOBE: b"Adobe"}
"""Application segments that say how to show the pixels, and how each begins: others under the same markers hold
thumbnails, further pictures and notes."""
_TOLD_BYTES = 12
"""Of JFIF (ITU-T T.871) what comes before its thumbnail's size, of Adobe (T.872) all."""
_NO_THUMBNAIL = b"\0\0"
_BLOCK_PX = 8
_GREY = 128
_NEAR_GREY = 4
_COEFFICIENTS = 64
_PROBES = (b"\x2a" * 64, b"\xd5" * 64)
_ORIENTATION = 0x0112
_Segment = tuple[int, int, int]
_MOST_SEGMENTS = 10_000
_MOST_SCANS = 100
"""Encoders make some ten. Each one passes over the whole picture, and may take no more than 20 bytes of the file."""


def _segments(data: bytes) -> Iterator[_Segment]:
    """Yield marker, begin and end of every segment from the first to the end marker, entropy-coded data with its scan.
    A file without an end marker just stops; a segment that is cut ends beyond it. Raises ``ValueError`` when there are
    absurdly many, or so many scans that decoding them would take minutes.
    """
    position = scans = 0
    for _ in range(_MOST_SEGMENTS):
        found = _MARKER.search(data, position)
        if found is None:
            return
        marker = found[1][0]
        length = 0 if marker in (_START, _END) else int.from_bytes(data[found.end() : found.end() + 2], "big")
        position = found.end() + length
        if marker == _SCAN:
            scans += 1
            if scans > _MOST_SCANS:
                raise ValueError(f"it has more than {_MOST_SCANS} scans")
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

    Missing blocks are flat and of brightness 128, so where the last one is neither, and the end marker was there,
    nothing has to be decoded again; else once more for a block, or twice where a few bits may be all that lacks.
    """
    segments = list(_segments(data))
    _check_restarts(data, segments)
    if any(marker == _PROGRESSIVE for marker, _, _ in segments):
        _check_scans(data, segments)
    if had_end and not _ends_in_filling(image):
        return
    end = segments[-1][1]
    if segments[-1][0] != _END:
        raise ValueError("its end is missing")
    for probe in _PROBES[:1] if had_end else _PROBES:
        with Image.open(io.BytesIO(data[:end] + probe + _END_BYTES), formats=["JPEG"]) as other:
            if other.tobytes() != image.tobytes():
                raise ValueError("pixels are missing at its end")


def _ends_in_filling(image: Image.Image) -> bool:
    """Say whether the last block may be one that is missing. Of its last pixel the brightness tells, which is never
    mixed with that of a neighbour as colour is."""
    corner = image.crop((image.width - _BLOCK_PX, image.height - _BLOCK_PX, image.width, image.height))
    pixels = np.asarray(corner)
    bright = np.asarray(corner if corner.mode == "CMYK" else corner.convert("L"))
    return bool((pixels == pixels[-1, -1]).all() or abs(bright[-1, -1].mean() - _GREY) <= _NEAR_GREY)


def _check_restarts(data: bytes, segments: Sequence[_Segment]) -> None:
    """Raise ``ValueError`` when a scan's restart markers do not count from 0 to 7 and again (T.81 section E.1.4)."""
    for marker, begin, end in segments:
        if marker == _SCAN:
            head = begin + 2 + int.from_bytes(data[begin + 2 : begin + 4], "big")
            for number, found in enumerate(_RESTART.finditer(data, head, end)):
                if found[1][0] & 7 != number & 7:
                    raise ValueError("a part of its data is missing")


def _check_scans(data: bytes, segments: Sequence[_Segment]) -> None:
    """Raise ``ValueError`` when a progressive file's scans leave bits of a coefficient out (T.81 section G.1.1)."""
    lacking: set[tuple[int, int]] = set()
    for marker, begin, end in segments:
        body = data[begin + 4 : end]
        if marker == _PROGRESSIVE and len(body) > 5:
            names = body[6 : 6 + 3 * body[5] : 3]
            lacking |= {(name, number) for name in names for number in range(_COEFFICIENTS)}
        elif marker == _SCAN and len(body) > 3:
            count = body[0]
            names, (first, last, bits) = body[1 : 1 + 2 * count : 2], body[1 + 2 * count : 4 + 2 * count]
            if not bits & 0x0F:  # down to the lowest bit
                lacking -= {(name, number) for name in names for number in range(first, last + 1)}
    if lacking:
        raise ValueError("scans are missing at its end")


def without_metadata(data: bytes) -> bytes | None:
    """Return the same compressed picture without EXIF, XMP, IPTC, comments and what follows its end, or ``None`` when
    its pixels are not shown as they are stored (turned, or not grey or YCbCr)."""
    with Image.open(io.BytesIO(data), formats=["JPEG"]) as image:
        if image.mode not in ("L", "RGB") or image.getexif().get(_ORIENTATION, 1) not in (0, 1):
            return None
    kept = [_bare(data, marker, begin, end) for marker, begin, end in _segments(data)]
    return b"".join(kept).removesuffix(_END_BYTES) + _END_BYTES


def _bare(data: bytes, marker: int, begin: int, end: int) -> bytes:
    """Return a segment, nothing of one that says nothing of the pixels, and of JFIF and Adobe what their standards
    name, without a thumbnail or whatever else follows."""
    segment = data[begin:end]
    if marker not in _PASSED_OVER:
        return segment
    if marker not in _KEPT or not segment[4:].startswith(_KEPT[marker]):
        return b""
    if marker == _PROFILE:
        return segment
    size = _NO_THUMBNAIL if marker == _JFIF else b""
    body = segment[4 : 4 + _TOLD_BYTES] + size
    if len(segment) < 4 + _TOLD_BYTES + len(size):
        return b""
    return segment[:2] + (2 + len(body)).to_bytes(2, "big") + body
