"""Send recorded requests again and keep the answers as a run of their own.

Theory of operation. Open loop: a request is sent when it is due, whether or not those before it were answered, so a
slow backend gets no rest and its queue shows (Schroeder, Wierman, Harchol-Balter, NSDI 2006). ``concurrency`` bounds
what is under way; a request that has to wait for it is counted as *held back*, because from then on the load is no
longer the recorded one. A reader thread keeps a few requests ready, so that the disk is not part of the gaps. Each
answer is stored with the recorded one under the route ``ROUTE~NAME``, in the account of that run; what the store
refuses is counted.

``stop`` ends the sending. What is under way is awaited for ``GRACE_S``, then cut and counted as ``shutdown``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from crossfade.replay.recorded import MARK, Recorded
from crossfade.replay.speed import Schedule, Speed
from shadow.account import RouteAccount, Stamp
from shadow.call import Caller, Target
from shadow.errors import StoreError
from shadow.exchange import Exchange, Observation, Role, SkipReason
from shadow.rule import ShadowRule
from shadow.store.store import Store
from shadow.tee import ByteBudget

GRACE_S = 5.0
_READY = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is. ``name`` tells it from other runs of the route."""

    name: str
    route: str
    speed: Speed
    passes: int = 1
    concurrency: int = 32
    max_s: float | None = None

    @property
    def run_route(self) -> str:
        """The route that the run is stored under."""
        return f"{self.route}{MARK}{self.name}"


@dataclass(slots=True)
class Outcome:
    """What a run has done so far. ``recorded_s`` and ``replayed_s`` are the durations of whole answers, in seconds.
    ``cut_short``: its time was over, or a person ``stopped`` it, before all was sent."""

    sent: int = 0
    stored: int = 0
    held_back: int = 0
    not_stored: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    recorded_s: list[float] = field(default_factory=list)
    replayed_s: list[float] = field(default_factory=list)
    late_s: float = 0.0
    cut_short: bool = False
    stopped: bool = False


