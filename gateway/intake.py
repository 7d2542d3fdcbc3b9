"""The client's side of a request while it is being served: its body, and whether it is still there.

A small body that came together with its head is read at once, and the protocol tells when the client leaves. For every
other one task, owned here, is the only reader of ``receive()``. It hands the body on through a queue of one chunk, so a
slow backend slows the client and nothing piles up, and after the last byte it goes on to wait for the client to leave.

States: *coming* → *complete* (the last byte was read) → *ended*; or *coming* → *ended* with an ``Ending``. An ending
interrupts the deadline, which cancels whatever the backend is doing. A client that leaves while its body waits for a
slow backend is noticed by the protocol below, which looks at a socket that is not read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial

import httpx
from starlette.types import Receive

from gateway.arrival import Leaving
from gateway.deadline import Deadline
from gateway.replay import Replay
from shadow.tee import Tee

GRACE_S = 30.0
MIN_BYTES_PER_S = 1024.0
SMALL_BYTES = 64 * 1024
"""A body of at most so many bytes is read before the backend is asked, as far as one message carries it."""


class Ending(StrEnum):
    """Why the client's side ended before the answer did."""

    GONE = "gone"
    TOO_LARGE = "too_large"
    TOO_SLOW = "too_slow"


@dataclass(frozen=True, slots=True)
class BodyPace:
    """How slowly a body may come. The client has ``grace_s`` and a second more for each ``min_bytes_per_s`` that it
    has sent; only the time that we waited for it counts, not the time that the backend made it wait."""

    grace_s: float = GRACE_S
    min_bytes_per_s: float = MIN_BYTES_PER_S

    def left_s(self, size_bytes: int, waited_s: float) -> float:
        """Return how much longer may be waited, after so many bytes and so much waiting."""
        return self.grace_s + size_bytes / self.min_bytes_per_s - waited_s


class Intake:
    """Reads one request's body from ``receive`` and watches the client. ``timeout_s`` bounds each wait for the next
    chunk, and starts anew with the last one: from then on it is the backend's time. ``pace`` bounds all waits
    together."""

    whole: WholeBody | None = None
    complete = False
    ending: Ending | None = None
    _waited_s = 0.0
    _all_taken = False
    _reading = False
    _task: asyncio.Task[None] | None = None

    def __init__(
        self,
        receive: Receive,
        tee: Tee,
        max_bytes: int,
        timeout_s: float,
        request_id: str,
        clock: Callable[[], float],
        pace: BodyPace,
        replay: Replay,
        announced_bytes: int | None,
        leaving: Leaving | None,
        whole_body: Callable[[], bytes | None],
    ) -> None:
        self._receive = receive
        self._tee = tee
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s
        self._request_id = request_id
        self._clock = clock
        self._pace = pace
        self._replay = replay
        self._is_small = announced_bytes is not None and announced_bytes <= SMALL_BYTES
        self._leaving = leaving
        self._whole_body = whole_body

    @cached_property
    def _chunks(self) -> asyncio.Queue[bytes]:
        return asyncio.Queue(maxsize=1)

    @property
    def starved(self) -> bool:
        """Whether the request waits for its client to send more."""
        return self._reading and not self.complete and self._chunks.empty()

    @property
    def replayable(self) -> bool:
        """Whether the body can still be given to a backend from its first byte."""
        return self._replay.is_whole

    async def begin(self, deadline: Deadline) -> None:
        """Start reading. A small body is waited for: most often it is there already, and then ``whole``."""
        body = self._whole_body() if self._is_small else None
        if body is not None:
            await self._take(body, False, deadline)
        elif self._is_small:
            await self._read_one(deadline)
        else:
            deadline.extend(self._timeout_s)
        if self.ending is not None:
            await asyncio.Event().wait()  # nothing is to be sent: the deadline, interrupted, ends this
        if self._leaving is not None:
            self._leaving.listen(self, partial(self._finish, Ending.GONE, deadline))
            if self.complete:
                return
        self._task = asyncio.create_task(self._run(deadline), name=f"intake {self._request_id}")

    async def end(self) -> None:
        """Stop reading. Raises what the reader failed with, if it did: a defect."""
        self._replay.drop()
        self.whole = None  # it leads back here
        if self._leaving is not None:
            self._leaving.forget(self)
        task, self._task = self._task, None  # it leads back here too, by the frames of its end
        if task is None:
            return
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes; for another attempt again from the start. Ends only after the last byte: an early
        ending interrupts the consumer instead."""
        for chunk in self._replay.chunks:
            yield chunk
        while not self._all_taken:
            chunk = await self._chunks.get()
            if not chunk:
                self._all_taken = True
                return
            self._replay.keep(chunk)
            yield chunk

    def _note_taken(self, chunk: bytes) -> None:
        if chunk and not self._all_taken:
            self._all_taken = True
            self._replay.keep(chunk)

    def settle(self) -> None:
        """Note that no other attempt will be made."""
        self._replay.drop()

    async def _run(self, deadline: Deadline) -> None:
        while self.ending is None:
            await self._read_one(deadline)

    async def _read_one(self, deadline: Deadline) -> None:
        if not self.complete:
            deadline.extend(min(self._timeout_s, max(0.0, self._left_s())))
        self._reading, began_s = True, self._clock()
        message = await self._receive()
        self._reading = False
        if not self.complete:
            self._waited_s += self._clock() - began_s
        if message["type"] == "http.disconnect":
            self._finish(Ending.GONE, deadline)
        elif not self.complete:
            await self._take(message.get("body", b""), message.get("more_body", False), deadline)

    async def _take(self, chunk: bytes, more: bool, deadline: Deadline) -> None:
        self._tee.feed(chunk)
        if self._tee.size_bytes > self._max_bytes:
            self._finish(Ending.TOO_LARGE, deadline)
            return
        self.complete = not more
        if more and self._left_s() <= 0:
            self._finish(Ending.TOO_SLOW, deadline)
            return
        deadline.extend(self._timeout_s)
        if self.complete and self._task is None:
            self.whole = WholeBody(chunk, self._note_taken)
            return
        if chunk:
            await self._chunks.put(chunk)
        if not more:
            await self._chunks.put(b"")

    def _left_s(self) -> float:
        return self._pace.left_s(self._tee.size_bytes, self._waited_s)

    def _finish(self, ending: Ending, deadline: Deadline) -> None:
        self.ending = self.ending or ending
        deadline.interrupt()


class WholeBody(httpx.ByteStream):
    """A body that is all there. ``taken`` is called with it each time that a transport takes it."""

    def __init__(self, data: bytes, taken: Callable[[bytes], None]) -> None:
        self._data = data
        self._taken = taken

    def __iter__(self) -> Iterator[bytes]:
        self._taken(self._data)
        yield self._data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._taken(self._data)
        yield self._data


class RequestBody(httpx.AsyncByteStream):
    """The body as the transport reads it; nothing at all where the client announced none, so that no coding is
    invented. Each wait for the client happens inside a ``waiting()`` block."""

    def __init__(self, intake: Intake | None, waiting: Callable[[], AbstractContextManager[None]]) -> None:
        self._intake = intake
        self._waiting = waiting

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = aiter(self._intake.chunks()) if self._intake is not None else None
        while chunks is not None:
            with self._waiting():
                chunk = await anext(chunks, None)
            if chunk is None:
                return
            yield chunk
