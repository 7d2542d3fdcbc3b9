"""What a passage learns from its transport about the connection that a request gets."""

from __future__ import annotations

from typing import Any

from gateway.deadline import Deadline


class ConnectionTrace:
    """Says whether a request opened a connection (``fresh``), and keeps httpcore from being cancelled meanwhile.

    A cancellation between the connection's coming to be and its first use would leave it open and in nobody's hands:
    anyio and httpcore both have such a moment. Connecting is bounded by the backend's connect timeout.
    """

    __slots__ = ("_deadline", "fresh")

    def __init__(self, deadline: Deadline) -> None:
        self.fresh = False
        self._deadline = deadline

    async def __call__(self, event: str, info: dict[str, Any]) -> None:
        """Take note of a step, by the names that httpcore has for them."""
        if event == "connection.connect_tcp.started":
            self.fresh = True
            self._deadline.hold()
        elif event == "connection.open.started":  # the gateway's own transport, which may be cancelled at any moment
            self.fresh = True
        elif event.endswith((".send_request_headers.started", ".failed")):
            self._deadline.release()
