"""One request's way through one backend and its answer's way back, as it streams.

States: *asking* (no byte of an answer) → *answering* (the client has the status line) → *done*. A failure while asking
becomes a problem for the client. A failure while answering cannot: the passage is then ``aborted`` and the caller must
break the client's connection. In every case ``observe`` says afterwards what the backend did. The only exceptions that
leave ``run`` are cancellation and defects.

At one server it retries once, where nothing can have been executed twice to harm: an idempotent method without a body,
on a connection that was reused and turned out to be closed (RFC 9110 section 9.2.2, RFC 9112 section 9.3.1). Whether
another server or the other backend is asked is ``Dispatch``'s to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import AsyncGeneratorType
from typing import Any

import httpx
from starlette.types import Send

from gateway import problem as problems
from gateway.alarm import Alarms
from gateway.arrival import LINES_KEY, no_answer_yet
from gateway.condition import UNABLE, Outcome
from gateway.connecting import ConnectionTrace
from gateway.deadline import Deadline
from gateway.dispatch import Dispatch
from gateway.errand import Errand, request_of
from gateway.fields import (
    Fields,
    InvalidAnswer,
    answer_fields,
    claims_body,
    encode_fields,
    has_no_body,
    lower_names,
)
from gateway.intake import Ending, Intake, RequestBody
from gateway.problem import Problem
from shadow.exchange import Failure, FailureKind, Headers, Observation
from shadow.failures import failure_kind
from shadow.media import is_events, is_stream
from shadow.tee import Tee

MAX_ARRIVALS = 10_000

FALLBACK_MARK = (b"x-crossfade-fallback", b"1")

_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE"})
_PROBLEM_OF = {
    FailureKind.CONNECT: problems.BACKEND_UNREACHABLE,
    FailureKind.TIMEOUT: problems.BACKEND_TIMEOUT,
    FailureKind.RESET: problems.BACKEND_RESET,
    FailureKind.PROTOCOL: problems.BACKEND_PROTOCOL_ERROR,
}


class Passage:
    """Carries out one errand. The transport, the dispatch, the tee of the answer, the intake and the alarms are lent;
    ``clock`` is monotonic seconds.

    ``answering`` says whether the client has got, or is getting, the status line of a backend's answer."""

    _client_turn = False
    _asked = 0
    _client_holds = 0
    _held_since_s = 0.0
    _status: int | None = None
    _headers: Headers = ()
    _media_type = ""
    _content_encoding = ""
    _first_byte_s: float | None = None
    _total_s: float | None = None
    _held: dict[str, Any] | None = None
    _last = b""
    _failure: Failure | None = None
    _delivered = False
    answering = False

    def __init__(
        self,
        errand: Errand,
        transport: httpx.AsyncBaseTransport,
        dispatch: Dispatch,
        intake: Intake,
        tee: Tee,
        send: Send,
        clock: Callable[[], float],
        alarms: Alarms,
        answer_at_once: Callable[[int, Fields, bytes, bytes], bool] = no_answer_yet,
    ) -> None:
        self._errand = errand
        self._transport = transport
        self._dispatch = dispatch
        self._intake = intake
        self._tee = tee
        self._send = send
        self._clock = clock
        self._started_s = clock()
        self._deadline = Deadline(alarms)
        self._answer_at_once = answer_at_once
        self._arrivals_s: list[float] = []
        self._arrival_bytes: list[int] = []

    @property
    def aborted(self) -> bool:
        """Whether the client got a part of an answer that will not be completed: because the backend failed, or the
        client did not take the last of it."""
        return self.answering and not self._delivered

    async def run(self) -> Problem | None:
        """Stream the request up and the answer down; return the problem to answer with, if any."""
        self._started_s = self._clock()
        if not self._dispatch.begin():
            self._fail(FailureKind.CONNECT, "no server takes requests")
            return problems.BACKEND_UNAVAILABLE
        problem: Problem | None = None
        try:
            with self._deadline:
                await self._intake.begin(self._deadline)
                self._started_s = self._clock()
                try:
                    await self._exchange()
                finally:
                    await self._intake.end()
        except TimeoutError:
            problem = self._end_of_time()
        except (httpx.TransportError, InvalidAnswer) as error:
            problem = self._fail(failure_kind(error, answered=self._status is not None), type(error).__name__)
            if isinstance(error, httpx.PoolTimeout):
                self._dispatch.end(Outcome.ABANDONED)
                problem = problems.GATEWAY_BUSY
        if not self._delivered:
            self._dispatch.end(self._outcome())
        self._end_attempt()
        if self._failure is not None:
            self._total_s = self._elapsed_s()
            self._tee.discard()
        return None if self.answering else problem

    def observe(self) -> Observation:
        """Return what the backend did. Call it once, after ``run``: it passes the kept bytes on."""
        body, server = None, self._dispatch.server
        if self._status is not None:
            body = self._tee.finish(self._media_type, self._content_encoding)
        return Observation(
            self._dispatch.backend.name,
            server.name if server is not None else "",
            self._status,
            self._headers,
            body,
            self._first_byte_s,
            self._total_s,
            tuple(self._arrivals_s),
            self._failure,
            tuple(self._arrival_bytes),
        )

    def abandon(self) -> None:
        """Note that the passage was cut short from outside; ``observe`` then says so."""
        self._dispatch.end(Outcome.ABANDONED)
        if self._failure is None and self._total_s is None:
            self._fail(FailureKind.CANCELLED, "cut short")
            self._tee.discard()

    async def _exchange(self) -> None:
        response = await self._find_taker()
        self._intake.settle()
        try:
            self._first_byte_s = self._elapsed_s()
            self._status = response.status_code
            self._headers = tuple(response.headers.raw)
            await self._answer(response)
        finally:
            await response.aclose()
            self._errand.release()
        self._total_s = self._total_s or self._end_s()
        self._dispatch.end(self._outcome())
        # Only after the backend's connection is free again: the client's next request may follow on its heels.
        if self._held is None or not self._send_whole(self._held):
            await self._to_client({"type": "http.response.body", "body": self._last})
        self._delivered = True

    async def _find_taker(self) -> httpx.Response:
        """Ask one server after the other, as far as the dispatch goes, and return the first answer to pass on."""
        while True:
            try:
                response = await self._ask()
            except (httpx.ConnectError, httpx.ConnectTimeout):
                if not self._dispatch.retry(replayable=self._intake.replayable):
                    raise
                self._errand.trace.end_attempt(None, FailureKind.CONNECT.value)
            else:
                if not _declines(response):
                    return response
                if not self._dispatch.yield_to_spare(replayable=self._intake.replayable):
                    return response
                self._errand.trace.end_attempt(response.status_code, None)
                await response.aclose()
            if self._dispatch.fell_back:
                self._started_s = self._held_since_s = self._clock()
            self._deadline.extend(self._dispatch.backend.timeout_s)

    async def _ask(self) -> httpx.Response:
        arrival = self._errand.arrival
        connection = ConnectionTrace(self._deadline)
        try:
            return await self._transport.handle_async_request(self._request(connection))
        except (httpx.NetworkError, httpx.RemoteProtocolError):
            if connection.fresh or arrival.has_body or arrival.method not in _IDEMPOTENT:
                raise
            return await self._transport.handle_async_request(self._request(connection))
        finally:
            self._deadline.release()

    def _end_attempt(self) -> None:
        failure = self._failure.kind.value if self._failure is not None else None
        self._errand.trace.end_attempt(self._status, failure)

    def _request(self, connection: ConnectionTrace) -> httpx.Request:
        body = self._intake.whole or RequestBody(self._intake, self._clients_time)
        self._asked += 1
        return request_of(self._errand, self._dispatch, body, connection, resends=self._asked - 1)

    async def _answer(self, response: httpx.Response) -> None:
        arrival, status, stream = self._errand.arrival, response.status_code, response.stream
        assert isinstance(stream, httpx.AsyncByteStream)
        fields = lower_names(self._headers)
        first = dict(fields[::-1])
        self._media_type = first.get(b"content-type", b"").decode("latin-1")
        self._content_encoding = first.get(b"content-encoding", b"").decode("latin-1")
        fields = answer_fields(
            fields,
            first,
            method=arrival.method,
            status=status,
            request_id=arrival.id,
            date=self._errand.date,
            added=(FALLBACK_MARK, *self._errand.added) if self._dispatch.fell_back else self._errand.added,
        )
        start: dict[str, Any] = {"type": "http.response.start", "status": status, "headers": fields}
        start[LINES_KEY] = encode_fields(fields)
        if getattr(stream, "is_whole", False):
            self._held = start  # what follows is there already: they go together
        else:
            await self._to_client(start)
        if status == 204 and claims_body(self._headers):
            return  # what follows would be taken for the next answer: left unread, the connection is not used again
        await self._pass_on(stream, hollow=has_no_body(arrival.method, status))
        self._total_s = self._end_s()

    async def _pass_on(self, stream: httpx.AsyncByteStream, *, hollow: bool) -> None:
        is_endless = is_stream(self._media_type)
        take_ready: Callable[[], bytes] = getattr(stream, "take_ready", _nothing_ready)
        while chunk := take_ready():  # what is there needs no waiting for
            await self._pass_one(stream, chunk, is_endless, hollow)
        if getattr(stream, "is_read", False):
            return
        chunks = aiter(stream)
        try:
            async for chunk in chunks:
                await self._pass_one(stream, chunk, is_endless, hollow)
        finally:
            # Left to the garbage collector, a half-read generator would be closed by a task that nobody owns.
            if isinstance(chunks, AsyncGeneratorType):
                await chunks.aclose()

    async def _pass_one(self, stream: httpx.AsyncByteStream, chunk: bytes, is_endless: bool, hollow: bool) -> None:
        if is_endless:
            self._deadline.extend(self._stream_left_s())
        self._tee.feed(chunk)
        if is_endless and len(self._arrivals_s) < MAX_ARRIVALS and is_events(self._media_type):
            self._arrivals_s.append(self._elapsed_s())
            self._arrival_bytes.append(len(chunk))
        if not chunk or hollow:
            return
        if getattr(stream, "is_read", False):
            self._last = chunk  # nothing follows it: it goes with the end
        else:
            await self._to_client({"type": "http.response.body", "body": chunk, "more_body": True})

    def _stream_left_s(self) -> float:
        """Return how long the next part of a stream may take: it has no end that could be waited for."""
        backend = self._dispatch.backend
        if backend.stream_max_s is None:
            return backend.timeout_s
        return min(backend.timeout_s, backend.stream_max_s - self._elapsed_s())

    async def _to_client(self, message: dict[str, Any]) -> None:
        """Send it, after what is held back, on the client's time: what a slow client takes is not the backend's, but it
        is bounded all the same."""
        self._deadline.lend(self._dispatch.backend.timeout_s)
        self._client_turn = True
        self.answering = True
        self._begin_clients_time()
        try:
            if self._held is not None:
                held, self._held = self._held, None
                await self._send(held)
            await self._send(message)
        finally:
            self._end_clients_time()
        self._client_turn = False
        self._deadline.take_back()

    def _send_whole(self, start: dict[str, Any]) -> bool:
        """Send what is held back and the last of the body at once; false where the client has to be waited for."""
        self.answering = True
        return self._answer_at_once(start["status"], start["headers"], start[LINES_KEY], self._last)

    def _end_of_time(self) -> Problem | None:
        match self._intake.ending:
            case Ending.GONE:
                self._fail(FailureKind.CANCELLED, "the client left")
                return None
            case Ending.TOO_LARGE:
                self._fail(FailureKind.CANCELLED, "the request was too large")
                return problems.BODY_TOO_LARGE
            case Ending.TOO_SLOW:
                self._fail(FailureKind.CANCELLED, "the client sent too slowly")
                return problems.BODY_TIMEOUT
        if self._client_turn:
            self._fail(FailureKind.CANCELLED, "the client did not read")
            return None
        if self._intake.starved:
            self._fail(FailureKind.CANCELLED, "the client did not send")
            return problems.BODY_TIMEOUT
        return self._fail(FailureKind.TIMEOUT, "total")

    def _fail(self, kind: FailureKind, detail: str) -> Problem | None:
        # A whole answer stays one, even if the client left before its last byte was with it.
        if self._total_s is None:
            self._failure = Failure(kind, detail)
        return _PROBLEM_OF.get(kind)

    @contextmanager
    def _clients_time(self) -> Iterator[None]:
        """Leave the time inside out of the durations: a slow upload or a slow reader is not the backend's doing. Blocks
        may overlap (an early answer while the upload still runs); the time counts once."""
        self._begin_clients_time()
        try:
            yield
        finally:
            self._end_clients_time()

    def _begin_clients_time(self) -> None:
        if self._client_holds == 0:
            self._held_since_s = self._clock()
        self._client_holds += 1

    def _end_clients_time(self) -> None:
        self._client_holds -= 1
        if self._client_holds == 0:
            self._started_s += self._clock() - self._held_since_s

    def _outcome(self) -> Outcome:
        if self._failure is None and self._status is not None:
            return Outcome.FAILURE if self._status in UNABLE else Outcome.SUCCESS
        if self._failure is None or self._failure.kind is FailureKind.CANCELLED:
            return Outcome.ABANDONED
        return Outcome.NO_CONNECTION if self._failure.kind is FailureKind.CONNECT else Outcome.FAILURE

    def _end_s(self) -> float:
        # What the client took of the time in between is left out, so that the end could seem to precede the first byte.
        return max(self._elapsed_s(), self._first_byte_s or 0.0)

    def _elapsed_s(self) -> float:
        return self._clock() - self._started_s


def _declines(response: httpx.Response) -> bool:
    """Say whether the answer means that the request was not taken (RFC 9110 section 15.6.4 with 10.2.3)."""
    return response.status_code == 503 and "retry-after" in response.headers


def _nothing_ready() -> bytes:
    """Say that nothing can be taken without waiting, for streams that have no such method."""
    return b""
