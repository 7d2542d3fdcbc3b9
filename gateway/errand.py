"""What is to be done for one request that was let in."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gateway.arrival import Arrival
from gateway.forwarding import NO_CHANGE, FieldChange
from gateway.tracing import NoTracing, RequestTrace
from shadow.exchange import Headers

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
