"""The mirror with all it needs (store, disk, transport, account), built for one lifespan, closed in reverse order.

The only module of the gateway that knows the mirror and the store. The relay sees a tap and two budgets.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import datetime

import httpx

from gateway.fleet import Fleet
from gateway.generation import Server
from gateway.mirror_servers import MirrorServers
from gateway.observe import Ledger
from gateway.settings import Settings
from gateway.tasks import keep_running
from gateway.traffic import Traffic
from gateway.trimming import keep_trimming
from shadow.courtesy import NO_COURTESY, Courtesy
from shadow.errors import StoreError
from shadow.estate import Estates
from shadow.exchange import Exchange
from shadow.mirror import Mirror, MirrorRoute
from shadow.outlet import Outlet
from shadow.rule import MirrorLimits, StreamRule
from shadow.slate import Slate, SlateFolder
from shadow.spool import Spool, nameless_files
from shadow.store.store import Store
from shadow.stream import Stream
from shadow.tee import ByteBudget

MIRROR_DRAIN_S = 10.0
ACCOUNTS_EVERY_S = 1.0
HEIRLESS_AFTER_S = 10.0
"""After how long a killed run is taken over by one that was not started in its place."""
PURGE_EVERY_S = 3600.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the mirror is given by the gateway. ``clock`` is monotonic seconds, ``now`` UTC; ``route_names`` may be
    called once the gateway runs; ``run_id`` names this run in the store; the ``first`` of several workers purges."""

    traffic: Traffic
    fleet: Fleet
    clock: Callable[[], float]
    now: Callable[[], datetime]
    rng: random.Random
    run_id: str
    route_names: Callable[[], list[str]]
    first: bool


class Mirroring:
    """A running mirror. ``budget`` and ``disk`` are what the tees of the relay reserve from."""

    def __init__(
        self,
        mirror: Mirror,
        store: Store,
        outlet: Outlet | None,
        budget: ByteBudget,
        disk: Spool,
        slates: SlateFolder | None,
        slate: Slate,
        around: Surroundings,
    ) -> None:
        self.budget = budget
        self.disk = disk
        held = outlet.held if outlet is not None else None
        self._estates = Estates(slates, slate, store, store.reader().recorded, held)
        self.ledger = Ledger(around.traffic, mirror, outlet.deliveries if outlet is not None else None, self._estates)
        self._outlet = outlet
        self._mirror = mirror
        self._store = store
        self._around = around
        self._servers = MirrorServers(around.fleet, around.clock, around.rng)

    @classmethod
    async def start(
        cls, settings: Settings, transport: httpx.AsyncBaseTransport | None, around: Surroundings, stack: AsyncExitStack
    ) -> Mirroring:
        """Open the store and start the mirror; ``stack`` closes all. ``transport`` is the mirror's alone, so that a
        shadow can never take a connection from production; with a stream there is none. Raises ``StoreError``."""
        courtesy = Courtesy(lambda: around.traffic.total_open > 0)
        store = await _open_store(settings, around, courtesy)
        stack.push_async_callback(store.aclose)
        budget, disk = open_memory(settings.mirror, stack, courtesy)
        outlet = _open_outlet(settings.stream, store, around) if settings.stream is not None else None
        if outlet is not None:
            stack.push_async_callback(outlet.aclose)
        slates, slate = await asyncio.to_thread(_open_slate, settings, around.run_id)
        around.traffic.watch(slate.receive)
        mirror = Mirror(
            transport=transport,
            store=outlet or store,
            budget=budget,
            limits=settings.mirror,
            clock=around.clock,
            rng=around.rng,
            stamp=lambda exchange: mirroring.ledger.stamp(around.run_id, exchange.route),
            settled=slate.settled,
            disk=disk,
            courtesy=courtesy,
        )
        mirroring = cls(mirror, store, outlet, budget, disk, slates, slate, around)
        stack.push_async_callback(mirroring._close_books, slate)  # the last word, after the mirror has drained
        await mirror.start()
        stack.push_async_callback(mirror.aclose, MIRROR_DRAIN_S)
        return mirroring

    def configure(self, settings: Settings, servers: Mapping[str, Sequence[Server]]) -> None:
        """Take up routes and backends. Raises ``ValueError``, changing nothing, when they do not fit."""
        configure(settings, servers, self._mirror, self._servers, self._store)

    async def keep_books(self, stack: AsyncExitStack) -> None:
        """Settle what killed runs left; then save the accounts and delete what is too old, now and then, until the
        stack is closed."""
        await self._estates.look_round(0.0)
        keep_running(stack, self._keep_accounts(), "accounts")
        if self._around.first:
            keep_running(stack, _purge_bodies(self._store), "purge")

    def tap(self, exchange: Exchange) -> None:
        """Take over an exchange. Never waits, never raises."""
        self._mirror.tap(exchange)

    def blocks(self, route: str, backend: str) -> bool:
        """Whether nothing that this backend is asked now will be mirrored, because the other one refuses."""
        return self._mirror.blocks(route, backend)

    async def _keep_accounts(self) -> None:
        """Write the accounts now and then, so that after a crash what was lost can be told by its number."""
        while True:
            await self._save_accounts()
            await asyncio.sleep(ACCOUNTS_EVERY_S)
            await self._estates.look_round(HEIRLESS_AFTER_S)

    async def _save_accounts(self) -> bool:
        if self._outlet is not None:
            await self._outlet.settle()
        try:
            # Also of routes that a reload removed: what of them is still on its way changes their accounts.
            routes = {*self._around.route_names(), *self._around.traffic.routes()}
            accounts = self.ledger.accounts(sorted(routes))
            await self._store.save_accounts(self._around.run_id, accounts)
        except StoreError:  # the mirror logs a store that fails
            return False
        return True

    async def _close_books(self, slate: Slate) -> None:
        saved = await self._save_accounts()
        self._estates.close()
        slate.close(keep=not saved)


