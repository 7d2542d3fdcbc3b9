"""A request as it came to the door: read once from the server's scope into a frozen value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from starlette.types import Scope

from gateway.fields import list_members, values_of
from shadow.exchange import Headers

COPY_MARKERS = frozenset({b"x-crossfade-shadow", b"x-crossfade-control"})
TARGET_KEY = "crossfade.target"
"""Where the protocol leaves the raw request-target in the scope; the standard keys lose the difference of ``/q`` and
``/q?``."""

GONE_KEY = "crossfade.is_gone"
"""Where the protocol leaves a function that says whether the client's connection has ended; asking takes no byte of the
body, as ``receive()`` would."""


def _never() -> bool:
    return False


LEAVING_KEY = "crossfade.leaving"
"""Where the protocol leaves its connection's ``Leaving`` in the scope; other servers leave none."""

ANSWER_KEY = "crossfade.answer"
"""Where the protocol leaves a function that sends a whole answer (its status, its fields, the lines that were made of
them, its body) without waiting; it returns whether it did."""


def no_answer_yet(status: int, fields: Sequence[tuple[bytes, bytes]], lines: bytes, body: bytes) -> bool:
    """Say that the answer was not sent, for servers that leave no such function."""
    return False


WHOLE_KEY = "crossfade.whole"
"""Where the protocol leaves a function that returns the whole body if it is there already, else ``None``; what it
returned is received."""


def no_body_yet() -> bytes | None:
    """Say that the body is not there, for servers that leave no such function."""
    return None


LINES_KEY = "crossfade.lines"
"""Where the start of an answer may have its fields as the lines that were made of them."""


class Leaving:
    """Tells whoever listens, once, that the client's connection is gone."""

    def __init__(self) -> None:
        self._is_gone = False
        self._listeners: dict[object, Callable[[], None]] = {}

    def listen(self, owner: object, listener: Callable[[], None]) -> None:
        """Call the listener when the client goes; at once if it has gone."""
        if self._is_gone:
            listener()
        else:
            self._listeners[owner] = listener

    def forget(self, owner: object) -> None:
        """Do not call this owner's listener any more."""
        self._listeners.pop(owner, None)

    def tell(self) -> None:
        """Say that the client has gone."""
        self._is_gone = True
        while self._listeners:
            self._listeners.popitem()[1]()


class Arrival:
    """The head of one request. ``id`` is the gateway's own; ``target`` is in origin form; ``path`` is its raw path.

    Header names are lower case, as the server below delivers them; everything else is as it crossed the wire. Nothing
    of it changes but that the door takes the API key out. ``first`` holds the first value of each name: most questions
    are for fields that are not there, and it answers them.
    """

    __slots__ = (
        "codings", "content_length", "first", "headers", "id", "is_gone", "method", "path", "peer", "received_at",
        "scheme", "target",
    )  # fmt: skip

    def __init__(
        self,
        id: str,  # noqa: A002
        received_at: datetime,
        method: str,
        target: bytes,
        path: bytes,
        headers: Headers,
        peer: str | None,
        content_length: int | None,
        codings: tuple[bytes, ...],
        scheme: str = "http",
        is_gone: Callable[[], bool] = _never,
        first: Mapping[bytes, bytes] | None = None,
    ) -> None:
        self.id = id
        self.received_at = received_at
        self.method = method
        self.target = target
        self.path = path
        self.headers = headers
        self.peer = peer
        self.content_length = content_length
        self.codings = codings
        self.scheme = scheme
        self.is_gone = is_gone
        self.first = _first(headers) if first is None else first

    def drop_key(self, headers: Headers) -> None:
        """Leave only these fields: those without the gateway's API key, which nobody may see from now on."""
        self.headers, self.first = headers, _first(headers)

    def values_of(self, name: bytes) -> list[bytes]:
        """Return the values of all fields with this lower-case name, in order."""
        return values_of(self.headers, name) if name in self.first else []

    def first_value(self, name: bytes) -> str:
        """Return the first value of the field as Latin-1 text, empty when there is none."""
        return self.first.get(name, b"").decode("latin-1")

    @property
    def has_body(self) -> bool:
        """Whether a body follows the head (RFC 9112 section 6.3)."""
        return bool(self.content_length) or bool(self.codings)

    @property
    def announced_bytes(self) -> int | None:
        """How long the body will be; ``None`` when that is not known before its end."""
        return None if self.codings else self.content_length or 0

    @property
    def wants_upgrade(self) -> bool:
        """Whether the client asks for a protocol that changes what the request means: a tunnel or WebSocket.

        A matter of whole tokens, not of substrings. Any other upgrade, such as the h2c that some clients always offer,
        may be ignored (RFC 9110 section 7.8): its fields are dropped and the request is served.
        """
        if self.method == "CONNECT":
            return True
        if b"upgrade" not in self.first:
            return False
        asked = b"upgrade" in list_members(self.headers, b"connection")
        return asked and b"websocket" in list_members(self.headers, b"upgrade")

    @property
    def is_copy(self) -> bool:
        """Whether a mirror sent this request, this gateway's own or another's."""
        return not COPY_MARKERS.isdisjoint(self.first)

    @property
    def preflight_for(self) -> str | None:
        """The method that a CORS preflight asks about, ``None`` when this is no preflight.

        A preflight has an origin and no body (Fetch standard, section 4.8). It is not limited, so nothing else may pass
        as one.
        """
        if self.method != "OPTIONS" or self.has_body or not self.values_of(b"origin"):
            return None
        return self.first_value(b"access-control-request-method") or None

    @property
    def client_request_id(self) -> str:
        """What the client called its request; empty when it did not."""
        return self.first_value(b"x-request-id")


def read_arrival(scope: Scope, *, request_id: str, received_at: datetime) -> Arrival:
    """Read the head from an ASGI scope whose framing the server has checked."""
    headers: Headers = tuple(scope["headers"])
    first = _first(headers)
    length = first.get(b"content-length")
    client = scope.get("client")
    return Arrival(
        request_id,
        received_at,
        scope.get("method", "GET"),  # a WebSocket's handshake has no other
        _origin_form(scope),
        scope["raw_path"],
        headers,
        client[0] if client else None,
        int(length) if length is not None else None,
        tuple(list_members(headers, b"transfer-encoding")) if b"transfer-encoding" in first else (),
        scope.get("scheme") or "http",
        scope.get(GONE_KEY, _never),
        first,
    )


def _first(headers: Headers) -> dict[bytes, bytes]:
    return dict(headers[::-1])


def _origin_form(scope: Scope) -> bytes:
    target: bytes = scope.get(TARGET_KEY, b"")
    if target.startswith(b"/"):
        return target
    query: bytes = scope["query_string"]
    path: bytes = scope["raw_path"]
    return path + b"?" + query if query else path
