"""One request at uvicorn's protocol on httptools, and its answer, at the cost of one write where it is whole.

States of the answer: *not started* → *started* → *complete*. A body's pieces wait as the parser made them, until
somebody receives.

What uvicorn's own cycle does otherwise: it copies each piece of a body twice, writes head and body each on its own,
makes an event for each request although hardly any waits for it, and gives a 304 that states a length no end. Also
here: an answer of unknown length to an HTTP/1.0 client, which knows no chunks, ends with its connection, and with a
reset where it was cut; an answer that is cut short on purpose closes the connection and is no error for the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from uvicorn._types import ASGI3Application, ASGIReceiveEvent, ASGISendEvent, HTTPScope
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gateway.arrival import ANSWER_KEY, LINES_KEY, WHOLE_KEY
from gateway.fields import Fields, encode_fields, list_members
from gateway.guard import reset
from gateway.problem import AnswerAborted

MAX_JOINED_BYTES = 16 * 1024
"""Up to this size a copy of a body costs less than a write of two parts."""

MAX_WAITING_BYTES = 256 * 1024
"""Body bytes that may wait to be received before the client is not read any more."""


class _Bell:
    """What a request uses of ``asyncio.Event``, which is made only when somebody waits."""

    _rung = False
    _event: asyncio.Event | None = None

    def set(self) -> None:
        self._rung = True
        if self._event is not None:
            self._event.set()

    def clear(self) -> None:
        self._rung = False
        if self._event is not None:
            self._event.clear()

    async def wait(self) -> None:
        if not self._rung:
            self._event = self._event or asyncio.Event()
            await self._event.wait()


class BoundedCycle(RequestResponseCycle):
    """Made by the protocol when a head is whole. Names of the answer's fields are in lower case. ``tasks`` holds the
    task of each request that is being served."""

    disconnected = False
    more_body = True
    response_started = False
    response_complete = False
    chunked_encoding: bool | None = None
    expected_content_length = 0
    _pieces: list[bytes] | tuple[()] = ()
    _waiting_bytes = 0
    _until_close = False

    def __init__(
        self,
        scope: HTTPScope,
        transport: asyncio.Transport,
        flow: FlowControl,
        logger: logging.Logger,
        loop: asyncio.AbstractEventLoop,
        tasks: set[Any],
        expect_100_continue: bool,
        keep_alive: bool,
        on_response: Callable[[], None],
    ) -> None:
        # What uvicorn's own has of this is not called: it takes its parts by name, which costs as much again.
        self.scope = scope
        self.transport = transport
        self.flow = flow
        self.logger = logger
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = expect_100_continue
        self.on_response = on_response
        self.message_event = _Bell()  # type: ignore[assignment]
        self._loop = loop
        self._tasks = tasks

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
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[WHOLE_KEY], scope[ANSWER_KEY] = self.whole_body, self.answer_at_once
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
            # They lead back here: the request would wait for the garbage collector, with all that it holds.
            del scope[WHOLE_KEY], scope[ANSWER_KEY]
            # Here and not in a callback of the task's, for which the loop would turn once more.
            self._tasks.discard(asyncio.current_task(self._loop))

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
        if self.disconnected or self.transport.is_closing():
            return
        if message["type"] == "http.response.start" and not self.response_started:
            lines: bytes | None = message.get(LINES_KEY)  # type: ignore[assignment]
            self.transport.write(self._start(message["status"], list(message["headers"]), lines))
        elif message["type"] == "http.response.body" and self.response_started and not self.response_complete:
            more = message.get("more_body", False)
            piece = self._framed(message.get("body", b""), more=more)
            if piece:
                self.transport.write(piece)
            if not more:
                self._complete()
        else:
            raise RuntimeError(f"an answer cannot go on with {message['type']}")

    def answer_at_once(self, status: int, fields: Fields, lines: bytes, body: bytes) -> bool:
        """Send a whole answer, whose fields make these lines. Sends nothing and returns false where the client has to
        be waited for."""
        if self.disconnected or self.transport.is_closing():
            return True  # as good as sent: nobody is there
        if self.flow.write_paused:
            return False
        head, rest = self._start(status, fields, lines), self._framed(body, more=False)
        if len(rest) <= MAX_JOINED_BYTES:
            self.transport.write(head + rest)
        else:
            self.transport.writelines((head, rest))
        self._complete()
        return True

    def _receive_pieces(self) -> bytes:
        self.message_event.clear()
        pieces = self._pieces
        self._pieces, self._waiting_bytes = (), 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _start(self, status: int, fields: Fields, lines: bytes | None) -> bytes:
        self.response_started, self.waiting_for_100_continue = True, False
        return STATUS_LINE[status] + (lines or encode_fields(fields)) + self._frame(status, fields) + b"\r\n"

    def _frame(self, status: int, fields: Fields) -> bytes:
        """Decide how the body's end is told (RFC 9112 section 6.3), and return the lines that are missing for it."""
        missing = b""
        values = dict(fields)
        if b"content-length" in values:
            self.expected_content_length, self.chunked_encoding = int(values[b"content-length"]), False
        asks_to_close = b"connection" in values and b"close" in list_members(fields, b"connection")
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

    def _framed(self, body: bytes, *, more: bool) -> bytes:
        if self.scope["method"] == "HEAD":
            body, self.expected_content_length = b"", 0
        elif self.chunked_encoding:
            body = _chunk(body, is_last=not more)
        elif not self._until_close:
            if len(body) > self.expected_content_length:
                raise RuntimeError("Response content longer than Content-Length")
            self.expected_content_length -= len(body)
        return body

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


def _chunk(body: bytes, *, is_last: bool) -> bytes:
    chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
    return chunk + b"0\r\n\r\n" if is_last else chunk


def _nothing() -> None:
    """Do nothing."""
