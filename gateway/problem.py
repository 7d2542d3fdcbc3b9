"""Answers of the gateway's own, as RFC 9457 problem+json with a stable ``code``.

    Problem
    ├── the client's fault
    │   ├── bad_request 400            the message is not valid HTTP/1.1
    │   ├── ambiguous_path 400         the path means another route once a backend has decoded it
    │   ├── key_missing 401            the route asks for an API key
    │   ├── key_unknown 401            the API key is nobody's
    │   ├── route_not_allowed 403      the caller's key is not for this route
    │   ├── route_not_found 404        no route has this path
    │   ├── method_not_allowed 405     the route exists, not with this method (Allow)
    │   ├── first_byte_timeout 408     a connection that sends no request
    │   ├── head_timeout 408           a head that does not come to its end in time
    │   ├── body_timeout 408           a body that does not come in time, or too slowly
    │   ├── length_required 411        the route limits bytes, and the body declares no length
    │   ├── cost_exceeds_limit 413     the request costs more than a limit ever admits: waiting does not help
    │   ├── body_too_large 413         more bytes than the route takes
    │   ├── target_too_long 414        a request-target over 16 KiB
    │   ├── rate_limited 429           the caller is over a limit (Retry-After)
    │   ├── concurrency_limited 429    no slot is free, and none became free while it waited (Retry-After)
    │   ├── headers_too_large 431      too many header fields, or too many bytes of them
    │   ├── upgrade_not_supported 501  no protocol is switched here
    │   ├── coding_not_supported 501   a transfer coding other than chunked
    │   └── version_not_supported 505  neither HTTP/1.1 nor HTTP/1.0
    ├── ours
    │   ├── internal_error 500         a defect, logged with the request's id
    │   ├── gateway_busy 503           every connection to the backend is taken
    │   └── limits_unavailable 503     the counters cannot be asked and the policy is ``closed``
    └── upstream's
        ├── backend_unreachable 502    no connection
        ├── backend_unavailable 503    its servers refuse connections, so none was tried (Retry-After)
        ├── backend_reset 502          the connection broke before an answer
        ├── backend_protocol_error 502 what came back is not a valid answer
        └── backend_timeout 504        no whole answer within the backend's time

An answer says what happened and whose ``fault`` that is, names the ``backend`` that was asked as the config does, and
carries the request's id; it never holds an address, an exception or a secret. After
the first byte of a backend's answer no problem can be sent: the connection is aborted instead, so that a cut answer
never looks whole.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from http import HTTPStatus

from starlette.types import Receive, Scope, Send

from shadow.exchange import Headers

LINGER_S = 5.0
LINGER_IDLE_S = 1.0
LINGER_BYTES = 8 * 1024 * 1024
"""How long in all, how long without a byte, and for how many bytes a client that is still sending is listened to after
its refusal."""


class AnswerAborted(ConnectionError):
    """Raised into the server below so that it breaks the connection: a part of an answer was sent and the rest cannot
    be."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of refusal. ``headers`` are fields that belong to it, such as Allow or Retry-After; ``backend`` is the
    name of the one that was asked."""

    status: int
    code: str
    detail: str
    headers: Headers = ()
    backend: str | None = None

    @property
    def fault(self) -> str:
        """Whose fault it is: the ``client``'s, the ``backend``'s, or the ``gateway``'s."""
        if self.code.startswith("backend_"):
            return "backend"
        return "client" if self.status < 500 or self.code.endswith("_not_supported") else "gateway"

    def of_backend(self, name: str) -> Problem:
        """Return the same problem with the backend named, where it is not the client's own."""
        return self if self.fault == "client" else replace(self, backend=name)

    def with_headers(self, headers: Iterable[tuple[bytes, bytes]]) -> Problem:
        """Return the same problem with these fields added."""
        return replace(self, headers=(*self.headers, *headers))


