"""uvicorn's protocol on h11, with the bounds and mendings of ``gateway.protocol``: slower, and in Python to the last
line.

h11 hands on a head when it is whole and the next request only after the answer, so there is one head and one answer at
a time. It is more lenient than RFC 9112 asks (both framings, repeated lengths, control characters in values): what it
lets pass goes through ``gateway.head`` like everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import h11
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.h11_impl import H11Protocol

from gateway.arrival import GONE_KEY, LEAVING_KEY, TARGET_KEY
from gateway.guard import Date, Guard, Guarded, reset
from gateway.handshake import is_handshake
from gateway.head import (
    SLICE_BYTES,
    HeadLimits,
    find_fault,
    has_bad_value,
    is_too_large,
    may_continue,
    read_target,
    with_authority,
    without_upgrade,
)
from gateway.problem import (
    BAD_REQUEST,
    CODING_NOT_SUPPORTED,
    HEADERS_TOO_LARGE,
    TARGET_TOO_LONG,
    AnswerAborted,
    Problem,
)


class _CheckedConnection(h11.Connection):
    """A parser that looks at every head. ``target`` is the last request's; ``fault`` is the problem of what it
    refused, where it is a particular one."""

    def __init__(self, limits: HeadLimits) -> None:
        super().__init__(h11.SERVER, limits.whole_bytes)
        self.target = b""
        self.fault: Problem | None = None
        self._limits = limits

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event, a request's target in origin form. Raises ``h11.RemoteProtocolError``."""
        try:
            event = super().next_event()
        except h11.RemoteProtocolError as error:
            self.fault = CODING_NOT_SUPPORTED if error.error_status_hint == CODING_NOT_SUPPORTED.status else None
            raise
        return self._check(event) if isinstance(event, h11.Request) else event

    def _check(self, request: h11.Request) -> h11.Request:
        fields, method, version = list(request.headers), request.method.decode("ascii"), request.http_version.decode()
        target = read_target(method, request.target)
        self.fault = self._measure(request.target, fields) or (target if isinstance(target, Problem) else None)
        self.fault = self.fault or find_fault(version, fields) or (BAD_REQUEST if has_bad_value(fields) else None)
        if self.fault is not None or isinstance(target, Problem):
            raise h11.RemoteProtocolError("the head is refused")
        self.target = target.raw
        if target.authority is None and version != "1.0":
            return request
        if target.authority is not None:
            fields = with_authority(fields, target.authority)
        if version == "1.0":
            fields = without_upgrade(fields)
        return h11.Request(method=method, target=target.raw, headers=fields, http_version=version)

    def _measure(self, target: bytes, fields: list[tuple[bytes, bytes]]) -> Problem | None:
        if len(target) > self._limits.target_bytes:
            return TARGET_TOO_LONG
        return HEADERS_TOO_LARGE if is_too_large(fields, self._limits) else None


class BoundedH11Protocol(Guarded, H11Protocol):
    """One connection. ``gateway.protocol.bounded_protocol`` makes one with the gateway's parts."""

    limits: HeadLimits
    takes_websocket: Callable[[bytes], bool]
    date: Date
    note_stray: Callable[[str], None]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._app = cast(ASGIApp, self.app)
        self.app = cast(ASGI3Application, self._serve)
        self.conn = self._checked = _CheckedConnection(self.limits)
        self._guard = Guard(self.loop, self.limits, self.date, self._refuse)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, a head in slices, so that no single read can carry it past its bound."""
        rest = data
        while rest and not self.transport.is_closing():
            if self._guard.refused:
                self._guard.ignore(rest)
                return
            if self._awaits_head:
                self._guard.wait_for_head()
                if not self.conn.trailing_data[0]:
                    rest = rest.lstrip(b"\r\n")  # empty lines before a request (RFC 9112 section 2.2)
            piece = rest[:SLICE_BYTES] if self._awaits_head else rest
            rest = rest[len(piece) :]
            if piece:
                super().data_received(piece)
                self._guard.head_begun = self._awaits_head
        self._watch_if_paused()

    def on_response_complete(self) -> None:
        """Go on to the next request, of which a part may be there."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._guard.watch_unread()
        elif self.conn.their_state is h11.SEND_BODY and not self._is_serving:
            self._guard.part()
        self._watch_if_paused()
        if self._awaits_head and self.conn.trailing_data[0]:
            self._guard.head_begun = True
            self._guard.wait_for_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what could not be parsed; uvicorn calls this for every error of the parser."""
        kept, fault = self.conn.trailing_data[0], self._checked.fault
        if fault is None and len(kept) > self.limits.whole_bytes:
            in_target = b"\n" not in kept and not self._is_serving
            fault = TARGET_TOO_LONG if in_target else HEADERS_TOO_LARGE
        self._refuse(fault or BAD_REQUEST)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        """Pass the connection on to the WebSocket protocol; nothing comes here any more."""
        self._guard.let_go()
        cast(Any, self.ws_protocol_class).take_over(self)

    def timeout_keep_alive_handler(self) -> None:
        """Close, because the connection was idle for too long."""
        super().timeout_keep_alive_handler()
        self._guard.watch_unread()

    def shutdown(self) -> None:
        """Begin to end, because the server drains: at once when nothing is under way."""
        if self._guard.refused:  # the parser would wait for the answer to what was refused
            self.transport.close()
        else:
            super().shutdown()
        self._guard.say_goodbye(self.transport)

    def _watch_if_paused(self) -> None:
        if self.flow.read_paused:
            self._guard.watch(lambda: self.flow.read_paused)

    @property
    def _awaits_head(self) -> bool:
        return self.conn.their_state is h11.IDLE

    def _should_upgrade(self) -> bool:
        # uvicorn asks this between a head and its request, and nothing else there.
        self._guard.end_of_head()
        self.scope[TARGET_KEY] = self._checked.target  # type: ignore[literal-required]
        self.scope[GONE_KEY] = self.transport.is_closing  # type: ignore[literal-required]
        self.scope[LEAVING_KEY] = self._guard.leaving  # type: ignore[literal-required]
        method = self.scope["method"]
        return is_handshake(method, self.headers) and self.takes_websocket(self._checked.target)

    @property
    def _is_serving(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, problem: Problem) -> None:
        if not (self._is_serving or self._guard.refused):
            self.note_stray(problem.code)
        self._guard.refuse(problem, silently=self._is_serving and self.cycle.response_started)
        if self._is_serving:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        cycle = self.cycle
        if not may_continue(scope["http_version"], scope["headers"]):
            cycle.waiting_for_100_continue = False
        try:
            await self._app(scope, receive, send)
        except AnswerAborted:
            cycle.disconnected = True
            if scope["http_version"] == "1.0":
                reset(self.transport)  # an orderly end could make the answer whole
            else:
                self.transport.close()
                self._guard.watch_unread()
