"""Takes exchanges from the stream, has them mirrored and stored, and tells the stream when each is done.

Theory of operation. A worker takes as many entries as it can call at once, first those that another was given too long
ago (it died), then new ones. An entry is *taken*, its bodies are reserved and loaded, and the mirror has it; when the
exchange is stored the entry is *done*. Until then it is *held*: the stream hears now and then that it is in hand,
however long the call lasts. At least once: a worker that dies before it is done leaves an entry that is mirrored again,
and the store keeps an exchange once by its id. What could not be stored, or was not begun, is *given back* as if nobody
had had it, so that an outage of the store loses nothing, however long. An entry that was given ``MAX_DELIVERIES`` times
in spite of that (it ends whoever takes it), or that can never be opened, is given up: its gateway then finds it neither
there nor recorded and counts it as lost, until one who still had it may yet store it. What the mirror skips, say
because the shadow refuses connections, is done too, and Redis counts why, for its gateway.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from shadow.account import Stamp
from shadow.errors import CorruptBody, StoreError
from shadow.exchange import Exchange, SkipReason
from shadow.store.opening import Opened
from shadow.stream import Entry, Stream
from shadow.tee import ByteBudget
from shadow.transit import Unpacked, unpack

MAX_DELIVERIES = 5
WAIT_S = 1.0
REST_S = 1.0
GIVE_BACK = frozenset({SkipReason.STORE_FAILED, SkipReason.SHUTDOWN, SkipReason.QUEUE_FULL})
"""Reasons of the mirror's that are no fault of the entry. After ``LOST``, a defect of ours, it stays as it is: another
attempt may end the same way."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Taken:
    entry: Entry
    unpacked: Unpacked


@dataclass(slots=True)
class Work:
    """What a worker did. ``returned`` exchanges stay in the stream for another attempt; of the ``recorded`` ones the
    shadow ``failed`` so many."""

    taken: int = 0
    recorded: int = 0
    failed: int = 0
    returned: int = 0
    given_up: int = 0
    skipped: Counter[SkipReason] = field(default_factory=Counter)


