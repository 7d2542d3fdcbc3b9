"""Settle the accounts of runs that were killed: what they had received and nobody can have any more is ``lost``.

Of a dead run its slate knows what was received and skipped, the store what is recorded, and with workers Redis what
waits there and what they skipped. The rest is lost. They are read in the order slate, Redis, store: what moves on
between two readings then counts twice, so that a loss is at worst told late, never too high. As long as something waits
in the stream the estate is *open* and settled anew each time; then it is *closed* and its slate removed. Settling
writes whole accounts, so that an heir who dies between the two costs nothing: the next one writes the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from redis.exceptions import RedisError

from shadow.account import RouteAccount
from shadow.delivery import Held, believable
from shadow.errors import StoreError
from shadow.exchange import SkipReason
from shadow.slate import Counts, DeadSlate, Slate, SlateFolder

AskRedis = Callable[[str, list[str]], Awaitable[Mapping[str, Held]]]
"""Given a run and its routes, say what is held of each. Raises ``RedisError``."""

_log = logging.getLogger(__name__)


class AccountStore(Protocol):
    """Where accounts go."""

    async def save_accounts(self, run_id: str, routes: Mapping[str, RouteAccount]) -> None:
        """Bring the accounts of a run up to date. Raises ``StoreError``."""


@dataclass(slots=True, eq=False)
class _Estate:
    """``accounts`` are that of the run together with what it had taken over itself."""

    slate: DeadSlate
    is_open: bool = True
    accounts: dict[str, RouteAccount] = field(default_factory=dict)

    @property
    def runs(self) -> int:
        return self.slate.runs_before + 1


class Estates:
    """The runs that this one took over, for one event loop. ``own`` is this run's slate; ``recorded`` reads from the
    store, blocking, what is stored of a run, by route; ``held`` asks Redis, where there is one."""

    def __init__(
        self,
        folder: SlateFolder | None,
        own: Slate,
        store: AccountStore,
        recorded: Callable[[str], Mapping[str, int]],
        held: AskRedis | None,
    ) -> None:
        self._folder = folder
        self._own = own
        self._store = store
        self._recorded = recorded
        self._held = held
        self._estates: list[_Estate] = []

    @property
    def runs(self) -> int:
        """How many killed runs these are, with those that they had taken over."""
        return sum(estate.runs for estate in self._estates)

    def account(self, route: str) -> RouteAccount:
        """Return the account of all runs that were taken over."""
        total = RouteAccount()
        for estate in self._estates:
            total = total.plus(estate.accounts.get(route, RouteAccount()))
        return total

    async def look_round(self, patience_s: float) -> None:
        """Take over the runs that are gone for ``patience_s``, and settle what is open. What cannot be settled now,
        because the store or Redis is away, stays open."""
        if self._folder is not None:
            with suppress(OSError):  # the next look may succeed
                found = await asyncio.to_thread(self._folder.take_dead, patience_s)
                self._estates += [_Estate(slate) for slate in found]
        for estate in self._estates:
            if estate.is_open:
                with suppress(StoreError, RedisError, OSError):
                    await self._settle(estate)

    def close(self) -> None:
        """Leave what is open to the next run."""
        for estate in self._estates:
            if estate.is_open:
                estate.slate.let_go()

    async def _settle(self, estate: _Estate) -> None:
        slate = estate.slate
        held = await self._held(slate.run_id, list(slate.routes)) if self._held is not None else {}
        recorded = await asyncio.to_thread(self._recorded, slate.run_id)
        accounts = {
            route: settled(counts, recorded.get(route, 0), held.get(route, Held()))
            for route, counts in slate.routes.items()
        }
        await self._store.save_accounts(slate.run_id, accounts)
        before = {route: _closed(counts) for route, counts in slate.before.items()}
        routes = accounts.keys() | before.keys()
        none = RouteAccount()
        estate.accounts = {route: accounts.get(route, none).plus(before.get(route, none)) for route in routes}
        if not any(account.in_flight for account in accounts.values()):
            estate.is_open = False
            self._own.inherit(estate.runs, estate.accounts)
            await asyncio.to_thread(slate.remove)
            lost = sum(account.skipped.get(SkipReason.LOST, 0) for account in accounts.values())
            _log.warning("a gateway was killed; %d requests were under way and are counted as lost", lost)


def _closed(counts: Counts) -> RouteAccount:
    """Return the account of which nothing is in flight: what was not skipped is recorded."""
    return RouteAccount(counts.received, counts.received - sum(counts.skipped.values()), 0, counts.skipped)


def settled(counts: Counts, recorded: int, held: Held) -> RouteAccount:
    """Return the account of a dead run of which so many are stored, and what Redis holds of it."""
    skipped = Counter(counts.skipped)
    skipped.update(believable(held.skipped, counts.received - recorded - skipped.total() - held.waiting))
    left = counts.received - recorded - skipped.total()
    in_flight = min(held.waiting, left)
    if left > in_flight:
        skipped[SkipReason.LOST] += left - in_flight
    return RouteAccount(counts.received, recorded, in_flight, MappingProxyType(dict(skipped))).mended()
