"""The account of a route: nothing that came in may vanish.

Of the requests that reached the mirror, each is counted once as ``in_flight`` and leaves that state exactly once, to
``recorded`` or to one reason of ``skipped``. The gateway counts ``received`` on its own, so that the identity
``received = recorded + in_flight + sum(skipped)`` compares two independent counts and can fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from shadow.exchange import SkipReason


def _nothing_skipped() -> Mapping[SkipReason, int]:
    return MappingProxyType({})


def _nothing_refused() -> Mapping[str, int]:
    return MappingProxyType({})


_OFTEN_STORED = (SkipReason.STORE_FAILED, SkipReason.SHUTDOWN, SkipReason.LOST)
"""What may be stored in spite of its name: the answer to a commit never came, or nobody waited for it any more."""


def skips_of(told: Mapping[str, int]) -> Mapping[SkipReason, int]:
    """Return counts that were written by name, perhaps by another version, by reason."""
    found = Counter[SkipReason]()
    for name, count in told.items():
        found[SkipReason(name)] += count
    return MappingProxyType(dict(found))


@dataclass(frozen=True, slots=True)
class AccountSnapshot:
    """What the mirror did with the exchanges of one route, at one moment."""

    recorded: int = 0
    in_flight: int = 0
    skipped: Mapping[SkipReason, int] = field(default_factory=_nothing_skipped)

    @property
    def tapped(self) -> int:
        """All exchanges that the mirror was given."""
        return self.recorded + self.in_flight + sum(self.skipped.values())


@dataclass(frozen=True, slots=True)
class RouteAccount:
    """A route's account as it is stored: ``received`` and ``in_flight`` are the gateway's, which also counts the
    requests that it still serves and has not handed to the mirror.

    ``refused`` stands beside the identity: what the gateway turned away before it was received (a limit, no key, a body
    that is said to be too large), by the stable code of the problem.
    """

    received: int = 0
    recorded: int = 0
    in_flight: int = 0
    skipped: Mapping[SkipReason, int] = field(default_factory=_nothing_skipped)
    refused: Mapping[str, int] = field(default_factory=_nothing_refused)

    @property
    def balanced(self) -> bool:
        """Whether the identity holds."""
        return self.received == self.recorded + self.in_flight + sum(self.skipped.values())

    def mended(self) -> RouteAccount:
        """Return it without a negative number in flight: so many are stored that were counted as skipped as well."""
        if self.in_flight >= 0:
            return self
        skipped, twice = Counter(self.skipped), -self.in_flight
        for reason in (*_OFTEN_STORED, *self.skipped):
            taken = min(twice, skipped[reason])
            skipped[reason] -= taken
            twice -= taken
        return replace(self, in_flight=-twice, skipped=MappingProxyType(dict(+skipped)))

    def ended(self) -> RouteAccount:
        """Return it as that of a run that is gone: what it had in flight is lost."""
        if not self.in_flight:
            return self
        skipped = {**self.skipped, SkipReason.LOST: self.skipped.get(SkipReason.LOST, 0) + self.in_flight}
        return replace(self, in_flight=0, skipped=MappingProxyType(skipped))

    def plus(self, other: RouteAccount) -> RouteAccount:
        """Return both accounts as one."""
        return together((self, other))

    def minus(self, part: RouteAccount) -> RouteAccount:
        """Return what is left without an account that is part of it."""
        return RouteAccount(
            self.received - part.received,
            self.recorded - part.recorded,
            self.in_flight - part.in_flight,
            MappingProxyType(dict(Counter(self.skipped) - Counter(part.skipped))),
            MappingProxyType(dict(Counter(self.refused) - Counter(part.refused))),
        )


def together(accounts: Iterable[RouteAccount]) -> RouteAccount:
    """Return all accounts as one."""
    received = recorded = in_flight = 0
    skipped, refused = Counter[SkipReason](), Counter[str]()
    for account in accounts:
        received += account.received
        recorded += account.recorded
        in_flight += account.in_flight
        for reason, count in account.skipped.items():
            skipped[reason] += count
        for code, count in account.refused.items():
            refused[code] += count
    return RouteAccount(received, recorded, in_flight, MappingProxyType(dict(skipped)), MappingProxyType(dict(refused)))


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a run of the gateway had received and skipped on a route when it gave an exchange away to be stored.

    It goes into the same transaction as the exchange, so the stored account never knows less than the stored rows:
    ``received - recorded - sum(skipped)`` of a run that was killed is then what it had in flight.
    """

    run_id: str
    received: int
    skipped: Mapping[SkipReason, int] = field(default_factory=_nothing_skipped)


class Account:
    """The running counters of one route. Owned by the mirror, touched on its event loop only."""

    def __init__(self) -> None:
        self._recorded = 0
        self._in_flight = 0
        self._skipped: Counter[SkipReason] = Counter()

    def begin(self) -> None:
        """Count an exchange that is now under way; ``record`` or ``drop`` ends it."""
        self._in_flight += 1

    def record(self) -> None:
        """Count an exchange under way as stored."""
        self._in_flight -= 1
        self._recorded += 1

    def drop(self, reason: SkipReason) -> None:
        """Count an exchange under way as lost for the reason."""
        self._in_flight -= 1
        self._skipped[reason] += 1

    def skip(self, reason: SkipReason) -> None:
        """Count an exchange that never got under way."""
        self._skipped[reason] += 1

    def snapshot(self) -> AccountSnapshot:
        """Return the counters as a value."""
        return AccountSnapshot(self._recorded, self._in_flight, MappingProxyType(dict(self._skipped)))
