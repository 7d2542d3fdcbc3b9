"""A WebSocket bridged between a client and a backend, message by message (RFC 6455).

States: *asking* (the client waits for its handshake) → *open* (two pumps, one for each direction) → *over*. The
handshake with the backend comes first, so that a client is told of a refusal by the status that the backend gave.
Either side's end ends the other with the same code. Nothing is kept and nothing is mirrored. In each direction one
message is under way: a side that does not read stops the other one, and pings find a side that is dead. Extensions are
of one hop and none is spoken: a message that is compressed twice gains nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

from starlette.types import Message, Receive, Scope, Send
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.asyncio.client import ClientConnection, connect
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI
from websockets.frames import EXTERNAL_CLOSE_CODES
from websockets.http11 import Response
from websockets.typing import Subprotocol

from gateway import problem as problems
from gateway.arrival import TARGET_KEY, Arrival
from gateway.condition import Outcome
from gateway.dispatch import Dispatch
from gateway.fields import InvalidAnswer, answer_fields, encode_fields, lower_names, request_fields, values_of
from gateway.forwarding import FieldChange
from gateway.handshake import subprotocols
from gateway.problem import Problem, encode_problem
from gateway.transport.pool import Origin
from shadow.exchange import Headers

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
CLOSE_S = 2.0
GOING_AWAY, BAD_GATEWAY = 1001, 1014

_OWN_FIELDS = frozenset(
    {
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-extensions",
        b"sec-websocket-protocol",
        b"sec-websocket-accept",
        b"content-length",
    }
)


_HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: -\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: %b\r\n\r\n"
)


class ClientSide(WebSocketsSansIOProtocol):
    """uvicorn's side of the client, with an end for clients that take nothing any more, and with refusals that are no
    errors for the log."""

    _refusal_head = b""
    _asked: Scope

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        # uvicorn logs every target with its query, which may hold secrets.
        self.logger = logging.Logger(__name__, logging.WARNING)
        self.logger.parent = logging.getLogger(__name__)

    @classmethod
    def take_over(cls, http: Any) -> None:
        """Take the connection from the HTTP protocol that has read and checked a handshake.

        Only its key goes through the library's parser: that has narrower bounds than ours, and no answer for what
        breaks them.
        """
        http.connections.discard(http)
        side = cls(config=http.config, server_state=http.server_state, app_state=http.app_state)
        side._asked = http.scope
        side.connection_made(http.transport)
        side.data_received(_HANDSHAKE % values_of(http.scope["headers"], b"sec-websocket-key")[0])
        http.transport.set_protocol(side)

    async def run_asgi(self) -> None:
        """Serve the request as it came."""
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope |= {key: self._asked[key] for key in (TARGET_KEY, "path", "raw_path", "query_string", "headers")}
        scope["subprotocols"] = subprotocols(self._asked["headers"])
        await super().run_asgi()

    async def send(self, message: ASGISendEvent) -> None:
        """Send one part of an answer, or one message."""
        if message["type"] == "websocket.http.response.start":
            lines = b"".join(b"%b: %b\r\n" % field for field in message["headers"])
            self._refusal_head = STATUS_LINE[message["status"]] + lines + b"\r\n"
        elif message["type"] == "websocket.http.response.body":
            self._refuse(message["body"])
        else:
            await super().send(message)

    def _refuse(self, body: bytes) -> None:
        """End the handshake with these very bytes: uvicorn's own way would invent fields."""
        if not self.transport.is_closing():
            self.transport.write(self._refusal_head + body)
            self.transport.close()
        self.handshake_complete = self.close_sent = True

    def keepalive_timeout(self) -> None:
        """Break the connection: what waits to be written would keep a mere close waiting."""
        super().keepalive_timeout()
        self.transport.abort()


@dataclass(frozen=True, slots=True)
class Declined:
    """The backend refused the handshake with an answer of its own."""

    status: int
    headers: Headers
    body: bytes


