"""Who answers: the gateway's own pages, the gateway itself, or a backend. A raw ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send


def front(serve: ASGIApp, pages: ASGIApp, date: Callable[[], bytes]) -> ASGIApp:
    """Return an application that leaves what cannot be one of the gateway's own pages to ``serve`` at once: Starlette's
    layers wrap every message, and production's requests need none of what they do."""
    pages, ping = _dated(pages, date), _dated(_answer_ping, date)

    def serve_one(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http" or scope["path"].startswith("/-/"):
            return pages(scope, receive, send)
        return (ping if scope["path"] == "*" else serve)(scope, receive, send)

    return serve_one


def _dated(app: ASGIApp, date: Callable[[], bytes]) -> ASGIApp:
    """Return the application with a Date field in every answer (RFC 9110 section 6.6.1)."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_dated(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"date", date())]
            await send(message)

        await app(scope, receive, send_dated)

    return serve


async def _answer_ping(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer ``OPTIONS *``, which asks about no resource and is of use as a ping alone (RFC 9110 section 9.3.7)."""
    await send({"type": "http.response.start", "status": 204, "headers": [(b"connection", b"close")]})
    await send({"type": "http.response.body"})
