"""What a limit is, how it is written, and under which key a request counts. Pure.

A limit is written as the ``limits`` library reads it (``10/second``, ``5 per 2 minutes``). What it admits depends on
its strategy:

* ``moving-window``: its number in any span of its window, exactly, and never more.
* ``fixed-window``: its number in each window of the clock, so up to twice its number in a span across an edge.
* ``sliding-window-counter``: the number of the current window plus the share of the previous one that still overlaps,
  as if that had come evenly. At an edge nothing comes on top, but what came unevenly is forgotten at the even rate: up
  to twice its number in a span, the second half spread over it.

A key names the realm, the strategy, the window, the unit and the identity, and never the amount: a changed number goes
on with the count that is there. All keys of one request have the same hash tag (Redis Cluster specification): the
identity's where every limit of the configuration tells the same kind of identities apart, else one for all, because
one script must see them together. Names are hashed, so a brace or a separator in an identity changes nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from limits import RateLimitItem, parse_many

from gateway.settings import Concurrency, Limit

MEGABYTE = 1_000_000
MAX_AMOUNT = 1_000_000_000
MAX_WINDOW_S = 10 * 366 * 86_400
"""Beyond these a count would not fit a number of Redis's scripts, which has 53 bits."""

_NO_WINDOW = re.compile(r"(?:/|per)\s*0+\s*[a-z]", re.IGNORECASE)
PREFIX = "crossfade"
EVERYONE = "everyone"
CALLER = "caller"
ADDRESS = "address"
HEADER = "header:"
GATEWAY_REALM = "gateway"
KEY_REALM = "key"


class Strategy(StrEnum):
    """How a count is kept."""

    MOVING = "moving-window"
    FIXED = "fixed-window"
    SLIDING = "sliding-window-counter"
    SLOTS = "slots"


class Unit(StrEnum):
    """What is counted: the quota units of draft-ietf-httpapi-ratelimit-headers-10."""

    REQUESTS = "requests"
    BYTES = "content-bytes"
    SLOTS = "concurrent-requests"


