"""What the pages read: the store, the comparison's results, the policies. Every method blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from compare.dashboard.errors import no_such
from compare.dashboard.pictures import describe_picture
from compare.dashboard.snapshot import Progress
from compare.dashboard.texts import read_text
from compare.dashboard.trend import Hour, read_trend
from compare.dashboard.views.distribution import Distribution, build_distribution
from compare.dashboard.views.ledger import Ledger, build_ledger
from compare.dashboard.views.overview import RouteState, who_serves
from compare.dashboard.views.pair import BodyFacts, orient
from compare.dashboard.views.pairlist import MISMATCH, PairFilter
from compare.kernels.encoding import CannotDecode, DamagedContent, decode_content
from compare.kernels.form import request_mask, request_picture
from compare.kernels.material import Question
from compare.labels import Label, Labels
from compare.measurement import Measurement
from compare.phrases import mark, say
from compare.policy import Policy, measurement_key, policy_hash
from compare.ramps import Ramps, RampState
from compare.results import NOT_COMPARED, Results
from compare.states import States
from compare.verdict import Verdict
from shadow.account import RouteAccount
from shadow.exchange import Body, Exchange
from shadow.store.reader import Reader

Toggle = Callable[[], Mapping[str, Mapping[str, float]]]
REQUEST = "request"
MAX_BODY_BYTES = 64 * 1024 * 1024


def nobody_said() -> Mapping[str, Mapping[str, float]]:
    """Stand for a toggle that nobody told the dashboard."""
    return {}


@dataclass(frozen=True, slots=True)
class Sources:
    """The reading side of everything. ``policies`` is by route; ``toggle`` tells the percents by route and backend."""

    reader: Reader
    results: Results
    policies: Mapping[str, Policy]
    toggle: Toggle
    labels: Labels
    folds: States
    ramps: Ramps | None = None

    def states(self) -> list[RouteState]:
        """Return what is known of every route: those of the config in its order, then those only in the store."""
        accounts, split = self.reader.accounts(), self.toggle()
        routes = dict.fromkeys([*self.policies, *self.reader.routes()])
        return [self._state(route, accounts.get(route), split.get(route, {})) for route in routes]

    def state(self, route: str) -> RouteState:
        """Return what is known of one route. Raises a trouble when there is no such route."""
        if route not in self.policies and route not in self.reader.routes():
            raise no_such(mark("route"), route)
        return self._state(route, self.reader.accounts().get(route), self.toggle().get(route, {}))

    def _state(self, route: str, account: RouteAccount | None, split: Mapping[str, float]) -> RouteState:
        policy = self.policies.get(route)
        verdict = self._verdict(route)
        stale = verdict is not None and (policy is None or verdict.policy_hash != policy_hash(policy))
        serving = who_serves(policy, split)
        return RouteState(route, policy, verdict, self._ledger(route, account, verdict), serving, stale)

    def _verdict(self, route: str) -> Verdict | None:
        policy = self.policies.get(route)
        current = self.results.latest_verdict(route, policy_hash(policy)) if policy else None
        return current or self.results.latest_verdict(route)

    def _key(self, route: str) -> str:
        """Return the key of the measurements that are shown: of the last verdict, or today's where there is none."""
        policy, verdict = self.policies.get(route), self._verdict(route)
        if verdict is not None:
            return verdict.measurement_key
        return measurement_key(policy) if policy else ""

    def _ledger(self, route: str, account: RouteAccount | None, verdict: Verdict | None) -> Ledger:
        counts = self.results.counts(route, self._key(route))
        lost = counts.pop(NOT_COMPARED, 0)
        named = dict(verdict.coverage.not_comparable) if verdict else {}
        unnamed = lost - sum(named.values())
        if unnamed:  # measured since the verdict
            named = {**named, "not_named_yet": unnamed} if unnamed > 0 else {"not_comparable": lost}
        return build_ledger(account, self.reader.count(route), sum(counts.values()), named)

    def counts(self, route: str) -> Mapping[str, int]:
        """Return how many pairs each class has, by the names of ``compare.results``."""
        return self.results.counts(route, self._key(route))

    def pairs(self, route: str, chosen: PairFilter, offset: int, limit: int) -> tuple[list[Measurement], int]:
        """Return a stretch of the list of a filter, the worst first, and how long the list is."""
        key, counts = self._key(route), self.counts(route)
        mismatches = sum(counts.get(name, 0) for name in MISMATCH)
        if chosen.sifts:
            return self.results.find(route, key, chosen.wanted(), offset, limit)
        if chosen.show == "mismatch":  # they are the worst of all, so they are where the whole list begins
            limit = max(0, min(limit, mismatches - offset))
            return self.results.worst(route, key, offset=offset, limit=limit), mismatches
        if chosen.show == "all":
            return self.results.worst(route, key, offset=offset, limit=limit), sum(counts.values())
        found = self.results.worst(route, key, class_=chosen.show, offset=offset, limit=limit)
        return found, counts.get(chosen.show, 0)

    def ramp(self, route: str) -> RampState | None:
        """Return where a route's ramp is; ``None`` where the page knows no ramps, or none of this route."""
        if self.ramps is None or route not in self.policies:
            return None
        try:
            return self.ramps.state(route)
        except ValueError:  # the config file is broken, or lost the route: the page is no place to mend that
            return None

    def label(self, exchange: Exchange) -> Label | None:
        """Return what a person said of a pair last."""
        return self.labels.of(exchange.id)

    def progress(self) -> Mapping[str, Progress]:
        """Return how far the comparison has come on every route of the config."""
        return {
            route: Progress(self.reader.count(route), sum(self.results.counts(route, measurement_key(policy)).values()))
            for route, policy in self.policies.items()
        }

    def trend(self, route: str, now: datetime) -> tuple[Hour, ...]:
        """Return the last 24 hours of a route."""
        return read_trend(self.reader, self.results, route, self._key(route), now)

    def distribution(self, route: str) -> Distribution | None:
        """Return the latencies of a route's present epoch, as the comparison has folded them up to now."""
        policy = self.policies.get(route)
        return build_distribution(self.folds.load(policy).tally, policy) if policy is not None else None

    def accepted(self, route: str) -> Mapping[str, int]:
        """Return how many pairs of each diagnosis people called acceptable."""
        return self.labels.accepted(route)

    def exchange(self, exchange_id: str) -> Exchange:
        """Return an exchange. Raises a trouble when there is none."""
        found = self.reader.exchange(exchange_id)
        if found is None:
            raise no_such(mark("pair"), exchange_id)
        return found

    def measurement(self, exchange: Exchange) -> Measurement | None:
        """Return what the comparison found, ``None`` when it has not come to this exchange."""
        return self.results.measurement(exchange.id, self._key(exchange.route))

    def body(self, exchange: Exchange, role: str) -> Body | None:
        """Return a body by ``request``, ``primary``, ``shadow`` or ``control``."""
        if role == REQUEST:
            return exchange.request.body
        return next((o.body for each, o in exchange.observations() if each.value == role), None)

    def picture_bytes(self, exchange: Exchange, role: str) -> bytes | None:
        """Return what may be a picture: the body without its content encoding, of a form the part with the picture."""
        body = self.body(exchange, role)
        content = None if body is None else self._decoded(body)
        if content is None or body is None:
            return None
        return request_picture(Question(body.media_type, content)) if role == REQUEST else content

    def mask_bytes(self, exchange: Exchange) -> bytes | None:
        """Return the mask that came with an eraser's request."""
        body = exchange.request.body
        return request_mask(Question(body.media_type, self._decoded(body)))

    def bodies(self, exchange: Exchange) -> dict[str, BodyFacts]:
        """Return what is still there of every body of an exchange, by role; text is read of the answers only."""
        roles = [REQUEST, *(role.value for role, _ in exchange.observations())]
        return {role: self._facts(exchange, role) for role in roles}

    def _facts(self, exchange: Exchange, role: str) -> BodyFacts:
        body = self.body(exchange, role)
        if body is None:
            return BodyFacts()
        content = self._decoded(body)
        picture = describe_picture(self.picture_bytes(exchange, role) or b"")
        text = read_text(content, body.media_type) if role != REQUEST and picture is None else read_text(b"", "")
        return BodyFacts(content is not None, picture, text)

    def _decoded(self, body: Body) -> bytes | None:
        content = self.reader.load(body)
        if content is None:
            return None
        try:
            return decode_content(content, body.content_encoding, MAX_BODY_BYTES)
        except (CannotDecode, DamagedContent):
            return content

    def thumbs(self, exchange_id: str) -> tuple[tuple[tuple[str, str], ...], str]:
        """Return the (role, name) of the answers that a list can show as pictures, or a note why there are none. What a
        body says of its type is not believed."""
        exchange = self.reader.exchange(exchange_id)
        if exchange is None:
            return (), say("not stored")
        legs = orient(exchange, self.policies.get(exchange.route))
        contents = [(role.value, name, self.picture_bytes(exchange, role.value)) for role, name, *_ in legs]
        shown = tuple((role, name) for role, name, content in contents if content and describe_picture(content))
        if not shown and not any(content for *_, content in contents):
            return (), say("not kept any more")
        return shown, next((leg.body.media_type[:40] for *_, leg in legs if leg.body is not None), say("no body"))
