"""What is to be done for one request that was let in, and what a server is asked for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import httpx

from gateway.arrival import Arrival
from gateway.connecting import ConnectionTrace
from gateway.dispatch import Dispatch
from gateway.fields import request_fields
from gateway.forwarding import NO_CHANGE, FieldChange
from gateway.tracing import NoTracing, RequestTrace
from shadow.exchange import Headers
from shadow.message import LightRequest

NO_TRACE = NoTracing()


def _nothing() -> None:
    """Release nothing."""


class Errand(NamedTuple):
    """What is to be done: the request, what changes in its fields, and what its answer carries besides the backend's
    own. ``release`` is called when the backend is done with it, before the client learns of it, and may be called
    again."""

    arrival: Arrival
    date: bytes
    added: Headers = ()
    change: FieldChange = NO_CHANGE
    trace: RequestTrace = NO_TRACE
    release: Callable[[], None] = _nothing


def request_of(
    errand: Errand, dispatch: Dispatch, body: httpx.AsyncByteStream, connection: ConnectionTrace, *, resends: int
) -> httpx.Request:
    """Return the request to the server that the dispatch is at. Begins an attempt in the trace; ``resends`` is how
    many there were before."""
    arrival, backend, server = errand.arrival, dispatch.backend, dispatch.server
    assert server is not None, "a call was begun"
    change = errand.change.followed_by(errand.trace.begin_attempt(backend.name, server.name, resends))
    fields = request_fields(
        arrival.headers,
        authority=server.authority,
        request_id=arrival.id,
        credential=backend.credential,
        chunked=bool(arrival.codings),
        dropped=change.dropped,
        added=change.added,
    )
    extensions = {
        "timeout": dispatch.waits,
        "target": server.prefix + arrival.target,
        "origin": server.origin,
        "trace": connection,
    }
    return LightRequest(arrival.method, partial(server.request_url, arrival.target), fields, body, extensions)
