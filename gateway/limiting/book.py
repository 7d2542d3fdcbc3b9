"""Which limits hold for which request: the rules of all routes, callers and the whole gateway, sorted once.

What a request costs depends on its route, its caller and its address alone, unless a rule counts bytes or reads a
field. So where no rule does, the charges of the last few thousand are remembered, which saves most of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.arrival import Arrival
from gateway.callers import Caller, Callers
from gateway.limiting.rules import (
    ADDRESS,
    CALLER,
    EVERYONE,
    GATEWAY_REALM,
    HEADER,
    KEY_REALM,
    Charge,
    Rule,
    Unit,
    Visit,
    can_spread,
    charges_of,
    make_rules,
    slots_rule,
)
from gateway.settings import Route, Settings

REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class _Page:
    """The rules of one route, or of one caller."""

    rules: tuple[Rule, ...]
    in_bytes: bool
    is_steady: bool


class RuleBook:
    """The limits of one configuration. Raises ``ValueError``, naming the place, for settings that mean nothing."""

    def __init__(self, settings: Settings, callers: Callers) -> None:
        self._callers = callers
        self._remembered: dict[tuple[str, str | None, str], tuple[Charge, ...]] = {}
        strategy = settings.limits.strategy
        shared = make_rules(settings.gateway_limits, realm=GATEWAY_REALM, default_strategy=strategy)
        self._routes = {route.name: _page(_rules_of(route, strategy) + shared) for route in settings.routes}
        self._by_caller = {
            caller.name: _page(make_rules(caller.limits, realm=f"{KEY_REALM} {caller.name}", default_strategy=strategy))
            for caller in settings.callers
        }
        every = [rule for page in (*self._routes.values(), *self._by_caller.values()) for rule in page.rules]
        self._spread = can_spread(every)
        for route in settings.routes:
            _check_cost(route, self._routes[route.name].rules)
            for name, page in self._by_caller.items():
                if _may_use(settings, name, route):
                    _check_cost(route, page.rules)

    def needs_length(self, route: Route, known: str | None) -> bool:
        """Say whether a body must declare its length here, because its bytes are limited."""
        return self._routes[route.name].in_bytes or (known is not None and self._by_caller[known].in_bytes)

    def charges(self, route: Route, arrival: Arrival, known: str | None) -> tuple[Charge, ...]:
        """Return what a request of the caller ``known`` (``None``: of an address) costs."""
        rules = self._routes[route.name].rules
        if known is not None:
            rules += self._by_caller[known].rules
        if not rules:
            return ()
        address = self._callers.address_of(arrival)
        place = (route.name, known, address)
        remembered = self._remembered.get(place)
        if remembered is not None:
            return remembered
        identities = self._identities({rule.per for rule in rules}, arrival, known, address)
        visit = Visit(identities, route.cost, arrival.content_length or 0)
        charges = charges_of(rules, visit, spread=self._spread)
        if self._routes[route.name].is_steady and (known is None or self._by_caller[known].is_steady):
            if len(self._remembered) >= REMEMBERED:
                self._remembered.clear()
            self._remembered[place] = charges
        return charges

    def _identities(self, kinds: set[str], arrival: Arrival, known: str | None, text: str) -> dict[str, str]:
        address = Caller("address", text).identity
        identities = {}
        for kind in kinds:
            if kind == EVERYONE:
                identities[kind] = ""
            elif kind == ADDRESS or (kind == CALLER and known is None):
                identities[kind] = address
            elif kind == CALLER:
                identities[kind] = Caller("caller", known or "").identity
            else:
                values = arrival.values_of(kind.removeprefix(HEADER).encode("latin-1"))
                claimed = Caller(kind, b",".join(values).decode("latin-1")).identity
                identities[kind] = claimed if any(values) else address  # those without it share nothing
        return identities


def _rules_of(route: Route, strategy: str) -> tuple[Rule, ...]:
    try:
        rules = make_rules(route.limits, realm=f"route {route.name}", default_strategy=strategy)
        if route.concurrency is not None:
            rules += (slots_rule(route.concurrency, route=route.name),)
    except ValueError as error:
        raise ValueError(f"route {route.name}: {error}") from error
    return rules


def _page(rules: tuple[Rule, ...]) -> _Page:
    in_bytes = any(rule.unit is Unit.BYTES for rule in rules)
    return _Page(rules, in_bytes, not in_bytes and not any(rule.per.startswith(HEADER) for rule in rules))


def _may_use(settings: Settings, name: str, route: Route) -> bool:
    caller = next(caller for caller in settings.callers if caller.name == name)
    return caller.routes is None or route.name in caller.routes


def _check_cost(route: Route, rules: tuple[Rule, ...]) -> None:
    if route.cost < 1:
        raise ValueError(f"route {route.name}: a request costs at least one")
    for rule in rules:
        if rule.unit is Unit.REQUESTS and route.cost > rule.amount:
            raise ValueError(f"route {route.name}: costs {route.cost}, which the limit '{rule.name}' never admits")
