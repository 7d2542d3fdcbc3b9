"""Spans as the relay sees them, and the tracing that makes none.

One request has a server span and, for each attempt at a server, a client span below it. What goes to a backend carries
the client span's context (W3C Trace Context), what goes to the shadow the server span's. Without tracing configured
nothing is made and a client's own ``traceparent`` passes untouched.
"""

from __future__ import annotations

from typing import Protocol

from gateway.arrival import Arrival
from gateway.forwarding import NO_CHANGE, FieldChange
from gateway.settings import Route


class RequestTrace(Protocol):
    """The spans of one request."""

    def note_route(self, route: Route) -> None:
        """Say which route took it."""

    def begin_attempt(self, backend: str, server: str, resends: int) -> FieldChange:
        """Begin the span of an attempt, ending one that is open; return what changes in the fields that are sent."""

    def end_attempt(self, status: int | None, error: str | None) -> None:
        """End the open attempt, if there is one, with what it came to."""

    def note_answer(self, status: int | None, error: str | None) -> None:
        """Say what the client got: a status, and a code where the answer is a problem or was cut."""

    def context(self) -> FieldChange:
        """Return the change of fields that makes a copy of the request a part of this trace."""

    def end(self) -> None:
        """End all spans. Call it in any case."""


class Tracing(Protocol):
    """Begins traces; owned by the gateway's lifespan."""

    def begin(self, arrival: Arrival) -> RequestTrace:
        """Begin the spans of a request, as a part of its client's trace where it has one."""

    async def aclose(self) -> None:
        """Hand over what is finished, in bounded time."""


class NoTracing:
    """Makes no spans. It is its own trace."""

    def begin(self, arrival: Arrival) -> RequestTrace:
        """Return itself."""
        return self

    def note_route(self, route: Route) -> None:
        """Do nothing."""

    def begin_attempt(self, backend: str, server: str, resends: int) -> FieldChange:
        """Change nothing."""
        return NO_CHANGE

    def end_attempt(self, status: int | None, error: str | None) -> None:
        """Do nothing."""

    def note_answer(self, status: int | None, error: str | None) -> None:
        """Do nothing."""

    def context(self) -> FieldChange:
        """Change nothing."""
        return NO_CHANGE

    def end(self) -> None:
        """Do nothing."""

    async def aclose(self) -> None:
        """Do nothing."""
