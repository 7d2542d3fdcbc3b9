"""uvicorn's HTTP/1.1 protocol on httptools with the bounds that it lacks.

Per connection there is at most one head being read. It is bounded in bytes, in fields, in the length of the target and
in time; trailers are bounded in bytes. A head that breaks a bound, or is no HTTP, is answered with a problem and the
connection closed: after the answers to the requests before it. A body that is no HTTP ends its own answer.

Also mended here, because uvicorn has no other place for it: trailers are not appended to the request's headers after
the fact; the raw target is left in the scope; 100 Continue goes only to who may get it; a timer for an idle connection
is set once and not for every request. The answers are the cycle's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import unquote

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.alarm import Alarm
from gateway.arrival import GONE_KEY, LEAVING_KEY, TARGET_KEY
from gateway.cycle import BoundedCycle
from gateway.guard import Date, Guard, Guarded
from gateway.handshake import is_handshake
from gateway.head import (
    SLICE_BYTES,
    HeadLimits,
    expects,
    find_fault,
    is_too_large,
    may_continue,
    read_target,
    with_authority,
    without_upgrade,
)
from gateway.problem import BAD_REQUEST, HEADERS_TOO_LARGE, TARGET_TOO_LONG, Problem
from gateway.protocol_h11 import BoundedH11Protocol


class _HeadRefused(Exception):
    """Leaves a parser callback; the parser turns it into its own error."""


class BoundedProtocol(Guarded, HttpToolsProtocol):
    """One connection. Use ``bounded_protocol`` for other limits than the defaults."""

    limits: HeadLimits
    takes_websocket: Callable[[bytes], bool]
    date: Date
    note_stray: Callable[[str], None]
    cycle: BoundedCycle

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._guard = Guard(self.loop, self.limits, self.date, self._end_of_time)
        self._idle = Alarm(self.loop, self.timeout_keep_alive_handler)
        self._in_head = True
        self._bridged = False
        self._is_stopped = False
        self._head_is_known = False
        self._silent_bytes = 0
        self._refusal: Problem | None = None
        self._broken: Problem | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        super().connection_lost(exc)
        self._idle.close()
        del self.parser  # it holds the protocol: nothing is to wait for the garbage collector

    def data_received(self, data: bytes) -> None:
        """Feed the parser, a head in slices."""
        rest: bytes | memoryview = data if len(data) <= SLICE_BYTES else memoryview(data)
        while rest and not self.transport.is_closing():
            if self._guard.refused or self._broken is not None:
                self._guard.ignore(rest)
                return
            piece = rest[:SLICE_BYTES] if self._in_head else rest
            self._silent_bytes += len(piece)
            rest = rest[self._feed(piece) :]
            if self._silent_bytes > self.limits.total_bytes:  # neither head nor trailers may go on for so long
                self._refuse(HEADERS_TOO_LARGE)
            elif self._in_head and (self._guard.head_begun or (self._silent_bytes and not self._is_answering())):
                self._guard.wait_for_head()  # an empty line begins no message, but is more than nothing
        if self.flow.read_paused:
            self._guard.watch(self._is_paused)

    def _feed(self, piece: bytes | memoryview) -> int:
        """Let the parser take the piece; return how much of it is done with."""
        self._idle.unset()
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserError as error:
            self.logger.warning("Invalid HTTP request received.")
            self.send_400_response(str(error))
        except httptools.HttpParserUpgrade as stop:
            if not self._bridged:
                self._go_on_without_upgrade()
                return int(stop.args[0])
            self.handle_websocket_upgrade()
        return len(piece)

    def _go_on_without_upgrade(self) -> None:
        """Read on with a parser that never saw the Upgrade field. The one that did takes everything after the head,
        also the body, for another protocol; but that was not granted (RFC 9110 section 7.8)."""
        framing = [field for field in self.headers if field[0] in (b"content-length", b"transfer-encoding")]
        lines = b"".join(b"%b: %b\r\n" % field for field in framing)
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn sets it
        self._head_is_known = True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % lines)

    def on_message_begin(self) -> None:
        """Begin a head."""
        if self._head_is_known:
            return
        super().on_message_begin()
        self._in_head = self._guard.head_begun = True

    def on_url(self, url: bytes) -> None:
        """Take a piece of the target."""
        if self._head_is_known:
            return
        self._silent_bytes = 0
        self.url += url
        if len(self.url) > self.limits.target_bytes:
            self._refusal = TARGET_TOO_LONG
            raise _HeadRefused

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field; one that comes after the head is a trailer, or known, and is dropped. The white space that the
        parser leaves after a value is none of it (RFC 9110 section 5.5): it would make a caller look like another."""
        if self._in_head:
            self.headers.append((name.lower(), value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """Start the request, or queue it behind those before it."""
        if self._head_is_known:
            self._head_is_known = False
            return
        self._in_head, self._silent_bytes = False, 0
        self._guard.end_of_head()
        version = self.parser.get_http_version()
        self._check_head(version)
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[TARGET_KEY] = self.url
        scope[GONE_KEY] = self.transport.is_closing
        scope[LEAVING_KEY] = self._guard.leaving
        if self.parser.should_upgrade():
            # Not before all answers are given: whatever came next would be taken for one of them.
            is_next = is_handshake(scope["method"], self.headers) and not self._is_answering()
            self._bridged = is_next and self.takes_websocket(self.url)
            self._is_stopped = not self._bridged
        if self._bridged:
            return
        before = self.cycle
        self.cycle = self._new_cycle(version)
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _check_head(self, version: str) -> None:
        method = self.parser.get_method().decode("ascii")
        target = read_target(method, self.url)
        fault = target if isinstance(target, Problem) else find_fault(version, self.headers)
        if is_too_large(self.headers, self.limits):
            fault = HEADERS_TOO_LARGE
        if fault is not None:
            self._refusal = fault
            raise _HeadRefused
        assert not isinstance(target, Problem), "that is a fault"
        self.url = target.raw
        if target.authority is not None:
            self.headers[:] = with_authority(self.headers, target.authority)
        if version == "1.0":
            self.headers[:] = without_upgrade(self.headers)
        scope, (path, _, query) = self.scope, self.url.partition(b"?")
        text = path.decode("ascii")
        scope["method"], scope["http_version"] = method, version
        scope["path"] = unquote(text) if "%" in text else text
        scope["raw_path"], scope["query_string"] = path, query

    def _new_cycle(self, version: str) -> BoundedCycle:
        return BoundedCycle(
            self.scope,
            self.transport,
            self.flow,
            self.logger,
            self.loop,
            self.tasks,
            expects(self.headers) and may_continue(version, self.headers),
            version != "1.0" and self.parser.should_keep_alive(),
            self.on_response_complete,
        )

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.tasks.add(self.loop.create_task(cycle.run_asgi(app)))

    def handle_websocket_upgrade(self) -> None:
        """Pass the connection on to the WebSocket protocol; nothing comes here any more."""
        self._idle.close()
        self._guard.let_go()
        cast(Any, self.ws_protocol_class).take_over(self)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._silent_bytes = 0
        if self._bridged or self.cycle.response_complete:
            return
        self.cycle.take(body)
        if self.cycle.is_full:
            self.flow.pause_reading()

    def on_message_complete(self) -> None:
        """End the request's side."""
        if self._is_stopped:  # not its end: the parser is about to stop, and another will read the body
            self._is_stopped = False
            return
        self._silent_bytes = 0
        self._in_head = True
        if not self._bridged and not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def _unset_keepalive_if_required(self) -> None:
        self._idle.unset()

    def shutdown(self) -> None:
        """Begin to end, because the server drains: at once when nothing is under way."""
        super().shutdown()
        self._guard.say_goodbye(self.transport)

    def send_400_response(self, msg: str) -> None:
        """Refuse what could not be parsed; uvicorn calls this for every error of the parser."""
        self._refuse(self._refusal or BAD_REQUEST)

    def on_response_complete(self) -> None:
        """Go on to the next request, or to the refusal of what came in its place."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._guard.watch_unread()
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self.cycle.more_body:
            self._guard.part()
        else:
            self._idle.set(self.timeout_keep_alive)
        if self._broken is not None and self.cycle.response_complete:
            self._guard.refuse(self._broken)

    def timeout_keep_alive_handler(self) -> None:
        """Close, because the connection was idle for too long."""
        super().timeout_keep_alive_handler()
        self._guard.watch_unread()

    def _end_of_time(self, problem: Problem) -> None:
        if self.flow.read_paused:  # by us: the rest of the head may be there
            self._guard.wait_for_head()
        else:
            self._refuse(problem)

    def _refuse(self, problem: Problem) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self._note_stray(problem)
            self._guard.refuse(problem)
        elif self._in_head:
            self._note_stray(problem)
            self._broken = self._broken or problem  # after the answers to what came before it
            self._guard.end_of_head()
        else:
            begun = bool(self.pipeline) or self.cycle.response_started
            self._guard.refuse(problem, silently=begun)
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def _note_stray(self, problem: Problem) -> None:
        if not self._guard.refused and self._broken is None:
            self.note_stray(problem.code)

    def _is_paused(self) -> bool:
        return self.flow.read_paused

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete


def bounded_protocol(
    limits: HeadLimits,
    takes_websocket: Callable[[bytes], bool],
    date: Date,
    note_stray: Callable[[str], None],
    parser: str = "httptools",
) -> type[asyncio.Protocol]:
    """Return the protocol class on this parser, ``httptools`` or ``h11``, with these limits. ``takes_websocket`` says
    for a raw target whether a WebSocket may be opened there; ``date`` returns the time as a Date field has it;
    ``note_stray`` is told the code of the problem with which a head was refused that never became a request."""
    base = {"httptools": BoundedProtocol, "h11": BoundedH11Protocol}[parser]
    members = {
        "limits": limits,
        "takes_websocket": staticmethod(takes_websocket),
        "date": staticmethod(date),
        "note_stray": staticmethod(note_stray),
    }
    return type(base.__name__, (base,), members)
