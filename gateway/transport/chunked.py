"""The chunked transfer coding (RFC 9112 section 7.1): take it off what comes, put it on what goes. Pure.

Extensions and trailers are read, bounded and dropped."""

from __future__ import annotations

import re

import httpx

MAX_LINE_BYTES = 4096
MAX_TRAILER_BYTES = 64 * 1024
LAST_CHUNK = b"0\r\n\r\n"
AT_ONCE = 256
"""Chunks that are decoded in one go, in less than a millisecond: whoever sends tiny ones must not hold up the loop."""

# BWS after the size is tolerated: servers pad sizes with spaces, and no reader takes them for anything else.
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n\x00]*)?\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[^\r\n\x00]*\r\n")


class ChunkedDecoder:
    """Decodes one body. States: *size* → *data* → *gap* (the line end after the data) → *size*, or after a size of zero
    *trailer* → ``complete``."""

    __slots__ = ("_gap", "_left", "_line", "_trailer_bytes", "complete")

    def __init__(self) -> None:
        self.complete = False
        self._left = 0
        self._gap = False
        self._line = b""
        self._trailer_bytes = -1  # not in the trailer

    def feed(self, data: bytes, chunks: list[bytes]) -> int:
        """Append the body bytes in ``data`` to ``chunks`` and return how many bytes were used.

        That is fewer than came only when the body is complete, or after ``AT_ONCE`` chunks. Raises
        ``httpx.RemoteProtocolError``.
        """
        at, end, most = 0, len(data), len(chunks) + AT_ONCE
        while at < end and not self.complete and len(chunks) < most:
            if self._left:
                piece = data[at : at + self._left]
                chunks.append(piece)
                self._left -= len(piece)
                self._gap = not self._left
                at += len(piece)
            else:
                at = self._read_line(data, at)
        return at

    def _read_line(self, data: bytes, at: int) -> int:
        stop = data.find(b"\n", at) + 1
        self._line += data[at : stop or None]
        if len(self._line) > MAX_LINE_BYTES:
            raise httpx.RemoteProtocolError("a line between chunks is too long")
        if self._gap and not b"\r\n".startswith(self._line):
            raise httpx.RemoteProtocolError("a chunk is longer than its size")
        if not stop:
            return len(data)
        line, self._line = self._line, b""
        if self._gap:
            self._gap = False
        elif self._trailer_bytes < 0:
            self._take_size(line)
        else:
            self._take_trailer(line)
        return stop

    def _take_size(self, line: bytes) -> None:
        match = _SIZE.fullmatch(line)
        if match is None:
            raise httpx.RemoteProtocolError("a chunk has no size")
        self._left = int(match[1], 16)
        if not self._left:
            self._trailer_bytes = 0

    def _take_trailer(self, line: bytes) -> None:
        if line == b"\r\n":
            self.complete = True
            return
        self._trailer_bytes += len(line)
        if self._trailer_bytes > MAX_TRAILER_BYTES or not _TRAILER.fullmatch(line):
            raise httpx.RemoteProtocolError("the trailer is too large or no trailer")


def chunk_parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return one chunk as the parts to be written; ``data`` must not be empty, that would be the last chunk."""
    return b"%x\r\n" % len(data), data, b"\r\n"
