"""Who may come in, decided before the body is read: known (401, 403), expected (400, 404, 405), sound (400, 411, 413,
426, 501), within the limits (413, 429, 503).

With callers in the settings every route that is not public asks for a key, and who shows none learns nothing about the
routes. The key is taken out of the request at once. A CORS preflight has neither key nor cost: it goes to the backend
of the route that it asks about and is not limited.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gateway import problem as problems
from gateway.arrival import Arrival
from gateway.cors import cors_fields
from gateway.generation import Generation
from gateway.handshake import handshake_fault, offers_websocket
from gateway.keyring import Identified, Unknown
from gateway.limiting.verdict import FREE, Admission, Refusal
from gateway.metrics import Metrics
from gateway.problem import Problem
from gateway.routing import Ambiguous, NoRoute, WrongMethod
from gateway.settings import ApiCaller, Route
from shadow.exchange import Headers

_PROBLEM_OF = {
    Refusal.RATE: problems.RATE_LIMITED,
    Refusal.COST: problems.COST_EXCEEDS_LIMIT,
    Refusal.SLOTS: problems.CONCURRENCY_LIMITED,
    Refusal.UNAVAILABLE: problems.LIMITS_UNAVAILABLE,
}


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that may not come in; ``route`` is ``None`` when it has none."""

    problem: Problem
    route: Route | None = None


class Entered(NamedTuple):
    """A request that may go to its backend. ``arrival`` is now without the client's API key, whose owner is ``known``;
    ``added`` are fields for the answer, whoever gives it. ``release`` is to be called at the end, once."""

    arrival: Arrival
    route: Route
    known: ApiCaller | None
    added: Headers
    release: Callable[[], None]


class Door:
    """Decides for every request; ``metrics`` is lent."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def admit(self, generation: Generation, arrival: Arrival, *, bridged: bool = False) -> Entered | Refused:
        """Decide, and charge the limits if it may come in. Waits only for a slot. ``bridged`` says that this is a
        WebSocket's handshake, which enters where the route asks for it."""
        preflight_for = arrival.preflight_for
        route = _match(generation, arrival, preflight_for)
        caller: ApiCaller | None = None
        if not generation.keyring.is_empty and preflight_for is None:
            identity = generation.keyring.identify(arrival.headers)
            if isinstance(identity, Identified):
                caller = identity.caller
                arrival.drop_key(identity.headers)
            elif not (isinstance(route, Route) and route.public):
                problem = problems.KEY_MISSING if identity is Unknown.NO_KEY else problems.KEY_UNKNOWN
                return _refused(problem, route if isinstance(route, Route) else None, arrival)
        if isinstance(route, Problem):
            return Refused(route)
        fault = _unacceptable(generation, arrival, route, caller)
        if fault is None and arrival.wants_upgrade and not (bridged and route.websocket):
            fault = _why_not_bridged(arrival, route)
        if fault is not None:
            return _refused(fault, route, arrival)
        admission = FREE
        if preflight_for is None:
            charges = generation.rules.charges(route, arrival, caller.name if caller is not None else None)
            admission = generation.limiter.admit_at_once(charges, arrival.id) or await generation.limiter.admit(
                charges, arrival.id, patience_s=_patience_s(generation, route), is_gone=arrival.is_gone
            )
        return self._judge(admission, arrival, route, caller)

    def _judge(
        self, admission: Admission, arrival: Arrival, route: Route, caller: ApiCaller | None
    ) -> Entered | Refused:
        for name in admission.would_refuse:
            self._metrics.count_dry_run(route.name, name)
        if admission.refusal is not None:
            wait = ((b"retry-after", b"%d" % admission.retry_after_s),) if admission.retry_after_s else ()
            problem = _PROBLEM_OF[admission.refusal].with_headers((*wait, *admission.headers))
            return _refused(problem, route, arrival)
        return Entered(arrival, route, caller, admission.headers, admission.release)


def _patience_s(generation: Generation, route: Route) -> float:
    return min(generation.settings.backends[name].timeout_s for name in route.active)


def _match(generation: Generation, arrival: Arrival, preflight_for: str | None) -> Route | Problem:
    route = generation.table.match(preflight_for or arrival.method, arrival.path)
    if isinstance(route, Route):
        return route
    if isinstance(route, WrongMethod) and preflight_for is not None:
        route = generation.table.match(arrival.method, arrival.path)
    match route:
        case NoRoute():
            return problems.ROUTE_NOT_FOUND
        case Ambiguous():
            return problems.AMBIGUOUS_PATH
        case WrongMethod(allow):
            return problems.METHOD_NOT_ALLOWED.with_headers(((b"allow", ", ".join(allow).encode("latin-1")),))
    return route


def _unacceptable(generation: Generation, arrival: Arrival, route: Route, caller: ApiCaller | None) -> Problem | None:
    is_barred = caller is not None and caller.routes is not None and route.name not in caller.routes
    if is_barred and not route.public:
        return problems.ROUTE_NOT_ALLOWED
    if arrival.codings not in ((), (b"chunked",)):
        return problems.CODING_NOT_SUPPORTED
    if arrival.content_length is not None and arrival.content_length > route.max_body_bytes:
        return problems.BODY_TOO_LARGE
    if arrival.codings and generation.rules.needs_length(route, caller.name if caller is not None else None):
        return problems.LENGTH_REQUIRED
    return None


def _why_not_bridged(arrival: Arrival, route: Route) -> Problem:
    fault = None
    if route.websocket and offers_websocket(arrival.headers):
        fault = handshake_fault(arrival.method, arrival.headers)
    return fault or problems.UPGRADE_NOT_SUPPORTED


def _refused(problem: Problem, route: Route | None, arrival: Arrival) -> Refused:
    cors = route.cors if route is not None else None
    return Refused(problem.with_headers(cors_fields(cors, arrival.headers)), route)
