"""The checksums of a PNG (ISO/IEC 15948 section 5.3)."""

from __future__ import annotations

import struct
import zlib

_SIGNATURE_BYTES = 8
_FRAME_BYTES = 12
_SHAPES_PIXELS = frozenset({b"tRNS"})
"""Ancillary chunks without which a picture would look different in a way that nobody notices."""


def with_good_chunks(data: bytes) -> bytes:
    """Return the file without the ancillary chunks (texts, times, profiles) whose checksum is wrong: the picture is
    whole without them, but Pillow would refuse it.

    Raises ``ValueError`` when a chunk that makes the pixels is damaged; Pillow does not check those of the pixel data.
    What is cut off is left for the decoder to find.
    """
    bad: list[tuple[int, int]] = []
    position, kind = _SIGNATURE_BYTES, b""
    while position + _FRAME_BYTES <= len(data) and kind != b"IEND":
        (length,) = struct.unpack_from(">I", data, position)
        kind = data[position + 4 : position + 8]
        end = position + _FRAME_BYTES + length
        if end > len(data):
            break
        checksum = zlib.crc32(memoryview(data)[position + 4 : end - 4])
        if checksum != int.from_bytes(data[end - 4 : end], "big"):
            if not kind[:1].islower() or kind in _SHAPES_PIXELS:
                raise ValueError(f"the checksum of its {kind.decode('latin-1')!r} chunk is wrong")
            bad.append((position, end))
        position = end
    return _without(data, bad) if bad else data


def _without(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    begins = [0, *(end for _, end in spans)]
    ends = [*(begin for begin, _ in spans), len(data)]
    return b"".join(data[begin:end] for begin, end in zip(begins, ends, strict=True))
