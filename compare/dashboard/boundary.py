"""Where a request meets a handler: who is it, may they, then a thread, then whatever went wrong as an answer."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping

import anyio
import anyio.to_thread
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from compare.dashboard.access import Role, Visitor
from compare.dashboard.errors import (
    CORRUPT,
    FAULT,
    FOREIGN_FORM,
    ROLE_TOO_LOW,
    STORE_FAILED,
    TOKEN_REQUIRED,
    Trouble,
    TroubleRaised,
    as_problem,
    from_http,
    wants_page,
)
from compare.dashboard.login import NO_FORM, read_form
from compare.dashboard.rendering import Renderer
from compare.dashboard.security import COOKIE, Gate, is_own_form
from shadow.errors import CorruptBody, StoreError

_LOG = logging.getLogger("crossfade.dashboard")
Handler = Callable[[Request], Response]
Change = Callable[[Request, Mapping[str, str]], Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def visitor_of(request: Request) -> Visitor:
    """Return who asks. Only behind ``Boundary``, which has seen to it."""
    visitor = request.state.visitor
    assert isinstance(visitor, Visitor)
    return visitor


class Boundary:
    """Makes endpoints of handlers that block and raise."""

    def __init__(self, gate: Gate, renderer: Renderer) -> None:
        self._gate, self._renderer = gate, renderer
        self._faults = 0

    def guard(self, handler: Handler, limiter: anyio.CapacityLimiter, least: Role = Role.VIEWER) -> Endpoint:
        """Return the endpoint for a handler that shows something to a role."""

        async def endpoint(request: Request) -> Response:
            trouble = self._trouble(request, least)
            if trouble is not None:
                return self._answer(request, trouble)
            return await self._run(request, lambda: handler(request), limiter)

        return endpoint

    def change(self, handler: Change, limiter: anyio.CapacityLimiter, least: Role) -> Endpoint:
        """Return the endpoint for a form that changes something: only for a role, only from a page of our own."""

        async def endpoint(request: Request) -> Response:
            trouble = self._trouble(request, least)
            if trouble is None and not is_own_form(request.headers):
                trouble = FOREIGN_FORM
            if trouble is not None:
                return self._answer(request, trouble)
            form = await read_form(request)
            if form is None:
                return self._answer(request, NO_FORM)
            return await self._run(request, lambda: handler(request, form), limiter)

        return endpoint

    def stream(self, handler: Endpoint) -> Endpoint:
        """Return the endpoint for a handler that goes on and on, and does not block."""

        async def endpoint(request: Request) -> Response:
            trouble = self._trouble(request, Role.VIEWER)
            return await handler(request) if trouble is None else self._answer(request, trouble)

        return endpoint

    async def live(self, _request: Request) -> Response:
        """Say that the process answers, and how many faults it has had."""
        return JSONResponse({"status": "ok", "faults": self._faults})

    async def lost(self, request: Request, error: Exception) -> Response:
        """Answer where no handler is."""
        trouble = self._trouble(request, Role.VIEWER)
        if trouble is None:
            trouble = from_http(error) if isinstance(error, HTTPException) else FAULT
        return self._answer(request, trouble)

    def _trouble(self, request: Request, least: Role) -> Trouble | None:
        """Note who asks; return why that is not enough."""
        peer = request.client.host if request.client else ""
        visitor = self._gate.visitor(request.headers, request.cookies.get(COOKIE), peer)
        if visitor is None:
            return TOKEN_REQUIRED
        request.state.visitor = visitor
        return None if visitor.may(least) else ROLE_TOO_LOW

    async def _run(self, request: Request, work: Callable[[], Response], limiter: anyio.CapacityLimiter) -> Response:
        try:
            return await anyio.to_thread.run_sync(work, limiter=limiter)
        except TroubleRaised as raised:
            return self._answer(request, raised.trouble)
        except CorruptBody as error:
            _LOG.error("a stored body is damaged: %s", error)
            return self._answer(request, CORRUPT)
        except (StoreError, DBAPIError) as error:
            _LOG.warning("the store cannot be read: %s", type(error).__name__)
            return self._answer(request, STORE_FAILED)
        except Exception:
            self._faults += 1
            _LOG.exception("fault %d at %s", self._faults, request.url.path[:200])
            return self._answer(request, FAULT)

    def _answer(self, request: Request, trouble: Trouble) -> Response:
        if not wants_page(request):
            return as_problem(trouble)
        if trouble is TOKEN_REQUIRED:
            return self._renderer.login(request)
        return self._renderer.page(request, "trouble.html", trouble.status, title=trouble.title, trouble=trouble)
