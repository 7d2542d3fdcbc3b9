"""Call one backend once with a copy of a request, and say what it did. Nothing is retried and nothing is raised: a call
that fails is an ``Observation`` with its ``Failure``. The only exception that leaves is ``CancelledError``."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import httpx

from shadow.exchange import Body, Exchange, Failure, FailureKind, Headers, Observation, Role
from shadow.failures import failure_kind
from shadow.header_policy import copy_headers, join_target
from shadow.media import is_events, is_stream
from shadow.message import LightRequest
from shadow.rule import ShadowRule
from shadow.servers import Choose, ServerCall, UncountedCall, Way
from shadow.spool import SpooledChunks, is_whole, let_go, spooled
from shadow.tee import ByteBudget, Disk, Tee

MAX_ARRIVALS = 10_000
_SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})


@dataclass(frozen=True, slots=True)
class Target:
    """A backend as the mirror calls it. ``servers`` are base URLs; ``timeout_s`` bounds the whole call,
    ``connect_timeout_s`` its connection; ``credential`` is a header name and value, which never appear in a repr.
    ``choose`` picks the server for a call; without it any one does."""

    name: str
    servers: tuple[str, ...]
    timeout_s: float = 30.0
    connect_timeout_s: float = 5.0
    credential: tuple[str, str] | None = field(default=None, repr=False)
    choose: Choose | None = field(default=None, repr=False, compare=False)


class Caller:
    """Makes the calls. The transport is injected and not owned; so are the clock (monotonic seconds) and randomness."""

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport,
        budget: ByteBudget,
        clock: Callable[[], float],
        rng: random.Random,
        disk: Disk | None = None,
    ) -> None:
        self._disk = disk
        self._transport = transport
        self._budget = budget
        self._clock = clock
        self._rng = rng
        self._calls: dict[str, UncountedCall] = {}

    async def observe(self, exchange: Exchange, target: Target, rule: ShadowRule, role: Role) -> Observation:
        """Send the exchange's request to the target and return what came back. Where no server takes a call nobody is
        asked: it then is a failure to connect without a ``server``. Where we have nothing left to connect with it is
        ``cancelled``.

        The answer's bytes are reserved in the budget and belong to the returned body. While the disk is behind the
        answer is not read, for at most the target's timeout again in all; this counts neither against that timeout nor
        as time of the backend's. An answer that no longer fits the budget (or the disk) is read on and kept as hash
        and size only; one over ``rule.max_body_bytes`` is cut and fails as ``too_large``.
        """
        call = self._begin(target)
        if call is None:
            return _unasked(target)
        observation: Observation | None = None
        try:
            observation = await self._observe(exchange, target, rule, role, call.way)
        finally:
            call.end(observation)
        return observation

    async def _observe(self, exchange: Exchange, target: Target, rule: ShadowRule, role: Role, way: Way) -> Observation:
        request = self._build(exchange, target, rule, role, way)
        tee = Tee(self._budget, rule.max_body_bytes, self._disk, hashed=True)
        reading = _Reading(tee, rule.max_body_bytes, self._clock, self._disk, target.timeout_s)
        failure: Failure | None = None
        try:
            async with asyncio.timeout(target.timeout_s) as limit:
                reading.give_time = partial(_give_time, limit)
                reading.stream_s = 2 * (exchange.primary.total_s or 0.0)
                await reading.run(self._transport, request)
        except (TimeoutError, httpx.TransportError, _TooLarge) as error:
            failure = _failure_of(error, answered=reading.status is not None)
            reading.tee.discard()
        except BaseException:
            reading.tee.discard()
            raise
        return await _settled(reading.observation(target.name, way.name, failure))

    def _begin(self, target: Target) -> ServerCall | None:
        if target.choose is not None:
            return target.choose()
        server = target.servers[0] if len(target.servers) == 1 else self._rng.choice(target.servers)
        # Parsing takes as long as all the rest of a request; there are as many servers as the settings ever named.
        call = self._calls.get(server)
        if call is None:
            call = self._calls[server] = UncountedCall(Way(server, httpx.URL(server)))
        return call

    def _build(self, exchange: Exchange, target: Target, rule: ShadowRule, role: Role, way: Way) -> httpx.Request:
        headers = copy_headers(
            exchange.request,
            rule,
            role=role,
            request_id=exchange.id,
            authority=way.authority,
            credential=target.credential,
            parent_id=self._rng.getrandbits(64) or 1,
        )
        # Below the total deadline, so that a black hole is told from a backend that connects and never answers.
        connect_s = min(target.connect_timeout_s, 0.9 * target.timeout_s)
        timeout = {
            "connect": connect_s,
            "read": target.timeout_s,
            "write": target.timeout_s,
            "pool": target.timeout_s,
        }
        # The target goes as an extension because httpx would normalise it as part of a URL.
        raw_target = join_target(way.prefix, exchange.request.target)
        extensions = {**way.extensions, "timeout": timeout, "target": raw_target}
        body = _body_stream(exchange.request.body)
        return LightRequest(exchange.request.method, lambda: way.url, list(headers), body, extensions)


def _body_stream(body: Body) -> httpx.AsyncByteStream:
    chunks = spooled(body)
    return _StoredBody(chunks) if chunks is not None else _KeptBody(body)


class _KeptBody(httpx.AsyncByteStream, httpx.SyncByteStream):
    """The kept chunks as they are, uncopied. A transport may take them all at once, since they are all there."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._body:
            yield chunk


