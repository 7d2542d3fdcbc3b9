"""The handlers of pages: read, build the page's value, lay it out. They block and run in threads."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from starlette.requests import Request
from starlette.responses import Response

from compare.dashboard.access import Role
from compare.dashboard.boundary import visitor_of
from compare.dashboard.material import Audit, audit_line
from compare.dashboard.pictures import FULL_HEAT, VIEW_SIDE
from compare.dashboard.rendering import Renderer
from compare.dashboard.security import CHART_POLICY
from compare.dashboard.sources import Sources
from compare.dashboard.views.labelling import build_drafts, build_label
from compare.dashboard.views.ledger import add_ledgers
from compare.dashboard.views.overview import RouteState, build_cards, headline, next_step
from compare.dashboard.views.pair import Neighbours, build_pair_page
from compare.dashboard.views.pairlist import PAGE_SIZE, PairFilter, PairList, build_card, count_shows
from compare.dashboard.views.rampview import build_ramp
from compare.dashboard.views.route import build_route_page
from compare.dashboard.views.trendline import build_trend
from compare.phrases import joined, say
from shadow.exchange import Exchange

_LOOKED_THROUGH = 500
NO_PICTURES: tuple[tuple[tuple[str, str], ...], str] = ((), say("pictures are for reviewers"))


class Pages:
    """The overview, a route, a pair."""

    def __init__(
        self, sources: Sources, renderer: Renderer, audit: Audit, now: Callable[[], datetime], *, exports: bool
    ) -> None:
        self._sources, self._renderer, self._audit, self._now = sources, renderer, audit, now
        self._exports = exports

    def overview(self, request: Request) -> Response:
        """Show every route."""
        states = self._sources.states()
        return self._renderer.page(
            request,
            "overview.html",
            title=say("Routes"),
            headline=headline(states),
            subtitle=_who_against_whom(states),
            cards=build_cards(states),
            trends={state.route: build_trend(self._sources.trend(state.route, self._now())) for state in states},
            ledger=add_ledgers(state.ledger for state in states),
        )

    def route(self, request: Request) -> Response:
        """Show one route and a page of its pairs."""
        state = self._sources.state(request.path_params["route"])
        chosen = PairFilter.of(request.query_params)
        page, reviews = build_route_page(state), visitor_of(request).may(Role.REVIEWER)
        latency = self._sources.distribution(state.route)
        answer = self._renderer.page(
            request,
            "route.html",
            latency=latency,
            reviews=reviews,
            operates=visitor_of(request).may(Role.OPERATOR),
            ramp=build_ramp(self._sources.ramp(state.route)),
            drafts=build_drafts(self._sources.accepted(state.route), state.verdict),
            title=page.headline,
            page=page,
            serving=state.serving,
            next=next_step(state),
            ledger=state.ledger,
            pairs=self._pairs(state.route, chosen, _number(request, "page") or 1, pictures=reviews),
        )
        if latency is not None:
            answer.headers["content-security-policy"] = CHART_POLICY
        return answer

    def pair(self, request: Request) -> Response:
        """Show one pair. Text that stands on the page is a reveal; pictures are revealed by their own addresses."""
        exchange = self._sources.exchange(request.path_params["id"])
        chosen, place = PairFilter.of(request.query_params), _number(request, "at")
        reviews = visitor_of(request).may(Role.REVIEWER)
        bodies = self._sources.bodies(exchange) if reviews else {}
        page = build_pair_page(
            exchange,
            self._sources.policies.get(exchange.route),
            self._sources.measurement(exchange),
            bodies,
            self._around(exchange, chosen, place),
            VIEW_SIDE,
        )
        for side in page.sides:
            if side.text.lines and not page.pictures:
                self._audit(audit_line(request, self._now(), "text", exchange, side.role))
        state = self._sources.state(exchange.route)
        return self._renderer.page(
            request,
            "pair.html",
            title=say("pair {id}", id=page.short),
            page=page,
            reviews=reviews,
            exports=self._exports,
            label=build_label(self._sources.label(exchange)),
            here=f"/pairs/{exchange.id}{chosen.query(**({'at': place} if place else {}))}",
            full_heat=FULL_HEAT,
            ledger=state.ledger,
        )

    def _pairs(self, route: str, chosen: PairFilter, page: int, *, pictures: bool) -> PairList:
        counts = count_shows(self._sources.counts(route))
        first = (page - 1) * PAGE_SIZE
        found, total = self._sources.pairs(route, chosen, first, PAGE_SIZE)
        cards = [
            build_card(m, chosen.query(at=place), *(self._sources.thumbs(m.exchange_id) if pictures else NO_PICTURES))
            for place, m in enumerate(found, first + 1)
        ]
        return PairList(chosen, tuple(cards), total, page, counts)

    def _around(self, exchange: Exchange, chosen: PairFilter, place: int | None) -> Neighbours:
        """Return the neighbours in the list that the visitor came from. ``place`` counts from 1; where new pairs have
        moved the list since, the pair is looked for among the first ones, and may have no neighbours."""
        first = max(0, (place or 1) - 2)
        found, total = self._sources.pairs(exchange.route, chosen, first, 3)
        ids = [m.exchange_id for m in found]
        if exchange.id not in ids:
            first = 0
            ids = [m.exchange_id for m in self._sources.pairs(exchange.route, chosen, 0, _LOOKED_THROUGH)[0]]
        if exchange.id not in ids:
            return Neighbours()
        here = ids.index(exchange.id)
        at = first + here + 1
        return Neighbours(
            previous=(ids[here - 1], chosen.query(at=at - 1)) if here else None,
            next=(ids[here + 1], chosen.query(at=at + 1)) if here + 1 < len(ids) else None,
            place=say("pair {at:,} of {total:,}", at=at, total=total),
        )


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name, "")
    return max(1, int(text)) if text.isascii() and text.isdecimal() and len(text) < 8 else None


def _who_against_whom(states: list[RouteState]) -> str:
    pairs = sorted({(s.policy.baseline, s.policy.candidate) for s in states if s.policy is not None})
    named = [
        say("baseline {baseline}, candidate {candidate}", baseline=baseline, candidate=candidate)
        for baseline, candidate in pairs
    ]
    return joined(" · ", named[:4])