class Worker:
    """Built on the running loop. ``tap`` is the mirror's, which tells ``settled`` about each exchange; ``stamp_of`` is
    for the mirror as well. ``budget`` is shared with the mirror, which releases what is reserved here."""

    def __init__(
        self,
        stream: Stream,
        parts: Opened,
        budget: ByteBudget,
        *,
        name: str,
        at_once: int,
        claim_after_s: float,
    ) -> None:
        self._stream = stream
        self._parts = parts
        self._budget = budget
        self._name = name
        self._at_once = at_once
        self._claim_after_s = claim_after_s
        self._taken: dict[str, _Taken] = {}
        self._next: list[Entry] = []
        self._changed = asyncio.Event()
        self._finished: asyncio.Queue[tuple[_Taken, SkipReason | None]] = asyncio.Queue()
        self._troubled = False
        self._pause = False
        self.stopping = False
        self.work = Work()

    @property
    def in_flight(self) -> int:
        """Exchanges that were taken and are not done."""
        return len(self._taken)

    def stamp_of(self, exchange: Exchange) -> Stamp:
        """Return the stamp that came with the exchange."""
        return self._taken[exchange.id].unpacked.stamp

    def settled(self, exchange: Exchange, reason: SkipReason | None) -> None:
        """Take note of what became of an exchange; called by the mirror."""
        taken = self._taken.pop(exchange.id)
        self._pause = reason is SkipReason.STORE_FAILED
        self._count(exchange, reason)
        if reason is not SkipReason.LOST:
            self._finished.put_nowait((taken, reason))
        self._changed.set()

    async def run(self, tap: Callable[[Exchange], None]) -> None:
        """Take entries until ``stopping``; then return, leaving what is under way to the mirror."""
        while not self.stopping:
            try:
                await self._stream.found_group()
                while not self.stopping:
                    await self._take_some(tap)
            except (RedisError, OSError) as error:
                self._note(error)
                await asyncio.sleep(REST_S)

    async def hold(self) -> None:
        """Tell the stream now and then what is in hand, so that nobody takes it over, for as long as this runs."""
        while True:
            await asyncio.sleep(self._claim_after_s / 3)
            entries = [*self._next, *(taken.entry for taken in self._taken.values())]
            with suppress(RedisError, OSError):
                await self._stream.hold(self._name, entries)

    async def report(self) -> None:
        """Tell the stream what is done, for as long as this runs."""
        while True:
            await self._report_one(*await self._finished.get())

    async def flush(self) -> None:
        """Tell the stream what is left to tell, after the mirror has ended, and leave it."""
        with suppress(RedisError, OSError):
            while not self._finished.empty():
                await self._tell(*self._finished.get_nowait())
            await self._stream.leave(self._name)

    def _count(self, exchange: Exchange, reason: SkipReason | None) -> None:
        if reason is None:
            self.work.recorded += 1
            self.work.failed += exchange.shadow is not None and exchange.shadow.failure is not None
        elif reason in GIVE_BACK or reason is SkipReason.LOST:
            self.work.returned += 1
        else:
            self.work.skipped[reason] += 1

    async def _take_some(self, tap: Callable[[Exchange], None]) -> None:
        free = self._at_once - len(self._taken)
        if not free or self._pause:
            self._pause = False
            self._changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), REST_S)
            return
        claimed = await self._stream.claim(self._name, free, self._claim_after_s)
        self._next = claimed or await self._stream.read(self._name, free, WAIT_S)
        self._note(None)
        for entry in self._next:
            if entry in claimed and await self._stream.deliveries(entry) > MAX_DELIVERIES:
                await self._give_up(entry, "it was tried too often")
            else:
                await self._begin(entry, tap)
        self._next = []

    async def _begin(self, entry: Entry, tap: Callable[[Exchange], None]) -> None:
        if entry.parcel.exchange_id in self._taken:
            return  # given to us a second time while the first is under way
        if entry.parcel.size_bytes > self._budget.total_bytes:
            await self._give_up(entry, "it is larger than mirror.byte_budget_bytes of this worker")
            return
        # Before it is loaded: answers of other calls reserve from the same budget meanwhile.
        while not self._budget.try_reserve(entry.parcel.size_bytes):
            if self.stopping:
                await self._stream.give_back(self._name, entry)
                return
            self._changed.clear()
            with suppress(TimeoutError):  # the disk may free room without a word to us
                await asyncio.wait_for(self._changed.wait(), REST_S)
        held_bytes = 0
        try:
            unpacked = await asyncio.to_thread(unpack, entry.parcel, self._parts)
            held_bytes = unpacked.exchange.held_bytes
        except CorruptBody as error:
            await self._give_up(entry, str(error))
            return
        except (LookupError, TypeError, ValueError):  # it stays as it is, for whoever claims it next
            self.work.returned += 1
            _log.error("exchange %s is not of this version and left to another worker", entry.parcel.exchange_id)
            return
        except (StoreError, OSError) as error:
            _log.error("exchange %s cannot be loaded now: %s", entry.parcel.exchange_id, error)
            self._pause = True
            await self._stream.give_back(self._name, entry)
            return
        finally:
            self._budget.release(entry.parcel.size_bytes - held_bytes)
        self.work.taken += 1
        self._taken[entry.parcel.exchange_id] = _Taken(entry, unpacked)
        tap(unpacked.exchange)

    async def _give_up(self, entry: Entry, why: str) -> None:
        self.work.given_up += 1
        _log.error("exchange %s is given up: %s", entry.parcel.exchange_id, why)
        await self._stream.done(entry)

    async def _report_one(self, taken: _Taken, reason: SkipReason | None) -> None:
        while True:
            try:
                await self._tell(taken, reason)
            except (RedisError, OSError) as error:
                self._note(error)
                await asyncio.sleep(REST_S)
            else:
                break
        if reason in GIVE_BACK:
            return
        with suppress(StoreError, OSError):  # else they go with their day
            await asyncio.to_thread(self._parts.objects.delete, taken.unpacked.objects)

    async def _tell(self, taken: _Taken, reason: SkipReason | None) -> None:
        if reason in GIVE_BACK:
            await self._stream.give_back(self._name, taken.entry)
        else:
            await self._stream.done(taken.entry, reason)

    def _note(self, error: Exception | None) -> None:
        # One line per change of state.
        if self._troubled is (error is None):
            self._troubled = error is not None
            _log.log(
                logging.ERROR if error else logging.INFO,
                "Redis %s",
                f"does not answer: {type(error).__name__}" if error else "answers",
            )
