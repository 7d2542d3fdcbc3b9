"""Read one answer from the bytes that come, whatever pieces they come in.

States: *head* (interim answers are dropped here) → *body* → ``complete``. A state is left only by bytes or by the end
of the connection; the pieces never matter, only their sum. What comes after the end of the answer is ``surplus``: the
connection it came on must not be used again, since it could be taken for the next answer (RFC 9112 section 9.3).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

import httpx

from gateway.transport.chunked import ChunkedDecoder
from gateway.transport.head import AnswerHead, Framing, decode_answer

_LINE_FEED_ENDS = (b"\n\n", b"\n\r\n")
"""Ends of a head that is no HTTP/1.1, where the right one is not found."""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Bounds on an answer's head, in bytes, and on the number of interim answers before it."""

    head_bytes: int = 64 * 1024
    interim: int = 32


class Reuse(StrEnum):
    """Whether the connection of an answer may carry another, and if not, why."""

    YES = "yes"
    UNFINISHED = "unfinished"
    ASKED_TO_CLOSE = "asked_to_close"
    SURPLUS = "surplus"


class Answer:
    """An answer as it arrives. ``chunks`` are body bytes that nobody took yet; take them with ``take``. ``rest`` came
    and is not decoded yet: ``feed`` goes on with it."""

    __slots__ = (
        "_buffer", "_decoder", "_interim", "_left", "_limits", "_method", "chunks", "complete", "head", "rest",
        "surplus", "waiting_bytes",
    )  # fmt: skip

    def __init__(self, method: str, limits: AnswerLimits) -> None:
        self.head: AnswerHead | None = None
        self.chunks: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.complete = False
        self.surplus = False
        self.rest = b""
        self._method = method
        self._limits = limits
        self._buffer = bytearray()
        self._interim = 0
        self._left = 0
        self._decoder: ChunkedDecoder | None = None

    @property
    def reuse(self) -> Reuse:
        """Whether the connection may be used again, as far as this answer goes."""
        if not self.complete or self.head is None:
            return Reuse.UNFINISHED
        if self.surplus:
            return Reuse.SURPLUS
        return Reuse.YES if self.head.persistent else Reuse.ASKED_TO_CLOSE

    def take(self) -> bytes:
        """Take the oldest body bytes; there must be some."""
        chunk = self.chunks.popleft()
        self.waiting_bytes -= len(chunk)
        return chunk

    def feed(self, data: bytes) -> None:
        """Take what came. Raises ``httpx.RemoteProtocolError``; the answer is then of no use any more."""
        if self.rest:
            data, self.rest = self.rest + data, b""
        while data and self.head is None:
            data = self._feed_head(data)
        if not data:
            return
        if self.complete:
            self.surplus = True
        else:
            self._feed_body(data)

    def feed_end(self) -> None:
        """Take note that the connection ended in order. Raises ``httpx.RemoteProtocolError`` where that cuts the
        answer."""
        if self.head is not None and self.head.framing is Framing.CLOSE:
            self.complete = True
        if self.head is None:
            raise httpx.RemoteProtocolError("the connection ended before an answer came")
        if not self.complete:
            raise httpx.RemoteProtocolError("the connection ended in the middle of the answer")

    def _feed_head(self, data: bytes) -> bytes:
        """Take bytes of a head; return what follows it."""
        seen = len(self._buffer)
        if seen:
            self._buffer += data
        source: bytes | bytearray = self._buffer if seen else data
        if not b"HTTP/1.".startswith(source[:7]):  # llhttp would skip line ends before it
            raise httpx.RemoteProtocolError("the answer is no HTTP/1.1")
        end = source.find(b"\r\n\r\n", max(seen - 3, 0)) + 4
        if (end if end > 3 else len(source)) > self._limits.head_bytes:
            raise httpx.RemoteProtocolError("the answer's head is too large")
        if end > 3:
            head, rest = bytes(source[:end]), bytes(source[end:])
            self._buffer = bytearray()
            self._take_head(decode_answer(head, self._method))
            return rest
        if any(source.find(empty, max(seen - 2, 0)) >= 0 for empty in _LINE_FEED_ENDS):
            raise httpx.RemoteProtocolError("the answer's lines end with line feeds alone")  # nothing more may come
        if not seen:
            self._buffer += data
        return b""

    def _take_head(self, head: AnswerHead) -> None:
        if head.status < 200:
            self._interim += 1
            if self._interim > self._limits.interim:
                raise httpx.RemoteProtocolError("too many interim answers")
            return
        self.head = head
        self._left = head.length
        self.complete = head.framing is Framing.NONE
        if head.framing is Framing.CHUNKED:
            self._decoder = ChunkedDecoder()

    def _feed_body(self, data: bytes) -> None:
        if self._decoder is not None:
            self._feed_decoder(self._decoder, data)
        elif self._left:
            piece = data[: self._left]
            self._left -= len(piece)
            self.complete = not self._left
            self.surplus = len(piece) < len(data)
            self._put(piece)
        else:
            self._put(data)

    def _feed_decoder(self, decoder: ChunkedDecoder, data: bytes) -> None:
        pieces: list[bytes] = []
        try:
            used = decoder.feed(data, pieces)
            self.complete = decoder.complete
            if used < len(data):
                self.surplus = self.complete
                self.rest = b"" if self.complete else data[used:]
        finally:  # what came before an error in the coding came all the same
            # What came together goes on together: a backend's many small chunks must not cost one step each.
            if pieces:
                self._put(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def _put(self, piece: bytes) -> None:
        self.chunks.append(piece)
        self.waiting_bytes += len(piece)