class _Connect(connect):
    """A connection that follows no redirects: they are the client's to see."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class Bridge:
    """One client's WebSocket. ``dispatch`` is lent and ended here; ``added`` are fields of the handshake's answer."""

    def __init__(
        self, arrival: Arrival, change: FieldChange, dispatch: Dispatch, *, date: bytes, added: Headers
    ) -> None:
        self._arrival = arrival
        self._change = change
        self._dispatch = dispatch
        self._date = date
        self._added = added

    async def run(self, scope: Scope, receive: Receive, send: Send, opened: Callable[[], None]) -> str:
        """Bridge to the end; ``opened`` is called when both sides are. Return one word on how it went: ``closed``,
        ``declined``, ``gone`` or the code of a problem."""
        outcome = Outcome.ABANDONED
        try:
            backend = await self._reach(scope, receive)
            match backend:
                case None:
                    return "gone"
                case Problem():
                    outcome = Outcome.FAILURE
                    problem = backend.of_backend(self._dispatch.backend.name)
                    await refuse(problem, self._arrival.id, send, self._date)
                    return backend.code
                case Declined():
                    outcome = Outcome.SUCCESS if backend.status < 500 else Outcome.FAILURE
                    await self._pass_on(backend, send)
                    return "declined"
            outcome = Outcome.SUCCESS
            await self._bridge(backend, receive, send, opened)
            return "closed"
        finally:
            self._dispatch.end(outcome)

    async def _reach(self, scope: Scope, receive: Receive) -> ClientConnection | Declined | Problem | None:
        """Shake hands with the backend; ``None`` when the client left meanwhile."""
        await receive()  # websocket.connect, which says nothing
        asking = asyncio.create_task(self._find_taker(scope), name=f"bridge {self._arrival.id}")
        leaving = asyncio.create_task(_wait_gone(receive), name=f"bridge watch {self._arrival.id}")
        kept = False
        try:
            await asyncio.wait({asking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                return None
            kept = True
            return asking.result()
        finally:
            for task in (asking, leaving):
                task.cancel()
            await asyncio.wait({asking, leaving})
            if not kept:
                await _drop(asking)

    async def _find_taker(self, scope: Scope) -> ClientConnection | Declined | Problem:
        if not self._dispatch.begin():
            return problems.BACKEND_UNAVAILABLE
        while True:
            try:
                return await self._ask(scope)
            except InvalidStatus as error:
                response = error.response
                return Declined(response.status_code, _raw(response), bytes(response.body or b""))
            except TimeoutError:
                return problems.BACKEND_TIMEOUT
            except (InvalidHandshake, InvalidURI, EOFError):
                return problems.BACKEND_PROTOCOL_ERROR
            except OSError:
                if not self._dispatch.retry(replayable=True):
                    return problems.BACKEND_UNREACHABLE

    async def _ask(self, scope: Scope) -> ClientConnection:
        backend, server = self._dispatch.backend, self._dispatch.server
        assert server is not None, "a call was begun"
        fields = request_fields(
            self._arrival.headers,
            authority=server.authority,
            request_id=self._arrival.id,
            credential=backend.credential,
            chunked=False,
            dropped=self._change.dropped | _OWN_FIELDS,
            added=self._change.added,
        )
        url = server.url.copy_with(scheme="wss" if server.url.scheme == "https" else "ws", raw_path=b"/")
        return await _Connect(
            str(url),
            create_connection=_verbatim((server.prefix + self._arrival.target).decode("latin-1")),
            additional_headers=[
                (name.decode("latin-1"), value.decode("latin-1")) for name, value in fields if name != b"host"
            ],
            subprotocols=[Subprotocol(name) for name in scope["subprotocols"]] or None,
            compression=None,
            user_agent_header=None,
            proxy=None,
            open_timeout=backend.connect_timeout_s,
            close_timeout=CLOSE_S,
            max_size=MAX_MESSAGE_BYTES,
            max_queue=1,
            **_way_to(server.origin),
        )

    async def _bridge(
        self, backend: ClientConnection, receive: Receive, send: Send, opened: Callable[[], None]
    ) -> None:
        try:
            headers = self._accepted(backend)
            await send({"type": "websocket.accept", "subprotocol": backend.subprotocol, "headers": headers})
            opened()
            up = asyncio.create_task(_pump_up(receive, backend), name=f"bridge up {self._arrival.id}")
            down = asyncio.create_task(_pump_down(backend, send), name=f"bridge down {self._arrival.id}")
            try:
                await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
                if not down.done() and not up.result():
                    await down  # the backend closed: its code is still on the way to the client
            finally:
                for pump in (up, down):
                    pump.cancel()
                await asyncio.wait({up, down})
        except OSError:
            return  # the client broke off; what is left is to end the backend's side
        finally:
            await backend.close(GOING_AWAY)

    def _accepted(self, backend: ClientConnection) -> list[tuple[bytes, bytes]]:
        assert backend.response is not None, "the handshake is complete"
        fields = self._answer_fields(_raw(backend.response), status=200)
        return [field for field in fields if field[0] not in _OWN_FIELDS]

    def _answer_fields(self, headers: Headers, *, status: int) -> list[tuple[bytes, bytes]]:
        fields = lower_names(headers)
        fields = answer_fields(
            fields, dict(fields), method="GET", status=status, request_id=self._arrival.id, date=self._date,
            added=self._added,
        )  # fmt: skip
        encode_fields(fields)
        return fields

    async def _pass_on(self, declined: Declined, send: Send) -> None:
        try:
            fields = self._answer_fields(declined.headers, status=declined.status)
        except InvalidAnswer:
            problem = problems.BACKEND_PROTOCOL_ERROR.of_backend(self._dispatch.backend.name)
            await refuse(problem, self._arrival.id, send, self._date)
            return
        await _answer(declined.status, fields, declined.body, send)


def _verbatim(target: str) -> type[ClientConnection]:
    """Return what makes a connection that asks for this very target; of a URL the library drops an empty query."""

    def open_connection(protocol: ClientProtocol, **options: Any) -> ClientConnection:
        protocol.uri = replace(protocol.uri, path=target, query="")
        return ClientConnection(protocol, **options)

    return cast(type[ClientConnection], open_connection)


def _way_to(origin: Origin) -> dict[str, Any]:
    """Return what the library is told of the connection besides the URL."""
    if origin.socket_path is not None:
        return {"unix": True, "path": origin.socket_path}
    if origin.context is None:
        return {}
    return {"ssl": origin.context, "server_hostname": origin.name}


async def refuse(problem: Problem, request_id: str, send: Send, date: bytes) -> None:
    """Answer a handshake with a problem instead of an upgrade."""
    fields, body = encode_problem(problem, request_id)
    await _answer(problem.status, [*fields, (b"date", date)], body, send)


async def _answer(status: int, fields: list[tuple[bytes, bytes]], body: bytes, send: Send) -> None:
    framing = [(b"content-length", b"%d" % len(body)), (b"connection", b"close")]
    kept = [field for field in fields if field[0] not in (b"content-length", b"connection")]
    try:
        await send({"type": "websocket.http.response.start", "status": status, "headers": [*kept, *framing]})
        await send({"type": "websocket.http.response.body", "body": body})
    except OSError:
        return  # the client has gone


def _raw(response: Response) -> Headers:
    return tuple(
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in response.headers.raw_items()
    )


async def _wait_gone(receive: Receive) -> None:
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def _drop(asking: asyncio.Task[ClientConnection | Declined | Problem]) -> None:
    """Close a connection that came to be in the moment in which its client left."""
    if not asking.cancelled() and asking.exception() is None:
        found = asking.result()
        if isinstance(found, ClientConnection):
            await found.close(GOING_AWAY)


async def _pump_up(receive: Receive, backend: ClientConnection) -> bool:
    """Carry the client's messages; return whether it was the client who ended."""
    while True:
        message: Message = await receive()
        if message["type"] == "websocket.disconnect":
            await backend.close(_sendable(message.get("code"), GOING_AWAY), message.get("reason") or "")
            return True
        text = message.get("text")
        try:
            await backend.send(text if text is not None else message["bytes"])
        except ConnectionClosed:
            return False


async def _pump_down(backend: ClientConnection, send: Send) -> None:
    """Carry the backend's messages, and at its end its code. Raises ``OSError`` when the client is gone."""
    with suppress(ConnectionClosed):
        async for message in backend:
            key = "text" if isinstance(message, str) else "bytes"
            await send({"type": "websocket.send", key: message})
    code = _sendable(backend.close_code, BAD_GATEWAY)
    await send({"type": "websocket.close", "code": code, "reason": backend.close_reason or ""})


def _sendable(code: int | None, otherwise: int) -> int:
    """Return a close code that may be sent: 1005 and 1006 only say that none was (RFC 6455 section 7.4.1)."""
    if code == 1005:
        return 1000
    return code if code is not None and (code in EXTERNAL_CLOSE_CODES or 3000 <= code < 5000) else otherwise
