"""Where every request went: the gateway's account and the comparison's own, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from compare.phrases import plain, say
from shadow.account import RouteAccount


@dataclass(frozen=True, slots=True)
class Ledger:
    """``received = recorded + in_flight + skipped`` as the gateway counts, and of the stored rows ``stored = compared +
    not_comparable + waiting``. ``waiting`` are those that the comparison has not come to yet. What the gateway
    ``refused`` was not received and is in neither account."""

    received: int
    recorded: int
    in_flight: int
    skipped: tuple[tuple[str, int], ...]
    stored: int
    compared: int
    not_comparable: tuple[tuple[str, int], ...]
    refused: tuple[tuple[str, int], ...] = ()

    @property
    def refused_total(self) -> int:
        return sum(n for _, n in self.refused)

    @property
    def skipped_total(self) -> int:
        return sum(n for _, n in self.skipped)

    @property
    def not_comparable_total(self) -> int:
        return sum(n for _, n in self.not_comparable)

    @property
    def waiting(self) -> int:
        return self.stored - self.compared - self.not_comparable_total

    @property
    def unexplained(self) -> int:
        """Requests that the gateway's account does not explain: 0, or the account is wrong and the page says so."""
        return self.received - self.recorded - self.in_flight - self.skipped_total

    @property
    def empty(self) -> bool:
        return self.received == 0 and self.stored == 0 and not self.refused

    def steps(self) -> tuple[Step, ...]:
        """Return the lines of the funnel: first what stays, then each named loss under it."""
        whole = max(self.received, self.stored, 1)
        lines = [Step.of(say("received"), self.received, whole, lost=False)]
        lines += [Step.of(reason, n, whole, lost=True) for reason, n in self.skipped]
        lines += [Step.of(say("in flight"), self.in_flight, whole, lost=True)] if self.in_flight else []
        lines += [Step.of(say("recorded"), self.recorded, whole, lost=False)]
        lines += [Step.of(reason, n, whole, lost=True) for reason, n in self.not_comparable]
        lines += (
            [Step.of(say("waiting for the next comparison"), self.waiting, whole, lost=True)] if self.waiting else []
        )
        return (*lines, Step.of(say("compared"), self.compared, whole, lost=False))


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the funnel; ``width`` is percent of everything."""

    name: str
    count: int
    width: float
    lost: bool

    @classmethod
    def of(cls, name: str, count: int, whole: int, *, lost: bool) -> Step:
        return cls(name, count, 100 * count / whole, lost)


def build_ledger(account: RouteAccount | None, stored: int, compared: int, not_comparable: Mapping[str, int]) -> Ledger:
    """Return a route's ledger; losses of zero are left out, the largest come first."""
    account = account or RouteAccount()
    return Ledger(
        account.received,
        account.recorded,
        account.in_flight,
        _losses({reason.value: n for reason, n in account.skipped.items()}),
        stored,
        compared,
        _losses(not_comparable),
        _losses(account.refused),
    )


def add_ledgers(ledgers: Iterable[Ledger]) -> Ledger:
    """Return the sum over routes."""
    each = list(ledgers)
    skipped: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for ledger in each:
        skipped.update(dict(ledger.skipped))
        lost.update(dict(ledger.not_comparable))
        refused.update(dict(ledger.refused))
    return Ledger(
        sum(x.received for x in each),
        sum(x.recorded for x in each),
        sum(x.in_flight for x in each),
        _losses(skipped),
        sum(x.stored for x in each),
        sum(x.compared for x in each),
        _losses(lost),
        _losses(refused),
    )


def _losses(counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    named = [(plain(reason), n) for reason, n in counts.items() if n]
    return tuple(sorted(named, key=lambda item: (-item[1], item[0])))