BAD_REQUEST = Problem(400, "bad_request", "The request is not valid HTTP/1.1.")
AMBIGUOUS_PATH = Problem(400, "ambiguous_path", "The path has an encoding that changes which route it belongs to.")
_CHALLENGE = ((b"www-authenticate", b"Bearer"),)  # RFC 9110 section 15.5.2
KEY_MISSING = Problem(401, "key_missing", "An API key is needed here.", _CHALLENGE)
KEY_UNKNOWN = Problem(401, "key_unknown", "The API key is not known.", _CHALLENGE)
ROUTE_NOT_ALLOWED = Problem(403, "route_not_allowed", "The API key is not for this route.")
ROUTE_NOT_FOUND = Problem(404, "route_not_found", "No route has this path.")
METHOD_NOT_ALLOWED = Problem(405, "method_not_allowed", "The route does not take this method.")
FIRST_BYTE_TIMEOUT = Problem(408, "first_byte_timeout", "No request came in time.")
HEAD_TIMEOUT = Problem(408, "head_timeout", "The header section did not come in time.")
BODY_TIMEOUT = Problem(408, "body_timeout", "The body did not come in time.")
LENGTH_REQUIRED = Problem(411, "length_required", "Bytes are limited here; the body must declare its length.")
COST_EXCEEDS_LIMIT = Problem(413, "cost_exceeds_limit", "The request costs more than a limit ever admits.")
BODY_TOO_LARGE = Problem(413, "body_too_large", "The body is larger than this route takes.")
TARGET_TOO_LONG = Problem(414, "target_too_long", "The request-target is too long.")
RATE_LIMITED = Problem(429, "rate_limited", "The caller's limit is used up.")
CONCURRENCY_LIMITED = Problem(429, "concurrency_limited", "Too many requests are under way.")
WEBSOCKET_VERSION = Problem(
    426,
    "websocket_version",
    "The only version of WebSocket spoken is 13.",
    # RFC 6455 section 4.4 and RFC 9110 section 15.5.22
    ((b"sec-websocket-version", b"13"), (b"upgrade", b"websocket"), (b"connection", b"upgrade")),
)
HEADERS_TOO_LARGE = Problem(431, "headers_too_large", "The header section is too large.")
UPGRADE_NOT_SUPPORTED = Problem(501, "upgrade_not_supported", "This gateway switches to no other protocol.")
CODING_NOT_SUPPORTED = Problem(501, "coding_not_supported", "The only transfer coding taken is chunked.")
VERSION_NOT_SUPPORTED = Problem(505, "version_not_supported", "This gateway speaks HTTP/1.1 and HTTP/1.0.")
INTERNAL_ERROR = Problem(500, "internal_error", "The gateway failed; the request's id is in its log.")
GATEWAY_BUSY = Problem(503, "gateway_busy", "All connections to the backend are in use.", ((b"retry-after", b"1"),))
LIMITS_UNAVAILABLE = Problem(
    503, "limits_unavailable", "The limits cannot be checked at the moment.", ((b"retry-after", b"1"),)
)
BACKEND_UNREACHABLE = Problem(502, "backend_unreachable", "The backend could not be reached.")
BACKEND_UNAVAILABLE = Problem(
    503, "backend_unavailable", "The backend takes no requests at the moment.", ((b"retry-after", b"1"),)
)
BACKEND_RESET = Problem(502, "backend_reset", "The backend closed the connection before it answered.")
BACKEND_PROTOCOL_ERROR = Problem(502, "backend_protocol_error", "The backend did not answer in valid HTTP.")
BACKEND_TIMEOUT = Problem(504, "backend_timeout", "The backend did not answer in time.")


def encode_problem(problem: Problem, request_id: str | None = None) -> tuple[Headers, bytes]:
    """Return header fields and body of the problem's answer."""
    document: dict[str, str | int] = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "code": problem.code,
        "detail": problem.detail,
        "fault": problem.fault,
    }
    if problem.backend is not None:
        document["backend"] = problem.backend
    own: list[tuple[bytes, bytes]] = []
    if request_id is not None:
        document["request_id"] = request_id
        own.append((b"x-request-id", request_id.encode("ascii")))
    body = json.dumps(document).encode()
    framing = ((b"content-type", b"application/problem+json"), (b"content-length", b"%d" % len(body)))
    return (*framing, *own, *problem.headers), body


async def send_problem(
    problem: Problem,
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    request_id: str,
    date: bytes,
    close: bool,
    unread_body: bool,
) -> None:
    """Answer with the problem, and ``close`` the connection if what follows on it cannot be trusted to be a request.

    With ``unread_body`` it is closed too, for the body is not wanted.

    A close with unread bytes makes the kernel reset the connection, which can take the answer from a client that is
    still sending. So the end is held back until the client stops, within ``LINGER_S``, ``LINGER_IDLE_S`` and
    ``LINGER_BYTES``.
    """
    fields, body = encode_problem(problem, request_id)
    fields = (*fields, (b"date", date))
    if close or unread_body:
        fields = (*fields, (b"connection", b"close"))
    await send({"type": "http.response.start", "status": problem.status, "headers": list(fields)})
    if unread_body and scope["method"] != "HEAD":
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await _linger(receive)
        body = b""
    await send({"type": "http.response.body", "body": body})


async def _linger(receive: Receive) -> None:
    left = LINGER_BYTES
    try:
        async with asyncio.timeout(LINGER_S):
            while left > 0:
                async with asyncio.timeout(LINGER_IDLE_S):
                    message = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
                left -= len(message.get("body", b""))
    except TimeoutError:
        return
