"""One request through one connection, and its answer as a stream.

The upload of a body that is not there yet runs in a task of its own, so that an answer which comes before its end is
seen at once. An error (4xx, 5xx) stops the upload where it is; any other early answer may depend on the rest, and the
upload goes on beside it until the answer is whole. A connection whose upload did not end is not used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import AsyncGeneratorType
from typing import NamedTuple

import httpx

from gateway.transport.answer import Answer, Reuse
from gateway.transport.chunked import LAST_CHUNK, chunk_parts
from gateway.transport.connection import Connection
from gateway.transport.head import AnswerHead, RequestHead

_JOINED_BYTES = 16 * 1024


class Patience(NamedTuple):
    """How long to wait for one step, in seconds; ``None`` is for ever. ``end_s`` is the moment on the loop's clock by
    which everything must be over."""

    read_s: float | None = None
    write_s: float | None = None
    end_s: float | None = None

    def for_all(self, now_s: float) -> float | None:
        """Seconds until the end of everything."""
        return _shorter(None, self.end_s, now_s)

    def for_reading(self, now_s: float) -> float | None:
        """Seconds that a read may take now."""
        return _shorter(self.read_s, self.end_s, now_s)

    def for_writing(self, now_s: float) -> float | None:
        """Seconds that a write may take now."""
        return _shorter(self.write_s, self.end_s, now_s)


def _shorter(step_s: float | None, end_s: float | None, now_s: float) -> float | None:
    if end_s is None:
        return step_s
    return end_s - now_s if step_s is None else min(step_s, end_s - now_s)


class RoundTrip(httpx.AsyncByteStream):
    """Owns a borrowed connection from ``send`` to ``aclose``, and is the answer's body, which can be read once.

    ``on_end`` is called once, with what the connection may do next.
    """

    _upload: asyncio.Task[None] | None = None
    _uploaded = False
    _ended = False

    def __init__(
        self,
        connection: Connection,
        answer: Answer,
        patience: Patience,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[Connection, Reuse], None],
    ) -> None:
        self._connection = connection
        self._answer = answer
        self._patience = patience
        self._loop = loop
        self._on_end = on_end
        connection.answer = answer  # busy from now on

    @property
    def head(self) -> AnswerHead:
        """The answer's head; only after ``send``."""
        assert self._answer.head is not None, "there is no answer yet"
        return self._answer.head

    @property
    def is_whole(self) -> bool:
        """Whether the last byte of the answer has come."""
        return self._answer.complete

    @property
    def is_read(self) -> bool:
        """Whether all of the answer's body was taken; false for one that still may have more."""
        return self._answer.complete and not self._answer.chunks

    async def send(self, head: RequestHead, body: httpx.AsyncByteStream | httpx.SyncByteStream) -> None:
        """Send the request and wait for the head of the final answer. The caller must call ``aclose`` in any case.

        Raises the errors that the package names, and whatever the body's own iterator raises.
        """
        if isinstance(body, httpx.SyncByteStream):
            self._send_ready(head, list(filter(None, body)))
        elif head.length == 0:
            self._send_ready(head, [piece async for piece in body if piece])
        else:
            self._connection.write((head.data,))
            self._upload = self._loop.create_task(self._send_stream(head.length, body), name="upload")
            self._upload.add_done_callback(self._note_upload)
        if self._uploaded and self._connection.is_clogged:
            await self._connection.drain(self._patience.for_writing(self._loop.time()), unless_answered=True)
        await self._wait_for_head()

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes. Raises ``httpx.ReadError``, ``ReadTimeout`` or ``RemoteProtocolError``."""
        return self

    async def __anext__(self) -> bytes:
        answer = self._answer
        while not answer.chunks:
            if answer.complete:
                await self.aclose()
                raise StopAsyncIteration
            self._raise_failure()
            self._connection.resume()
            await self._connection.arrival(self._patience.for_reading(self._loop.time()))
        return self.take_ready()

    def take_ready(self) -> bytes:
        """Take the next body bytes that are there already; none where they are still to come."""
        if not self._answer.chunks:
            return b""
        chunk = self._answer.take()
        self._connection.resume()
        return chunk

    async def aclose(self) -> None:
        """Give the connection back: to be used again if everything about it is whole, to be dropped otherwise."""
        if self._ended:
            return
        self._ended = True
        whole = self._uploaded and not self._connection.is_clogged
        reuse = self._answer.reuse if whole else Reuse.UNFINISHED
        upload, self._upload = self._upload, None  # its end leads back here: nothing is to wait for the collector
        if upload is not None and not upload.done():
            upload.cancel()
        if reuse is Reuse.YES:
            self._connection.finish()
        else:
            self._connection.abort()
        self._on_end(self._connection, reuse)
        if upload is not None and not upload.done():
            await asyncio.wait({upload})

    async def _wait_for_head(self) -> None:
        answer = self._answer
        while answer.head is None:
            self._raise_failure()
            now_s = self._loop.time()
            # The backend owes no answer while its request is not whole: the read deadline begins with the last byte.
            uploading = self._upload is not None and not self._upload.done()
            await self._connection.arrival(
                self._patience.for_all(now_s) if uploading else self._patience.for_reading(now_s)
            )
        if self._upload is not None and not self._uploaded and answer.head.status >= 400:
            self._upload.cancel()

    def _send_ready(self, head: RequestHead, pieces: list[bytes]) -> None:
        size = sum(map(len, pieces))
        if head.length is None:
            parts = [head.data, *(part for piece in pieces for part in chunk_parts(piece)), LAST_CHUNK]
        elif size == head.length:
            parts = [head.data, *pieces]
        else:
            raise httpx.LocalProtocolError("the body has not the length that was announced")
        self._connection.write((b"".join(parts),) if size < _JOINED_BYTES else parts)
        self._uploaded = True

    async def _send_stream(self, length: int | None, body: httpx.AsyncByteStream) -> None:
        sent = 0
        pieces = aiter(body)
        try:
            async for piece in pieces:
                if not piece:
                    continue
                sent += len(piece)
                if length is not None and sent > length:
                    raise httpx.LocalProtocolError("the body is longer than was announced")
                self._connection.write((piece,) if length is not None else chunk_parts(piece))
                self._uploaded = sent == length  # the answer may come before the body says that it is at its end
                await self._connection.drain(self._patience.for_writing(self._loop.time()))
        finally:
            if isinstance(pieces, AsyncGeneratorType):
                await pieces.aclose()
        if length is None:
            self._connection.write((LAST_CHUNK,))
        elif sent != length:
            raise httpx.LocalProtocolError("the body is shorter than was announced")
        self._uploaded = True

    def _note_upload(self, upload: asyncio.Task[None]) -> None:
        if not upload.cancelled():
            upload.exception()  # looked at, so that it counts as retrieved; whoever wakes raises it
            self._connection.wake()

    def _raise_failure(self) -> None:
        """Raise what went wrong: the upload's own failure first, since the connection's is often its consequence.

        Once there is an answer, an upload that the backend no longer takes is no failure.
        """
        upload = self._upload
        if upload is not None and upload.done() and not upload.cancelled():
            error = upload.exception()
            try:
                if error is not None and not (
                    self._answer.head is not None and isinstance(error, httpx.TransportError)
                ):
                    raise error
            finally:
                del error  # raised, it leads back to this frame, and so to all that the request holds
        failure = self._connection.failure
        if failure is not None:
            raise type(failure)(*failure.args)  # anew, for the same reason: the connection keeps its own
        if self._connection.lost:
            raise httpx.ReadError("the connection was closed")
