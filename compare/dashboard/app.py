"""Build the dashboard: addresses, the request boundary, and nothing else.

Every handler is a plain function that blocks (SQLite, Pillow); ``Boundary`` runs it in a thread, for whom it is meant,
and turns what it raises into an answer. Two at most draw pictures at once, so that memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from compare.dashboard.access import Access, Role
from compare.dashboard.actions import Actions
from compare.dashboard.boundary import Boundary
from compare.dashboard.live import Feed
from compare.dashboard.login import Login, choose_language
from compare.dashboard.material import Audit, Case, Material
from compare.dashboard.pages import Pages
from compare.dashboard.plotly import PlotlyScript
from compare.dashboard.rendering import Renderer
from compare.dashboard.security import Gate, SafeHeaders
from compare.dashboard.snapshot import GatewayView, nobody_there
from compare.dashboard.sources import Sources, Toggle, nobody_said
from compare.labels import Labels
from compare.policy import Policy
from compare.ramps import Ramps
from compare.results import Results
from compare.states import States
from shadow.store.reader import Reader

_READERS = 8
_DRAWERS = 2
_WRITERS = 2


def utc_now() -> datetime:
    """Return the wall time."""
    return datetime.now(UTC)


def no_audit(_line: Mapping[str, object]) -> None:
    """Keep no record of who looked."""


def create_app(
    reader: Reader,
    results: Results,
    policies: Sequence[Policy],
    *,
    access: Access | None = None,
    ramps: Ramps | None = None,
    notice: str = "",
    serving: Toggle = nobody_said,
    gateways: Callable[[], GatewayView] = nobody_there,
    audit: Audit = no_audit,
    case: Case | None = None,
    now: Callable[[], datetime] = utc_now,
) -> Starlette:
    """Return the dashboard as an ASGI app; ``server.serve`` puts it on an address.

    ``notice`` stands on every page (that the baseline is a stand-in, for example). ``serving`` tells the toggle of each
    route: percents by backend. ``audit`` gets one mapping for each change, and each time that the content of a body is
    shown; it is called in worker threads. ``case`` makes the zip of a pair by its id. Without ``ramps`` no page can
    move traffic. ``gateways`` tells what the gateways say of themselves now; it blocks, and is called once a second
    while a page is open.
    """
    gate, labels = Gate(access or Access(), now), Labels(reader.engine)
    sources = Sources(
        reader,
        results,
        {policy.route: policy for policy in policies},
        serving,
        labels,
        States(reader.engine, results),
        ramps,
    )
    plotly = PlotlyScript()
    renderer = Renderer(notice, now, plotly.address)
    pages = Pages(sources, renderer, audit, now, exports=case is not None)
    material = Material(sources, audit, now, case)
    actions = Actions(sources, labels, ramps, audit, now)
    boundary = Boundary(gate, renderer)
    login = Login(gate, renderer)
    feed = Feed(gateways, sources.progress)
    app = Starlette(
        routes=_addresses(boundary, pages, material, actions, login, feed, plotly),
        middleware=[Middleware(SafeHeaders)],
        exception_handlers={HTTPException: boundary.lost},
    )
    app.state.gate = gate
    return app


def _addresses(
    boundary: Boundary,
    pages: Pages,
    material: Material,
    actions: Actions,
    login: Login,
    feed: Feed,
    plotly: PlotlyScript,
) -> list[BaseRoute]:
    """Return what is at which address, for whom, and in which threads."""
    read, draw, write = (anyio.CapacityLimiter(size) for size in (_READERS, _DRAWERS, _WRITERS))
    return [
        Route("/", boundary.guard(pages.overview, read)),
        Route("/routes/{route}", boundary.guard(pages.route, read)),
        Route("/pairs/{id}", boundary.guard(pages.pair, read)),
        Route("/pairs/{id}/label", boundary.change(actions.label, write, Role.REVIEWER), methods=["POST"]),
        Route("/routes/{route}/ramp", boundary.change(actions.ramp, write, Role.OPERATOR), methods=["POST"]),
        Route("/pairs/{id}/case", boundary.guard(material.export, draw, Role.REVIEWER)),
        Route("/bodies/{id}/{role}", boundary.guard(material.body, draw, Role.REVIEWER)),
        Route("/thumbs/{id}/{role}", boundary.guard(material.thumb, draw, Role.REVIEWER)),
        Route("/outlines/{id}/{role}", boundary.guard(material.outline, draw, Role.REVIEWER)),
        Route("/differences/{id}", boundary.guard(material.difference, draw, Role.REVIEWER)),
        Route("/language/{code}", choose_language),
        Route("/login", login.enter, methods=["POST"]),
        Route("/-/live", boundary.live),
        Route("/-/events", boundary.stream(feed.stream)),
        Route(plotly.address, boundary.guard(plotly.answer, read)),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]
