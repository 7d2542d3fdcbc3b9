"""The mirror: send a copy of what the client asked to the backend that did not answer it, and keep both answers.

Theory of operation. ``tap`` is called on the event loop after the client has its answer. It either counts the
exchange as skipped or puts it into the bounded queue; it never awaits and never raises. ``max_concurrent`` workers
take jobs from the queue: each that waits there has a permit in ``_queued``, or is among the ``_held_up`` while its
route has its share of the places (``shadow/places.py``). A job makes the shadow call, then, when sampled, the control
call (one after the other, so that the second does not disturb the latency of the first). Then it is saved
(``shadow/saving.py``), and its worker goes on. Whatever happens, a job is settled exactly once: counted as recorded or
under one reason, its bytes given back to the budget.

A job keeps the targets it was tapped with, whatever ``configure`` brings later. On ``aclose`` new exchanges are
counted as ``shutdown``, the rest drains until the deadline, calls still under way are then cut, but a save that has
begun is waited for: a row that is written must be a row that is counted.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import httpx

from shadow.account import Account, AccountSnapshot, Stamp
from shadow.breaker import Breaker
from shadow.call import Caller, Target
from shadow.courtesy import LARGE_BYTES, NO_COURTESY, Courtesy
from shadow.exchange import Exchange, FailureKind, Role, SkipReason
from shadow.lanes import Lanes
from shadow.places import Places, Room
from shadow.rule import MirrorLimits, ShadowRule
from shadow.saving import ExchangeStore, Saver
from shadow.selection import wants_control
from shadow.spool import is_whole, let_go
from shadow.tee import ByteBudget, Disk

SAVE_GRACE_S = 15.0
"""How long ``aclose`` waits for a save that has begun; above the store's own wait for a locked database."""

