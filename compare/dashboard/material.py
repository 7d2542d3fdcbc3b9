"""Stored bodies on their way out. What a browser would run is never among it.

Pictures go out as PNGs that are made anew from their pixels; everything else, SVG and HTML included, is a download of
unnamed bytes under a policy that allows nothing. Each time that content is shown, the audit gets one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from compare.dashboard.boundary import visitor_of
from compare.dashboard.errors import NOT_A_PICTURE, PURGED, TroubleRaised, no_such
from compare.dashboard.pictures import (
    THUMB_SIDE,
    VIEW_SIDE,
    render_difference,
    render_mask,
    render_picture,
    render_regions,
)
from compare.dashboard.security import BODY_POLICY
from compare.dashboard.sources import REQUEST, Sources
from compare.dashboard.views.pair import orient
from compare.phrases import mark
from compare.policy import Kind
from shadow.exchange import Exchange

Audit = Callable[[Mapping[str, object]], None]
Case = Callable[[str], bytes]
"""Makes the zip of a case of an exchange's id: bodies in plain, headers, what was measured. Blocks."""
_DOWNLOAD = "application/octet-stream"
_MINUTES = "private, max-age=300"
_HEADERS = {"content-security-policy": BODY_POLICY}


def audit_line(request: Request, now: datetime, shown: str, exchange: Exchange, role: str) -> Mapping[str, object]:
    """Return who saw what, when. ``shown`` is body, download, thumbnail, text, difference, outline or
    case."""
    return {
        "at": now.isoformat(),
        "event": "body_revealed",
        "who": visitor_of(request).name,
        "client": request.client.host if request.client else "",
        "shown": shown,
        "route": exchange.route,
        "exchange": exchange.id,
        "role": role,
    }


class Material:
    """The handlers of bodies, thumbnails and heat maps. They block."""

    def __init__(self, sources: Sources, audit: Audit, now: Callable[[], datetime], case: Case | None = None) -> None:
        self._sources, self._audit, self._now, self._case = sources, audit, now, case

    def body(self, request: Request) -> Response:
        """Return a body: the picture for the page, or with ``?download``, and for all that is no picture, the bytes."""
        exchange, role = self._asked(request)
        if "download" not in request.query_params:
            picture = render_picture(self._sources.picture_bytes(exchange, role) or b"", VIEW_SIDE)
            if picture is not None:
                self._note(request, "body", exchange, role)
                return _png(picture, "no-store")
        content = self._content(exchange, role)
        self._note(request, "download", exchange, role)
        return _download(content, _DOWNLOAD, exchange, f"{role}.bin")

    def export(self, request: Request) -> Response:
        """Return a pair as a case that stands on its own, as ``crossfade pair export`` writes it."""
        exchange = self._sources.exchange(request.path_params["id"])
        if self._case is None:
            raise no_such(mark("case of"), exchange.id)
        content = self._case(exchange.id)
        self._note(request, "case", exchange, "all")
        return _download(content, "application/zip", exchange, "pair.zip")

    def thumb(self, request: Request) -> Response:
        """Return a small picture."""
        exchange, role = self._asked(request)
        self._content(exchange, role)
        picture = render_picture(self._sources.picture_bytes(exchange, role) or b"", THUMB_SIDE)
        if picture is None:
            raise TroubleRaised(NOT_A_PICTURE)
        self._note(request, "thumbnail", exchange, role)
        return _png(picture, _MINUTES)

    def difference(self, request: Request) -> Response:
        """Return the heat map of the two answers."""
        exchange = self._sources.exchange(request.path_params["id"])
        legs = orient(exchange, self._sources.policies.get(exchange.route))
        if len(legs) != 2:
            raise TroubleRaised(NOT_A_PICTURE)
        for role, *_ in legs:
            self._content(exchange, role.value)
        sides = [self._sources.picture_bytes(exchange, role.value) or b"" for role, *_ in legs]
        picture = render_difference(*sides)
        if picture is None:
            raise TroubleRaised(NOT_A_PICTURE)
        self._note(request, "difference", exchange, "primary,shadow")
        return _png(picture, "no-store")

    def outline(self, request: Request) -> Response:
        """Return what can be drawn over an answer: boxes around blurred regions, or the mask's edge. Nothing of a
        picture is in it, but its shapes are; so it is audited, too."""
        exchange, role = self._asked(request)
        policy = self._sources.policies.get(exchange.route)
        picture = None
        if policy is not None and policy.kind is Kind.FACE_BLUR:
            sides = [self._sources.picture_bytes(exchange, each) or b"" for each in (REQUEST, role)]
            picture = render_regions(*sides)
        elif policy is not None and policy.kind is Kind.ERASE:
            picture = render_mask(self._sources.mask_bytes(exchange) or b"")
        if picture is None:
            return Response(status_code=204, headers=_HEADERS)
        self._note(request, "outline", exchange, role)
        return _png(picture, "no-store")

    def _asked(self, request: Request) -> tuple[Exchange, str]:
        exchange, role = self._sources.exchange(request.path_params["id"]), str(request.path_params["role"])
        if self._sources.body(exchange, role) is None:
            raise no_such(mark("body"), role)
        return exchange, role

    def _content(self, exchange: Exchange, role: str) -> bytes:
        """Return the stored bytes as they crossed the wire, or raise what explains their absence."""
        body = self._sources.body(exchange, role)
        content = None if body is None else self._sources.reader.load(body)
        if content is None:
            raise TroubleRaised(PURGED)
        return content

    def _note(self, request: Request, shown: str, exchange: Exchange, role: str) -> None:
        self._audit(audit_line(request, self._now(), shown, exchange, role))


def _download(content: bytes, media_type: str, exchange: Exchange, name: str) -> Response:
    start = f"{exchange.id[:8]}-" if exchange.id[:8].isalnum() and exchange.id.isascii() else ""
    headers = {**_HEADERS, "content-disposition": f'attachment; filename="{start}{name}"'}
    return Response(content, media_type=media_type, headers=headers)


def _png(picture: bytes, keep: str) -> Response:
    return Response(picture, media_type="image/png", headers={**_HEADERS, "cache-control": keep})
