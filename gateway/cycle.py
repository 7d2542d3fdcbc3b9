"""One request at uvicorn's protocol on httptools, and its answer, at the cost of one write and of no copy.

States of the answer: *not started* → *held* (a corked head waits for the body that follows at once) → *started* →
*complete*. A body's pieces wait as the parser made them, until somebody receives.

What uvicorn's own cycle does otherwise: it copies each piece of a body twice, writes head and body each on its own and
gives a 304 that states a length no end. Also here: an answer of unknown length to an HTTP/1.0 client, which knows no
chunks, ends with its connection, and with a reset where it was cut; an answer that is cut short on purpose closes the
connection and is no error for the log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.arrival import CORKED_KEY, LINES_KEY
from gateway.fields import encode_fields
from gateway.guard import reset
from gateway.problem import AnswerAborted

MAX_WAITING_BYTES = 256 * 1024
"""Body bytes that may wait to be received before the client is not read any more."""


class BoundedCycle(RequestResponseCycle):
    """Made by the protocol when a head is whole. Names of the answer's fields are in lower case."""

    _pieces: list[bytes] | tuple[()] = ()
    _waiting_bytes = 0
    _held = b""
    _until_close = False

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more should be read."""
        return self._waiting_bytes > MAX_WAITING_BYTES

    @property
    def _is_gone(self) -> bool:
        # The protocol tells the last request of a connection; those before it see its end.
        return self.disconnected or self.transport.is_closing()

    def take(self, piece: bytes) -> None:
        """Keep a piece of the body until it is received."""
        if self._pieces:
            self._pieces.append(piece)
        else:
            self._pieces = [piece]
        self._waiting_bytes += len(piece)
        self.message_event.set()

    def whole_body(self) -> bytes | None:
        """Receive the body if all of it is there, without waiting; ``None`` where it is not."""
        return None if self.more_body else self._receive_pieces()

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Serve the request."""
        try:
            await app(self.scope, self.receive, self.send)
        except AnswerAborted:
            self._cut()
        except BaseException as error:
            self.logger.error("Exception in ASGI application\n", exc_info=error)
            await self._give_up()
        else:
            if not self.response_complete and not self._is_gone:
                self.logger.error("ASGI callable returned without completing response.")
                await self._give_up()
        finally:
            self.on_response = _nothing

    async def receive(self) -> ASGIReceiveEvent:
        """Return what came of the body since the last time; wait where nothing did."""
        if self.waiting_for_100_continue and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            await self.message_event.wait()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._receive_pieces(), "more_body": self.more_body}

    async def send(self, message: ASGISendEvent) -> None:
        """Send one part of the answer."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self._is_gone:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self._start(message["status"], message["headers"], _lines_of(message), corked=CORKED_KEY in message)
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            self._continue(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"an answer cannot go on with {message['type']}")

    def _receive_pieces(self) -> bytes:
        self.message_event.clear()
        pieces = self._pieces
        self._pieces, self._waiting_bytes = (), 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _start(self, status: int, fields: Iterable[tuple[bytes, bytes]], lines: bytes | None, *, corked: bool) -> None:
        self.response_started, self.waiting_for_100_continue = True, False
        head = STATUS_LINE[status] + (lines or encode_fields(list(fields))) + self._frame(status, fields) + b"\r\n"
        if corked:
            self._held = head
        else:
            self.transport.write(head)

    def _frame(self, status: int, fields: Iterable[tuple[bytes, bytes]]) -> bytes:
        """Decide how the body's end is told (RFC 9112 section 6.3), and return the lines that are missing for it."""
        missing = b""
        asks_to_close = False
        for name, value in fields:
            if name == b"content-length":
                self.expected_content_length, self.chunked_encoding = int(value), False
            elif name == b"connection":
                asks_to_close = b"close" in [token.strip().lower() for token in value.split(b",")]
        if status == 304:
            self.expected_content_length = 0
        if asks_to_close:
            self.keep_alive = False
        elif not self.keep_alive:
            missing = b"connection: close\r\n"
        if self.chunked_encoding is None and self.scope["method"] != "HEAD" and status not in (204, 304):
            if self.scope["http_version"] == "1.0":
                self._until_close, self.chunked_encoding = True, False
            else:
                self.chunked_encoding = True
                missing += b"transfer-encoding: chunked\r\n"
        return missing

    def _continue(self, body: bytes, *, more: bool) -> None:
        if self.scope["method"] == "HEAD":
            body, self.expected_content_length = b"", 0
        elif self.chunked_encoding:
            body = _chunk(body, is_last=not more)
        elif not self._until_close:
            if len(body) > self.expected_content_length:
                raise RuntimeError("Response content longer than Content-Length")
            self.expected_content_length -= len(body)
        if self._held:
            self.transport.writelines((self._held, body))
            self._held = b""
        elif body:
            self.transport.write(body)
        if not more:
            self._complete()

    def _complete(self) -> None:
        if self.expected_content_length:
            raise RuntimeError("Response content shorter than Content-Length")
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _cut(self) -> None:
        self.disconnected = True
        if self.scope["http_version"] == "1.0":
            reset(self.transport)  # an orderly end could make the answer whole
        else:
            self.transport.close()
        self.on_response()

    async def _give_up(self) -> None:
        if self.response_started:
            self.transport.close()
            self.on_response()
        elif not self._is_gone:
            await self.send_500_response()


def _lines_of(message: ASGISendEvent) -> bytes | None:
    return cast("bytes | None", message.get(LINES_KEY))


def _chunk(body: bytes, *, is_last: bool) -> bytes:
    chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return chunk + b"0\r\n\r\n" if is_last else chunk


def _nothing() -> None:
    """Do nothing."""