class Replay:
    """One run. Owns nothing: store, caller and budget are closed by whoever made them."""

    def __init__(
        self,
        plan: Plan,
        target: Target,
        rule: ShadowRule,
        store: Store,
        caller: Caller,
        budget: ByteBudget,
        progress: Callable[[Outcome], None],
    ) -> None:
        self._plan, self._target, self._rule = plan, target, rule
        self._store, self._caller, self._budget, self._progress = store, caller, budget, progress
        self._stop = asyncio.Event()
        self._slots = asyncio.Semaphore(plan.concurrency)
        self._sending: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.outcome = Outcome()

    def stop(self) -> None:
        """Send nothing more."""
        self.outcome.stopped = True
        self._stop.set()
        if self._sending is not None:
            self._sending.cancel()

    async def run(self, recorded: Recorded) -> Outcome:
        """Send everything, wait for the answers, write the account. Raises ``StoreError`` when the record cannot be
        read."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as under_way:
                self._sending = under_way.create_task(self._send(recorded, under_way), name="replay-sending")
                if self._plan.max_s is not None:
                    loop.call_later(self._plan.max_s, self._sending.cancel)
                await asyncio.wait((self._sending,))
                self.outcome.cut_short = self._sending.cancelled()
                await self._end()
        except ExceptionGroup as group:  # the group's own wrapping of what ended it
            raise group.exceptions[0] from group
        finally:
            if self.outcome.sent:  # else there is no run, and its name is free
                await self._save_account()
        return self.outcome

    async def _send(self, recorded: Recorded, under_way: asyncio.TaskGroup) -> None:
        """Send each request when it is due. Cancelled when nothing more is to be sent."""
        clock = asyncio.get_running_loop().time
        schedule, began = Schedule(self._plan.speed), clock()
        async for exchange in self._requests(recorded, schedule):
            due_s = schedule.due_s(exchange.received_at)
            await asyncio.sleep(began + due_s - clock())
            if self._slots.locked():
                self.outcome.held_back += 1
            await self._slots.acquire()
            self.outcome.late_s = max(self.outcome.late_s, clock() - began - due_s)
            self.outcome.sent += 1
            number = self.outcome.sent
            self._tasks.add(task := under_way.create_task(self._one(exchange, number), name=f"replay-{number}"))
            task.add_done_callback(self._tasks.discard)

    async def _requests(self, recorded: Recorded, schedule: Schedule) -> AsyncIterator[Exchange]:
        for number in range(self._plan.passes):
            if number:
                schedule.again()
            async for exchange in _read_ahead(recorded.requests()):
                yield exchange

    async def _end(self) -> None:
        """Wait for what is under way; of a run that was stopped, or is now, not for long."""
        if not self._tasks:
            return
        stopping = asyncio.create_task(self._stop.wait(), name="replay-stop")
        answered = asyncio.create_task(_all(self._tasks), name="replay-answers")
        await asyncio.wait((stopping, answered), return_when=asyncio.FIRST_COMPLETED)
        if not answered.done():
            await asyncio.wait((answered,), timeout=GRACE_S)
        stopping.cancel()
        answered.cancel()
        for task in list(self._tasks):
            task.cancel()

    async def _one(self, exchange: Exchange, number: int) -> None:
        made = replace(exchange, id=f"{self._plan.name}-{number}-{exchange.id}", route=self._plan.run_route)
        try:
            answer = await self._caller.observe(made, self._target, self._rule, Role.SHADOW)
            try:
                await self._keep(replace(made, shadow=answer, control=None, skipped=None), exchange.primary)
            finally:
                self._budget.release(answer.body.held_bytes if answer.body is not None else 0)
        finally:
            self._slots.release()
        self._progress(self.outcome)

    async def _keep(self, made: Exchange, recorded: Observation) -> None:
        outcome, answer = self.outcome, made.shadow
        assert answer is not None
        if answer.failed:
            kind = answer.failure.kind.value if answer.failure is not None else f"status {answer.status}"
            outcome.failures[kind] = outcome.failures.get(kind, 0) + 1
        elif answer.total_s is not None:
            outcome.replayed_s.append(answer.total_s)
        if not recorded.failed and recorded.total_s is not None:
            outcome.recorded_s.append(recorded.total_s)
        try:
            await self._store.save(made, self._rule.secret_names, Stamp(self._plan.name, outcome.sent, self._skipped()))
            outcome.stored += 1
        except StoreError:
            outcome.not_stored += 1

    def _skipped(self) -> dict[SkipReason, int]:
        return {SkipReason.STORE_FAILED: self.outcome.not_stored} if self.outcome.not_stored else {}

    async def _save_account(self) -> None:
        outcome = self.outcome
        skipped = self._skipped()
        cut = outcome.sent - outcome.stored - outcome.not_stored
        if cut:
            skipped[SkipReason.SHUTDOWN] = cut
        account = RouteAccount(outcome.sent, outcome.stored, 0, skipped)
        await self._store.save_accounts(self._plan.name, {self._plan.run_route: account})


async def _all(tasks: Iterable[asyncio.Task[None]]) -> bool:
    await asyncio.wait(list(tasks))
    return True


async def _read_ahead(requests: Iterator[Exchange]) -> AsyncIterator[Exchange]:
    """Yield what the iterator gives, read on another thread and a few ahead. Raises what it raises."""
    ready: asyncio.Queue[Exchange | Exception | None] = asyncio.Queue(_READY)

    async def read() -> None:
        try:
            while (exchange := await asyncio.to_thread(next, requests, None)) is not None:
                await ready.put(exchange)
            await ready.put(None)
        except Exception as error:  # a task's boundary: whoever reads the queue raises it
            await ready.put(error)

    reading = asyncio.create_task(read(), name="replay-reader")
    try:
        while (found := await ready.get()) is not None:
            if isinstance(found, Exception):
                raise found
            yield found
    finally:
        reading.cancel()
        await asyncio.wait({reading})
