"""A mirror on a bench: real transport, real sockets, a store in memory, and the teardown every mirror test owes."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import IO

import httpx

from gateway.app import TRANSPORTS
from shadow.account import AccountSnapshot, Stamp
from shadow.call import Target
from shadow.errors import StoreError
from shadow.exchange import Body, Exchange, Headers, Observation, Request, SkipReason
from shadow.mirror import Mirror, MirrorRoute
from shadow.rule import MirrorLimits, ShadowRule
from shadow.spool import Spool
from shadow.tee import ByteBudget

ALL = ShadowRule(percent=100, methods=frozenset({"GET", "HEAD", "POST", "PUT", "DELETE"}))
LIMITS = MirrorLimits(max_concurrent=4)
NOON = datetime(2026, 5, 4, 12, tzinfo=UTC)


def body_of(*chunks: bytes, media_type: str = "", content_encoding: str = "") -> Body:
    """Return a kept body made of these chunks."""
    whole = b"".join(chunks)
    return Body(hashlib.sha256(whole).hexdigest(), len(whole), media_type, content_encoding, chunks)


def exchange_of(
    id: str = "id-1",  # noqa: A002 - the field's name
    *,
    route: str = "classify",
    method: str = "POST",
    target: bytes = b"/v1/classify",
    headers: Headers = ((b"Host", b"api.example"),),
    body: Body | None = None,
    served_by: str = "cloud",
    skipped: SkipReason | None = None,
) -> Exchange:
    """Return an exchange as the gateway hands it over."""
    primary = Observation(
        served_by, "http://cloud", 200, ((b"Content-Type", b"text/plain"),), body_of(b"yes"), 0.1, 0.2
    )
    request = Request(method, target, headers, body or body_of(b"pic", b"ture"))
    return Exchange(id, route, NOON, request, primary, skipped=skipped)


class MemoryStore:
    """Keeps exchanges in a list; fails, or waits for a gate, when told to."""

    def __init__(self) -> None:
        self.saved: list[Exchange] = []
        self.failing = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.entered = asyncio.Event()

    async def save(
        self, exchange: Exchange, secret_names: frozenset[str] = frozenset(), stamp: Stamp | None = None
    ) -> int:
        self.entered.set()
        await self.gate.wait()
        if self.failing:
            raise StoreError("the disk is full")
        if any(body.on_disk for body in exchange.bodies()):
            exchange = await asyncio.to_thread(_in_memory, exchange)
        self.saved.append(replace(exchange, sequence=len(self.saved) + 1))
        return len(self.saved)


def _in_memory(exchange: Exchange) -> Exchange:
    """Return the exchange as it can be read back: bodies on disk are read, as a store's writer reads them."""

    def read(body: Body) -> Body:
        return replace(body, chunks=tuple(body), on_disk=False) if body.on_disk else body

    def leg(seen: Observation | None) -> Observation | None:
        return seen and replace(seen, body=seen.body and read(seen.body))

    primary = leg(exchange.primary)
    assert primary is not None
    request = replace(exchange.request, body=read(exchange.request.body))
    return replace(
        exchange, request=request, primary=primary, shadow=leg(exchange.shadow), control=leg(exchange.control)
    )


class Bench:
    """Sends exchanges as the gateway would: bytes reserved, receipts counted independently of the mirror."""

    def __init__(self, mirror: Mirror, store: MemoryStore, budget: ByteBudget, disk: Spool) -> None:
        self.disk = disk
        self.mirror = mirror
        self.store = store
        self.budget = budget
        self.received: Counter[str] = Counter()
        self.expected_defects = 0

    def send(self, exchange: Exchange) -> None:
        assert self.budget.try_reserve(exchange.held_bytes)
        self.received[exchange.route] += 1
        self.mirror.tap(exchange)
        assert self.received[exchange.route] == self.account(exchange.route).tapped

    async def drained(self, within_s: float = 30.0) -> None:
        """Wait until nothing is in flight."""
        async with asyncio.timeout(within_s):
            await self.mirror.drain()

    async def mirrored(self, exchange: Exchange) -> Exchange:
        """Send one exchange and return what was stored of it."""
        before = len(self.store.saved)
        self.send(exchange)
        await self.drained()
        assert len(self.store.saved) == before + 1, dict(self.account(exchange.route).skipped)
        return self.store.saved[-1]

    async def shadowed(self, exchange: Exchange | None = None) -> Observation:
        """Send one exchange and return what its shadow did."""
        stored = await self.mirrored(exchange or exchange_of())
        assert stored.shadow is not None
        return stored.shadow

    def account(self, route: str = "classify") -> AccountSnapshot:
        return self.mirror.accounts()[route]

    def skipped(self, route: str = "classify") -> dict[SkipReason, int]:
        return dict(self.account(route).skipped)


def targets_of(candidate: str, baseline: str = "http://127.0.0.1:9", timeout_s: float = 30.0) -> dict[str, Target]:
    """Return the two targets of the bench's routes."""
    return {
        "cloud": Target("cloud", (baseline,), timeout_s),
        "onprem": Target("onprem", (candidate,), timeout_s, connect_timeout_s=timeout_s / 2),
    }


def routes_of(rule: ShadowRule, *names: str) -> dict[str, MirrorRoute]:
    """Return routes of these names, all with cloud as baseline and onprem as candidate."""
    return {name: MirrorRoute("cloud", "onprem", rule) for name in names}


@asynccontextmanager
async def mirroring(
    targets: dict[str, Target],
    *,
    rule: ShadowRule = ALL,
    limits: MirrorLimits = LIMITS,
    routes: tuple[str, ...] = ("classify",),
    clock: Callable[[], float] = time.monotonic,
    started: bool = True,
    deadline_s: float = 30.0,
    transport: httpx.AsyncBaseTransport | None = None,
    open_file: Callable[[], IO[bytes]] | None = None,
) -> AsyncIterator[Bench]:
    """Run a mirror; at the end check that every receipt is accounted for and nothing is left behind."""
    budget = ByteBudget(limits.byte_budget_bytes)
    store = MemoryStore()
    transport = transport or TRANSPORTS[os.environ.get("CROSSFADE_TEST_TRANSPORT", "own")]()
    disk = Spool(
        budget, above_bytes=limits.spool_above_bytes, total_bytes=limits.spool_budget_bytes, open_file=open_file
    )
    mirror = Mirror(
        transport=transport, store=store, budget=budget, limits=limits, clock=clock, rng=random.Random(7), disk=disk
    )
    mirror.configure(routes_of(rule, *routes), targets)
    bench = Bench(mirror, store, budget, disk)
    if started:
        await mirror.start()
    try:
        yield bench
    finally:
        await mirror.aclose(deadline_s)
        await transport.aclose()
        await disk.aclose()
        await asyncio.sleep(0)  # what the writer thread gave back last
    _check_the_books(bench)


def _check_the_books(bench: Bench) -> None:
    assert bench.received.total() > 0
    accounts = bench.mirror.accounts()
    for route, received in bench.received.items():
        account = accounts[route]
        assert received == account.recorded + account.in_flight + sum(account.skipped.values())
        assert account.in_flight == 0
    assert sum(account.recorded for account in accounts.values()) == len(bench.store.saved)
    status = bench.mirror.status()
    assert (status["queued"], status["in_flight"], status["defects"]) == (0, 0, bench.expected_defects)
    assert (bench.budget.used_bytes, bench.disk.disk.used_bytes) == (0, 0)
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("mirror-")]