class _StoredBody(httpx.AsyncByteStream):
    """The blocks of a body on disk, read as the transport takes them."""

    def __init__(self, chunks: SpooledChunks) -> None:
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks.blocks()


class _TooLarge(Exception):
    """The answer passed its cap and was cut."""


class _Reading:
    """One answer while it is being read; what was seen stays known when the call fails half-way."""

    def __init__(
        self, tee: Tee, cap_bytes: int, clock: Callable[[], float], disk: Disk | None, patience_s: float
    ) -> None:
        self.tee = tee
        self.status: int | None = None
        self.give_time: Callable[[float], None] = lambda _: None
        self.stream_s = 0.0
        self._headers: Headers = ()
        self._first: dict[bytes, bytes] = {}
        self._cap_bytes = cap_bytes
        self._clock = clock
        self._disk = disk
        self._patience_s = patience_s
        self._started_s = clock()
        self._first_byte_s: float | None = None
        self._arrivals_s: list[float] = []
        self._arrival_bytes: list[int] = []

    async def run(self, transport: httpx.AsyncBaseTransport, request: httpx.Request) -> None:
        self._started_s = self._clock()
        response = await transport.handle_async_request(request)
        try:
            self._first_byte_s = self._elapsed()
            self.status = response.status_code
            self._headers = tuple(response.headers.raw)
            self._first = {name.lower(): value for name, value in reversed(self._headers)}
            await self._read(response)
        finally:
            await response.aclose()

    async def _read(self, response: httpx.Response) -> None:
        media_type = self._field(b"content-type")
        has_events = is_events(media_type)
        if is_stream(media_type):
            self.give_time(self.stream_s)
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for chunk in response.stream:
            if self._disk is not None and self._disk.is_behind and self.tee.lost is None:
                await self._let_catch_up(self._disk)
            self.tee.feed(chunk)
            if has_events and len(self._arrivals_s) < MAX_ARRIVALS:
                self._arrivals_s.append(self._elapsed())
                self._arrival_bytes.append(len(chunk))
            if self.tee.size_bytes > self._cap_bytes:
                raise _TooLarge

    async def _let_catch_up(self, disk: Disk) -> None:
        """Read nothing until the disk has caught up, within the patience: what arrives then is late by our doing."""
        began_s, patience_s = self._clock(), self._patience_s
        self.give_time(patience_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await disk.catch_up()
        paused_s = min(self._clock() - began_s, patience_s)
        self._patience_s -= paused_s
        self._started_s += paused_s
        self.give_time(paused_s - patience_s)

    def observation(self, backend: str, server: str, failure: Failure | None) -> Observation:
        total_s = self._elapsed()
        return Observation(
            backend,
            server,
            self.status,
            self._headers,
            self._body(),
            self._first_byte_s,
            total_s,
            tuple(self._arrivals_s),
            failure,
            tuple(self._arrival_bytes),
        )

    def _body(self) -> Body | None:
        if self.status is None:
            return None
        return self.tee.finish(self._field(b"content-type"), self._field(b"content-encoding"))

    def _field(self, key: bytes) -> str:
        return self._first.get(key, b"").decode("latin-1")

    def _elapsed(self) -> float:
        return self._clock() - self._started_s


def _give_time(limit: asyncio.Timeout, seconds: float) -> None:
    """Move the end of a call. A stream may last longer than another answer: as long as the primary's allows to
    expect; between two parts of it the read timeout holds."""
    end_s = limit.when()
    if end_s is not None:
        limit.reschedule(end_s + seconds)


def _unasked(target: Target) -> Observation:
    failure = Failure(FailureKind.CONNECT, "no server takes requests")
    return Observation(target.name, "", None, (), None, None, 0.0, (), failure)


def _failure_of(error: Exception, *, answered: bool) -> Failure:
    """Name the failure. The detail is the error's class only: messages may hold addresses or parts of the answer."""
    if isinstance(error, httpx.ConnectError) and _is_ours(error):
        return Failure(FailureKind.CANCELLED, "nothing left to connect with")
    kind = FailureKind.TOO_LARGE if isinstance(error, _TooLarge) else failure_kind(error, answered=answered)
    return Failure(kind, type(error).__name__.lstrip("_"))


def _is_ours(error: BaseException | None) -> bool:
    """Whether the system gave this process no file, port or memory: that says nothing about a backend."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _SCARCE:
            return True
        error = error.__cause__ or error.__context__
    return False


async def _settled(observation: Observation) -> Observation:
    """Wait until the answer is all on the disk, where it goes there; keep hash and size only where that failed."""
    body = observation.body
    try:
        whole = await is_whole(body)
    except BaseException:
        let_go(body)
        raise
    if whole or body is None:
        return observation
    let_go(body)
    return replace(observation, body=replace(body, chunks=None, on_disk=False))
