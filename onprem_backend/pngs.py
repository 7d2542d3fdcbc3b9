"""What Pillow passes over in a PNG (ISO/IEC 15948): checksums, missing pixels, and how deep a transparent colour is."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import numpy as np
from PIL import Image

_SIGNATURE_BYTES = 8
_FRAME_BYTES = 12
_SHAPES_PIXELS = frozenset({b"tRNS"})
"""Ancillary chunks without which a picture would look different in a way that nobody notices."""
_LENGTHS = {b"pHYs": 9, b"gAMA": 4, b"cHRM": 32, b"sRGB": 1, b"acTL": 8}
_LONGEST_NAME = 79
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
"""Of each pass the first column and row, then the steps (section 8.2)."""
_AT_ONCE = 1 << 20


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield kind, begin and end of every chunk that is there as a whole, up to the last one."""
    position, kind = _SIGNATURE_BYTES, b""
    while position + _FRAME_BYTES <= len(data) and kind != b"IEND":
        (length,) = struct.unpack_from(">I", data, position)
        kind = data[position + 4 : position + 8]
        end = position + _FRAME_BYTES + length
        if end > len(data):
            return
        yield kind, position, end
        position = end


def with_good_chunks(data: bytes) -> bytes:
    """Return the file without the ancillary chunks (texts, times, profiles) whose checksum is wrong or that are
    malformed: the picture is whole without them, but Pillow would refuse it.

    Raises ``ValueError`` when a chunk that makes the pixels is damaged; Pillow does not check those of the pixel data.
    What is cut off is left for the decoder to find.
    """
    bad: list[tuple[int, int]] = []
    for kind, begin, end in _chunks(data):
        checksum = zlib.crc32(memoryview(data)[begin + 4 : end - 4])
        if checksum != int.from_bytes(data[end - 4 : end], "big"):
            if not kind[:1].islower() or kind in _SHAPES_PIXELS:
                raise ValueError(f"the checksum of its {kind.decode('latin-1')!r} chunk is wrong")
            bad.append((begin, end))
        elif _is_malformed(kind, data[begin + 8 : end - 4]):
            bad.append((begin, end))
    return _without(data, bad) if bad else data


def _is_malformed(kind: bytes, body: bytes) -> bool:
    if kind == b"iCCP":
        name, _, rest = body[: _LONGEST_NAME + 2].partition(b"\0")
        return not name or rest[:1] != b"\0"  # the only way of compression there is
    return kind in _LENGTHS and len(body) != _LENGTHS[kind]


def _without(data: bytes, spans: list[tuple[int, int]]) -> bytes:
    begins = [0, *(end for _, end in spans)]
    ends = [*(begin for begin, _ in spans), len(data)]
    return b"".join(data[begin:end] for begin, end in zip(begins, ends, strict=True))


def check_complete(data: bytes, image: Image.Image) -> None:
    """Raise ``ValueError`` when the pixel data of ``image``, decoded from ``data``, ends in good order but too early:
    Pillow leaves the rest zero.

    Only where one of the last two rows is zero (the last one, or the last one of the last interlaced pass) can any be
    missing, and the data is unpacked once more to be counted.
    """
    last = np.asarray(image.crop((0, max(0, image.height - 2), image.width, image.height)))
    if last.reshape(len(last), -1).any(axis=1).all():
        return
    header, packed = b"", list[bytes]()
    for kind, begin, end in _chunks(data):
        if kind == b"IHDR":
            header = data[begin + 8 : end - 4]
        elif kind == b"IDAT":
            packed.append(data[begin + 8 : end - 4])
    if _unpacked_bytes(packed) < _wanted_bytes(header):
        raise ValueError("pixels are missing at its end")


def _unpacked_bytes(packed: list[bytes]) -> int:
    stream, total = zlib.decompressobj(), 0
    for part in packed:
        rest = part
        while rest and not stream.eof:
            total += len(stream.decompress(rest, _AT_ONCE))
            rest = stream.unconsumed_tail
    while step := stream.decompress(b"", _AT_ONCE):
        total += len(step)
    return total


def _wanted_bytes(header: bytes) -> int:
    """Return how many bytes all rows take, each with the byte of its filter."""
    width, height, bits, colour, _, _, interlace = struct.unpack(">IIBBBBB", header[:13])
    passes = _ADAM7 if interlace else ((0, 0, 1, 1),)
    total = 0
    for left, top, step_x, step_y in passes:
        columns, rows = -(-(width - left) // step_x), -(-(height - top) // step_y)
        if columns > 0 and rows > 0:
            total += rows * (1 + -(-columns * bits * _CHANNELS[colour] // 8))
    return total


def scale_key(image: Image.Image) -> None:
    """Bring the colour that is transparent (tRNS, section 11.3.2.1) to the 8 bits of the pixels: Pillow leaves it as
    the file has it, so that another colour would be transparent, or none. To be called between opening and loading.

    Of a 16-bit colour only the high bytes remain, as of the pixels.
    """
    key = image.info.get("transparency")
    tiles = getattr(image, "tile", [])
    kind = tiles[0].args if tiles else None
    if kind == "RGB;16B" and isinstance(key, tuple):
        image.info["transparency"] = tuple(value >> 8 for value in key)
    elif kind in ("L;2", "L;4") and isinstance(key, int):
        image.info["transparency"] = key * (85 if kind == "L;2" else 17)
