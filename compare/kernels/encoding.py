"""Undo content encodings (RFC 9110 section 8.4.1) within a bound: gzip, deflate, br (RFC 7932) and zstd (RFC 8878).

A body of no bytes stays one, whatever its encoding is said to be: that is how HEAD and some caches answer. A gzip body
may have several members one after the other (RFC 1952 section 2.2), a zstd body several frames.
"""

from __future__ import annotations

import zlib

import brotli
import zstandard

_ZSTD_WINDOW_BYTES = 128 * 1024 * 1024
_INPUT_AT_ONCE = 64 * 1024
_ZSTD_AT_ONCE = 64  # four bytes of input may stand for a block of 128 KiB
_MOST_LAYERS = 4
_MOST_MEMBERS = 100


class CannotDecode(ValueError):
    """The content encoding is unknown or expands beyond the cap: the answer may be good, but cannot be judged here."""


class DamagedContent(ValueError):
    """The encoded content is damaged or cut short. Messages of both errors are for a person."""


def decode_content(data: bytes, encoding: str, max_bytes: int) -> bytes:
    """Undo the encodings, the last that was applied first, never making more than ``max_bytes`` in any layer.

    Raises ``CannotDecode`` or ``DamagedContent``.
    """
    names = [part.strip().lower() for part in encoding.split(",") if part.strip()]
    if len(names) > _MOST_LAYERS:
        raise CannotDecode(f"{len(names)} content encodings on top of each other are more than {_MOST_LAYERS}")
    for name in reversed(names):
        if name == "identity" or not data:
            continue
        if name in ("gzip", "x-gzip"):
            data = _gunzip(data, max_bytes)
        elif name == "deflate":
            # Some servers send raw deflate where RFC 9110 means zlib: its two-byte header tells.
            zlib_header = len(data) >= 2 and data[0] & 0x0F == 8 and int.from_bytes(data[:2]) % 31 == 0
            data, _ = _inflate(data, name, 15 if zlib_header else -15, max_bytes)
        elif name == "br":
            data = _unbrotli(data, max_bytes)
        elif name == "zstd":
            data = _unzstd(data, max_bytes)
        else:
            raise CannotDecode(f"content encoding {name[:20]!r} is not supported")
    return data


def _too_much(name: str, max_bytes: int) -> CannotDecode:
    return CannotDecode(f"the {name} stream expands to more than {max_bytes} bytes")


def _inflate(data: bytes, name: str, window: int, max_bytes: int) -> tuple[bytes, bytes]:
    """Return one stream's content and what follows the stream."""
    inflater = zlib.decompressobj(window)
    try:
        result = inflater.decompress(data, max_bytes + 1)
    except zlib.error as error:
        raise DamagedContent(f"the {name} stream is damaged: {error}") from error
    if len(result) > max_bytes:
        raise _too_much(name, max_bytes)
    if not inflater.eof:
        raise DamagedContent(f"the {name} stream is cut short")
    return result, inflater.unused_data


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    parts, room = list[bytes](), max_bytes
    while data:
        if len(parts) == _MOST_MEMBERS:
            raise CannotDecode(f"the gzip stream has more than {_MOST_MEMBERS} members")
        part, data = _inflate(data, "gzip", 31, room)
        parts.append(part)
        room -= len(part)
        data = data.lstrip(b"\0")  # padding, which gzip itself passes over, too
    return b"".join(parts)


def _unbrotli(data: bytes, max_bytes: int) -> bytes:
    decompressor, parts, total = brotli.Decompressor(), list[bytes](), 0
    try:
        for start in range(0, len(data), _INPUT_AT_ONCE):
            piece = data[start : start + _INPUT_AT_ONCE]
            while True:
                out = decompressor.process(piece, output_buffer_limit=max_bytes + 1 - total)
                parts.append(out)
                total += len(out)
                if total > max_bytes:
                    raise _too_much("br", max_bytes)
                if decompressor.can_accept_more_data():
                    break
                piece = b""
    except brotli.error as error:
        raise DamagedContent("the br stream is damaged") from error
    if not decompressor.is_finished():
        raise DamagedContent("the br stream is cut short")
    return b"".join(parts)


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    parts, room = list[bytes](), max_bytes
    while data:
        if len(parts) == _MOST_MEMBERS:
            raise CannotDecode(f"the zstd stream has more than {_MOST_MEMBERS} frames")
        part, data = _one_frame(data, room, max_bytes)
        parts.append(part)
        room -= len(part)
    return b"".join(parts)


def _one_frame(data: bytes, room: int, max_bytes: int) -> tuple[bytes, bytes]:
    """Return one frame's content and what follows the frame."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj()
    frame = bytearray()
    try:
        for start in range(0, len(data), _ZSTD_AT_ONCE):
            frame += decompressor.decompress(data[start : start + _ZSTD_AT_ONCE])
            if len(frame) > room:
                raise _too_much("zstd", max_bytes)
            if decompressor.eof:
                return bytes(frame), decompressor.unused_data + data[start + _ZSTD_AT_ONCE :]
    except zstandard.ZstdError as error:
        if "memory" in str(error):
            raise CannotDecode("the zstd stream needs a larger window than is allowed") from error
        raise DamagedContent("the zstd stream is damaged") from error
    raise DamagedContent("the zstd stream is cut short")