SAVES_AT_ONCE = 128
"""Exchanges that the store is given at once, as many as it writes in one batch; the others wait with the workers."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MirrorRoute:
    """The pair of backends of one route, by name, and its rule."""

    baseline: str
    candidate: str
    rule: ShadowRule

    def other(self, backend: str) -> str | None:
        """Return the one that gets the copy of what this backend answered; ``None`` for one that is not of the pair."""
        return {self.baseline: self.candidate, self.candidate: self.baseline}.get(backend)

    @property
    def is_mirrored(self) -> bool:
        """Whether either of the two may get a copy at all."""
        return self.rule.percent > 0 or bool(self.rule.both_ways and self.rule.back_percent)


@dataclass(slots=True, eq=False)
class _Job:
    exchange: Exchange
    rule: ShadowRule
    target: Target
    baseline: Target
    breaker: Breaker
    tapped_s: float
    memory_bytes: int
    disk_bytes: int


class Mirror:
    """Mirrors exchanges in the background. Owned by the gateway's lifespan: ``start``, then ``aclose``.

    ``budget`` is the one that the tees reserved from: every tapped exchange hands its reservation over. ``transport``
    is not closed here; its pool must allow ``limits.max_concurrent`` connections per server and must not retry.
    Without one nobody is called here: the store is then what hands the exchanges on to those who do. ``stamp`` returns
    the account of the exchange's run and route as of now, to be stored with it; ``settled`` is told, once for each
    exchange, that it is recorded (``None``) or why it is not.
    Large answers go to ``disk``, large requests are sent with ``courtesy``.
    """

    def __init__(
        self,
        *,
        transport: httpx.AsyncBaseTransport | None,
        store: ExchangeStore,
        budget: ByteBudget,
        limits: MirrorLimits,
        clock: Callable[[], float],
        rng: random.Random,
        stamp: Callable[[Exchange], Stamp] | None = None,
        settled: Callable[[Exchange, SkipReason | None], None] | None = None,
        disk: Disk | None = None,
        courtesy: Courtesy = NO_COURTESY,
    ) -> None:
        self._courtesy = courtesy
        self._disk = disk
        self._settled = settled
        self._caller = Caller(transport, budget, clock, rng, disk) if transport is not None else None
        at_once = SAVES_AT_ONCE if transport is not None else limits.max_concurrent
        self._saver = Saver(store, at_once, stamp, self._note_defect)
        self._budget = budget
        self._limits = limits
        self._clock = clock
        self._routes: Mapping[str, MirrorRoute] = {}
        self._targets: Mapping[str, Target] = {}
        self._breakers: Mapping[str, Breaker] = {}
        self._accounts: dict[str, Account] = {}
        self._lanes: Lanes[_Job] = Lanes(limits.max_queued)
        self._places = Places(limits.max_concurrent)
        self._memory_room = Room(lambda: budget.free_bytes)
        self._disk_room = Room(lambda: disk.free_bytes if disk is not None else 0)
        self._queued = asyncio.Semaphore(0)
        self._held_up = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._pending = 0
        self._defects = 0
        self._workers: list[asyncio.Task[None]] = []
        self._closed = False
        self._stopping = False

    def configure(self, routes: Mapping[str, MirrorRoute], targets: Mapping[str, Target]) -> None:
        """Replace routes and targets at once. Raises ``ValueError``, changing nothing, when a route names no target.

        A target that stays the same keeps the state of its breaker.
        """
        for name, route in routes.items():
            missing = {route.baseline, route.candidate} - targets.keys()
            if missing:
                raise ValueError(f"route {name!r} names an unknown target: {', '.join(sorted(missing))}")
        self._breakers = {
            name: self._breakers[name]
            if self._targets.get(name) == target
            else Breaker(self._limits.breaker_failures, self._limits.breaker_reset_s)
            for name, target in targets.items()
        }
        self._routes, self._targets = dict(routes), dict(targets)
        self._places.shared = sum(route.is_mirrored for route in routes.values()) > 1
        while self._held_up:
            self._let_one_try()
        for name in routes:
            self._accounts.setdefault(name, Account())

    def tap(self, exchange: Exchange) -> None:
        """Take over an exchange and the bytes reserved for it. Never waits, never raises."""
        try:
            self._accept(exchange)
        except Exception:
            self._note_defect("tap failed", exchange)

    def blocks(self, route: str, backend: str) -> bool:
        """Whether a copy of what this backend is asked would be skipped now, because the breaker of its target is open:
        then none need be kept."""
        known = self._routes.get(route)
        other = known.other(backend) if known is not None else None
        return other is not None and self._breakers[other].blocks(self._clock())

    async def start(self) -> None:
        """Start the workers."""
        self._workers = [
            asyncio.create_task(self._work(), name=f"mirror-worker-{number}")
            for number in range(self._limits.max_concurrent)
        ]

    async def drain(self) -> None:
        """Wait until nothing is in flight."""
        await self._idle.wait()

    async def aclose(self, deadline_s: float) -> None:
        """Drain for at most ``deadline_s``, count what is left as ``shutdown``, and end the workers."""
        self._closed = True
        if self._workers:
            with suppress(TimeoutError):
                async with asyncio.timeout(deadline_s):
                    await self.drain()
        self._stopping = True
        for job in self._lanes.drain():
            self._settle(job, SkipReason.SHUTDOWN)
        for worker in self._workers:
            worker.cancel()
        await _join([*self._workers, *self._saver.tasks])
        self._workers = []

    def accounts(self) -> Mapping[str, AccountSnapshot]:
        """Return the account of every route seen so far."""
        return {name: account.snapshot() for name, account in self._accounts.items()}

    def skipped(self, route: str) -> Mapping[SkipReason, int]:
        """Return what of one route was skipped, by reason."""
        account = self._accounts.get(route)
        return account.snapshot().skipped if account is not None else {}

    def status(self) -> dict[str, object]:
        """Return what the mirror holds and does now, as plain values for the status page.

        ``in_flight`` includes what is queued; ``defects`` counts errors of our own that were caught and logged.
        """
        return {
            "queued": len(self._lanes),
            "in_flight": self._pending,
            "budget_used_bytes": self._budget.used_bytes,
            "budget_total_bytes": self._budget.total_bytes,
            "disk_used_bytes": self._disk.used_bytes if self._disk is not None else 0,
            "breakers": {name: breaker.state.value for name, breaker in self._breakers.items()},
            "store_works": self._saver.works,
            "defects": self._defects,
        }

    def _accept(self, exchange: Exchange) -> None:
        job = self._plan(exchange)
        account = self._accounts.get(exchange.route)
        if account is None:
            account = self._accounts[exchange.route] = Account()
        if isinstance(job, SkipReason):
            account.skip(job)
            self._release(exchange)
            self._tell(exchange, job)
            return
        account.begin()
        self._memory_room.take(exchange.route, job.memory_bytes)
        self._disk_room.take(exchange.route, job.disk_bytes)
        self._pending += 1
        self._idle.clear()
        displaced = self._lanes.offer(exchange.route, job)
        if displaced is None:
            self._queued.release()
        else:
            self._settle(displaced, SkipReason.QUEUE_FULL)

    def _plan(self, exchange: Exchange) -> _Job | SkipReason:
        if exchange.skipped is not None:
            return exchange.skipped
        if self._closed:
            return SkipReason.SHUTDOWN
        route = self._routes.get(exchange.route)
        if route is None:  # removed by a reload while the request was under way: nothing asks for a mirror any more
            return SkipReason.NOT_SAMPLED
        other = route.other(exchange.primary.backend)
        if other is None:
            return SkipReason.FELL_BACK
        if exchange.request.body.size_bytes and exchange.request.body.chunks is None:
            return SkipReason.BUDGET_FULL
        if self._breakers[other].blocks(self._clock()):
            return SkipReason.BREAKER_OPEN
        if self._places.shared and self._fills_room(exchange.route):
            return SkipReason.QUEUE_FULL
        target, baseline, tapped_s = self._targets[other], self._targets[route.baseline], self._courtesy.clock()
        disk_bytes = sum(body.size_bytes for body in exchange.bodies() if body.on_disk)
        breaker, memory_bytes = self._breakers[other], exchange.held_bytes
        return _Job(exchange, route.rule, target, baseline, breaker, tapped_s, memory_bytes, disk_bytes)

    def _fills_room(self, route: str) -> bool:
        return self._memory_room.is_filled_by(route) or self._disk_room.is_filled_by(route)

    async def _work(self) -> None:
        while not self._stopping:
            await self._queued.acquire()
            await self._serve_next()

    async def _serve_next(self) -> None:
        # A call of its own, so that a waiting worker holds no reference to the bodies of its last job.
        job = self._lanes.take(lambda job: self._places.may_take(job.exchange.route))
        if job is None:
            self._held_up += 1
            return
        self._places.take(job.exchange.route)
        try:
            await self._serve(job)
        except Exception:
            self._note_defect("mirroring failed", job.exchange)
        finally:
            self._places.give_back(job.exchange.route)
            if self._held_up:
                self._let_one_try()

    def _let_one_try(self) -> None:
        self._held_up -= 1
        self._queued.release()

    async def _serve(self, job: _Job) -> None:
        outcome: SkipReason | None = SkipReason.LOST
        try:
            outcome = await self._make_pair(job)
            if outcome is None:
                await self._saver.take_place()
        except asyncio.CancelledError:
            outcome = SkipReason.SHUTDOWN
            raise
        finally:
            if outcome is not None:
                self._settle(job, outcome)
        if outcome is None:
            self._saver.begin(job.exchange, job.rule.secret_names, partial(self._settle, job))

    async def _make_pair(self, job: _Job) -> SkipReason | None:
        if not (await is_whole(job.exchange.request.body) and await is_whole(job.exchange.primary.body)):
            return SkipReason.BUDGET_FULL  # the disk that they were to wait on failed
        if job.exchange.request.body.size_bytes > LARGE_BYTES:
            await self._courtesy.pause(job.tapped_s)
        turn = job.breaker.admit(self._clock())
        if not turn:
            return SkipReason.BREAKER_OPEN
        if self._caller is not None:
            skipped = await self._call_shadow(job, turn, self._caller)
            if skipped is not None:
                return skipped
            await self._call_control(job, self._caller)
        return None

    async def _call_shadow(self, job: _Job, turn: int, caller: Caller) -> SkipReason | None:
        """Call the shadow; return why not, where nobody was asked. That the breakers of all its servers are open counts
        for ours as well, so that nothing is kept in vain."""
        try:
            shadow = await caller.observe(job.exchange, job.target, job.rule, Role.SHADOW)
        except BaseException:
            job.breaker.abandon(turn)
            raise
        kind = shadow.failure.kind if shadow.failure is not None else None
        if kind is FailureKind.CANCELLED:
            job.breaker.abandon(turn)
            return SkipReason.BUDGET_FULL
        if kind is FailureKind.CONNECT:
            job.breaker.fail(turn, self._clock())
        else:
            job.breaker.succeed(turn)
        if not shadow.server:
            return SkipReason.BREAKER_OPEN
        job.exchange = job.exchange.with_leg(Role.SHADOW, shadow)
        return None

    async def _call_control(self, job: _Job, caller: Caller) -> None:
        if wants_control(job.rule, job.exchange.id):
            control = await caller.observe(job.exchange, job.baseline, job.rule, Role.CONTROL)
            was_cancelled = control.failure is not None and control.failure.kind is FailureKind.CANCELLED
            if control.server and not was_cancelled:
                job.exchange = job.exchange.with_leg(Role.CONTROL, control)

    def _settle(self, job: _Job, reason: SkipReason | None) -> None:
        account = self._accounts[job.exchange.route]
        if reason is None:
            account.record()
        else:
            account.drop(reason)
        self._memory_room.give_back(job.exchange.route, job.memory_bytes)
        self._disk_room.give_back(job.exchange.route, job.disk_bytes)
        self._pending -= 1
        if not self._pending:
            self._idle.set()
        self._release(job.exchange)
        self._tell(job.exchange, reason)

    def _tell(self, exchange: Exchange, reason: SkipReason | None) -> None:
        if self._settled is not None:
            self._settled(exchange, reason)

    def _release(self, exchange: Exchange) -> None:
        let_go(exchange.request.body)
        for leg in (exchange.primary, exchange.shadow, exchange.control):
            if leg is not None:
                let_go(leg.body)
        try:
            self._budget.release(exchange.held_bytes)
        except ValueError:  # never reserved: a defect, but no reason to stop whoever settles
            self._note_defect("budget out of balance", exchange)

    def _note_defect(self, event: str, exchange: Exchange) -> None:
        self._defects += 1
        _log.exception("%s (exchange %s)", event, exchange.id)


async def _join(tasks: list[asyncio.Task[None]]) -> None:
    if not tasks:
        return
    _, stuck = await asyncio.wait(tasks, timeout=SAVE_GRACE_S)
    for task in stuck:
        task.cancel()
    if stuck:
        await asyncio.wait(stuck)