@dataclass(frozen=True)
class Rule:
    """One limit. ``amount`` is in its unit (bytes, not megabytes); ``window_s`` is 0 for slots. ``per`` is who is
    counted together: ``caller``, ``address``, ``everyone`` or ``header:name`` in lower case. ``name`` is what clients
    read."""

    name: str
    amount: int
    window_s: int
    strategy: Strategy
    unit: Unit
    per: str
    realm: str
    dry_run: bool = False
    max_waiting: int = 0
    max_wait_s: float = 0.0

    @cached_property
    def policy(self) -> bytes:
        """The limit as an item of ``RateLimit-Policy`` (draft-ietf-httpapi-ratelimit-headers-10 section 3)."""
        unit = f';qu="{self.unit.value}"' if self.unit is not Unit.REQUESTS else ""
        window = f";w={self.window_s}" if self.window_s else ""
        return f'"{self.name}";q={self.amount}{unit}{window}'.encode("ascii")

    @cached_property
    def state(self) -> bytes:
        """The limit's name as an item of ``RateLimit`` begins (section 4), up to the number that is left."""
        return f'"{self.name}";r='.encode("ascii")

    @property
    def place(self) -> tuple[str, ...]:
        """What tells this count from all others of the same identity."""
        return self.realm, self.per, self.strategy, str(self.window_s), self.unit, "dry" if self.dry_run else ""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one request costs under one rule, and the key that it counts under."""

    rule: Rule
    key: str
    cost: int


@dataclass(frozen=True, slots=True)
class Visit:
    """What the limits ask of a request. ``identities`` maps each ``per`` that the rules name to an unambiguous name;
    ``content_bytes`` is the size of its body."""

    identities: Mapping[str, str]
    cost: int
    content_bytes: int


def parse_quota(text: str) -> tuple[RateLimitItem, ...]:
    """Parse limits such as ``10/second`` or ``5 per 2 minutes``. Raises ``ValueError`` naming a text that is not
    valid."""
    try:
        items = tuple(parse_many(text))
    except ValueError as error:
        raise ValueError(f"'{text}' is no limit") from error
    if _NO_WINDOW.search(text) or any(item.amount < 1 for item in items):  # the library takes "per 0" for "per 1"
        raise ValueError(f"a limit must admit at least one request in at least one second: '{text}'")
    if any(item.amount > MAX_AMOUNT or item.get_expiry() > MAX_WINDOW_S for item in items):
        raise ValueError(f"a limit is at most {MAX_AMOUNT} in at most {MAX_WINDOW_S} seconds: '{text}'")
    return items


def make_rules(limits: Iterable[str | Limit], *, realm: str, default_strategy: str) -> tuple[Rule, ...]:
    """Return the rules of one realm. Raises ``ValueError`` for what means nothing, and for two that share a count."""
    rules: list[Rule] = []
    for written in limits:
        limit = Limit(written) if isinstance(written, str) else written
        rules += [_rule(item, limit, realm, default_strategy) for item in parse_quota(limit.quota)]
    _refuse_twins(rules)
    return tuple(rules)


def slots_rule(concurrency: Concurrency, *, route: str) -> Rule:
    """Return the rule of a concurrency limit. Several routes with the same ``name`` share its slots."""
    _check_per(concurrency.per)
    if concurrency.slots < 1:
        raise ValueError("a concurrency limit needs at least one slot")
    return Rule(
        name=f"{concurrency.slots} at once",
        amount=concurrency.slots,
        window_s=0,
        strategy=Strategy.SLOTS,
        unit=Unit.SLOTS,
        per=concurrency.per.lower(),
        realm=f"slots {concurrency.name}" if concurrency.name else f"route {route}",
        dry_run=concurrency.dry_run,
        max_waiting=concurrency.max_waiting,
        max_wait_s=concurrency.max_wait_s,
    )


def charges_of(rules: Sequence[Rule], visit: Visit, *, spread: bool) -> tuple[Charge, ...]:
    """Return what the visit costs under each rule. A rule that it costs nothing under is left out.

    Raises ``ValueError`` for a cost below one: it would give something back.
    """
    if visit.cost < 1 or visit.content_bytes < 0:
        raise ValueError("a request costs at least one")
    if not rules:
        return ()
    tag = _digest((visit.identities[rules[0].per],)) if spread else "all"
    return tuple(
        Charge(rule, f"{PREFIX}:{{{tag}}}:{_digest((*rule.place, visit.identities[rule.per]))}", cost)
        for rule in rules
        if (cost := _cost(rule, visit)) > 0
    )


def can_spread(rules: Iterable[Rule]) -> bool:
    """Say whether identities can be spread over the slots of a cluster: all rules tell the same kind apart."""
    kinds = {rule.per for rule in rules}
    return len(kinds) == 1 and EVERYONE not in kinds


def _rule(item: RateLimitItem, limit: Limit, realm: str, default_strategy: str) -> Rule:
    try:
        strategy = Strategy(limit.strategy or default_strategy)
    except ValueError:
        strategy = Strategy.SLOTS
    if strategy is Strategy.SLOTS or limit.unit not in ("request", "megabyte"):
        raise ValueError(f"limit '{limit.quota}': unknown strategy or unit: {limit.strategy}, {limit.unit}")
    _check_per(limit.per)
    in_bytes = limit.unit == "megabyte"
    window_s = item.get_expiry()
    words = [f"{item.amount}{'MB' if in_bytes else ''}/{window_s}s"]
    words += [limit.per.lower().replace(":", " ")] if limit.per != CALLER else []
    words += [strategy.value] if strategy is not Strategy.MOVING else []  # a client should know of the burst
    words += [kind] if (kind := realm.partition(" ")[0]) in (GATEWAY_REALM, KEY_REALM) else []
    return Rule(
        name=" ".join(words),
        amount=item.amount * (MEGABYTE if in_bytes else 1),
        window_s=window_s,
        strategy=strategy,
        unit=Unit.BYTES if in_bytes else Unit.REQUESTS,
        per=limit.per.lower(),
        realm=realm,
        dry_run=limit.dry_run,
    )


def _check_per(per: str) -> None:
    if per not in (CALLER, ADDRESS, EVERYONE) and not (per.startswith(HEADER) and len(per) > len(HEADER)):
        raise ValueError(f"a limit is per caller, address, everyone or header:NAME, not '{per}'")


def _refuse_twins(rules: Sequence[Rule]) -> None:
    seen: set[tuple[str, ...]] = set()
    for rule in rules:
        if rule.place in seen:
            raise ValueError(f"limit '{rule.name}': another limit here has the same window; keep the lower of the two")
        seen.add(rule.place)


def _cost(rule: Rule, visit: Visit) -> int:
    match rule.unit:
        case Unit.REQUESTS:
            return visit.cost
        case Unit.BYTES:
            return visit.content_bytes
        case Unit.SLOTS:
            return 1


def _digest(parts: Sequence[str]) -> str:
    """Return a short name for these parts, the same for no others: each goes in with its length."""
    text = "".join([f"{len(part)}:{part}" for part in parts])
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