def configure(
    settings: Settings, servers: Mapping[str, Sequence[Server]], mirror: Mirror, chosen: MirrorServers, store: Store
) -> None:
    """Let a mirror work by these settings. Raises ``ValueError``, changing nothing, when they do not fit."""
    routes = {route.name: MirrorRoute(route.baseline, route.candidate, route.shadow) for route in settings.routes}
    targets = {name: chosen.target(backend, servers[name]) for name, backend in settings.backends.items()}
    mirror.configure(routes, targets)
    chosen.configure(settings.backends)
    store.configure({route.name: route.keep for route in settings.routes})


def _open_outlet(rule: StreamRule, store: Store, around: Surroundings) -> Outlet:
    reader = store.reader()
    stream = Stream(rule.url, max_length=rule.max_length, max_bytes=rule.max_bytes)
    return Outlet(stream, reader.parts, around.run_id, reader.recorded, around.clock)


def _open_slate(settings: Settings, run_id: str) -> tuple[SlateFolder | None, Slate]:
    """Return where slates are, and this run's own; one that does not outlive the process where that can't be."""
    folder, store_url = settings.mirror.slate_dir, settings.store_url
    if folder is None or store_url is None:
        return None, Slate()
    try:
        slates = SlateFolder.open(folder, store_url)
        return slates, slates.begin(run_id)
    except OSError as error:
        _log.warning(
            "mirror.slate_dir %s cannot be used (%s): if this process is killed, what it received after the account "
            "was last saved, up to a second before, will be in no count",
            folder,
            error.strerror or error,
        )
        return None, Slate()


async def _open_store(settings: Settings, around: Surroundings, courtesy: Courtesy) -> Store:
    assert settings.store_url is not None, "checked"
    assert settings.bodies_dir is not None, "checked"
    return await asyncio.to_thread(
        Store.open,
        settings.store_url,
        settings.bodies_dir,
        settings.keep_bodies_days,
        key=settings.store_key,
        now=around.now,
        courtesy=courtesy,
    )


def open_memory(
    limits: MirrorLimits, stack: AsyncExitStack, courtesy: Courtesy = NO_COURTESY
) -> tuple[ByteBudget, Spool]:
    """Return the budget of all bodies that wait, whose memory is given back afterwards, and where large ones go when it
    is scarce; ``stack`` closes both."""
    budget = ByteBudget(limits.byte_budget_bytes)
    disk = Spool(
        budget,
        above_bytes=limits.spool_above_bytes,
        total_bytes=limits.spool_budget_bytes,
        spare_bytes=limits.byte_budget_bytes // 2,
        courtesy=courtesy,
        open_file=nameless_files(limits.spool_dir),
    )
    stack.push_async_callback(disk.aclose)
    keep_running(stack, keep_trimming(budget), "trimming")
    return budget, disk


async def _purge_bodies(store: Store) -> None:
    """Delete the bodies that are older than they may be kept, at the start and then every hour."""
    while True:
        try:
            await store.purge()
        except (StoreError, OSError) as error:
            _log.error("old bodies could not be deleted: %s", error)
        await asyncio.sleep(PURGE_EVERY_S)
