"""Where a gateway's exchanges go when workers make the shadow calls: into the stream, never waiting for room.

An exchange whose adding ended in an error after it was sent may be there or not: it stays in flight until the books say
which. So that an outage leaves few of those, nothing is sent to a Redis that failed until it has answered a ping, and
that is asked at most once each ``REST_S``; what comes meanwhile is refused at once.

The books: of what was handed over on a route, the store knows what was recorded, Redis what is still there and what
workers skipped. The rest is lost. They are read in the order handed over, Redis, store: what moves on between two
readings then counts twice, so that the loss is at worst told late, never too high. A Redis that lost its memory counts
what is skipped anew, on top of what was read of it before.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping

from redis.exceptions import RedisError, ResponseError

from shadow.account import Stamp
from shadow.delivery import Delivery, Held, believable
from shadow.errors import StoreError, StreamFull
from shadow.exchange import Exchange, SkipReason
from shadow.store.opening import Opened
from shadow.stream import Stream
from shadow.transit import pack

REST_S = 1.0


class _Rising:
    """Counts that are read from where they may begin anew; ``total`` never falls."""

    def __init__(self) -> None:
        self.total: Counter[SkipReason] = Counter()
        self._last: Mapping[SkipReason, int] = {}

    def read(self, counts: Mapping[SkipReason, int]) -> None:
        """Take note of what is there now."""
        for reason, count in counts.items():
            before = self._last.get(reason, 0)
            self.total[reason] += count - before if count >= before else count
        self._last = dict(counts)


class Outlet:
    """Hands exchanges over; an ``ExchangeStore`` to the mirror. ``clock`` is monotonic seconds; ``recorded`` reads from
    the store, blocking, how many exchanges of this run are stored, by route."""

    def __init__(
        self,
        stream: Stream,
        parts: Opened,
        run_id: str,
        recorded: Callable[[str], Mapping[str, int]],
        clock: Callable[[], float],
    ) -> None:
        self._stream = stream
        self._parts = parts
        self._run_id = run_id
        self._read_recorded = recorded
        self._clock = clock
        self._handed_over: Counter[str] = Counter()
        self._recorded: Mapping[str, int] = {}
        self._lost: Counter[str] = Counter()
        self._seen: dict[str, _Rising] = defaultdict(_Rising)
        self._skipped: dict[str, Mapping[SkipReason, int]] = {}
        self._down = False
        self._full = False
        self._rest_until_s = 0.0

    async def save(
        self, exchange: Exchange, secret_names: frozenset[str] = frozenset(), stamp: Stamp | None = None
    ) -> int:
        """Hand the exchange over. Raises ``StreamFull`` where there is no room, ``StoreError`` where Redis or the place
        for bodies fails. ``secret_names`` are the worker's to know: what travels is encrypted."""
        await self._check()
        stamp = stamp or Stamp(self._run_id, 0)
        try:
            parcel = await asyncio.to_thread(pack, exchange, stamp, self._parts)
        except OSError as error:
            raise StoreError(f"a body could not be put away: {error.strerror}") from error
        try:
            added = await self._stream.add(parcel, self._owner(exchange.route))
        except ResponseError as error:  # an answer: it is not there
            self._rest(down=True)
            raise StoreError(f"Redis refused: {error}") from error
        except (RedisError, OSError):
            self._rest(down=True)
            added = True
        if not added:
            self._rest(full=True)
            raise StreamFull("the stream has no room: the workers do not keep up")
        self._handed_over[exchange.route] += 1
        return 0

    async def settle(self) -> None:
        """Bring the books up to date; keep them as they are while Redis or the store does not answer."""
        handed_over = dict(self._handed_over)
        owners = {route: self._owner(route) for route in handed_over}
        try:
            held = await self._stream.held(list(owners.values()))
            recorded = await asyncio.to_thread(self._read_recorded, self._run_id)
        except (RedisError, OSError, StoreError):
            return
        self._recorded = recorded
        for route, owner in owners.items():
            self._seen[route].read(held[owner].skipped)
            stored = recorded.get(route, 0)
            self._skipped[route] = believable(self._seen[route].total, self._handed_over[route] - stored)
            known = held[owner].waiting + stored + sum(self._skipped[route].values())
            self._lost[route] = max(0, handed_over[route] - known)

    async def held(self, run_id: str, routes: list[str]) -> dict[str, Held]:
        """Return what Redis knows of a run, by route. Raises ``RedisError``."""
        owners = {route: f"{run_id}/{route}" for route in routes}
        held = await self._stream.held(list(owners.values()))
        return {route: held[owner] for route, owner in owners.items()}

    def deliveries(self, route: str) -> Delivery:
        """Return the books of one route as of the last settling."""
        recorded, skipped = self._recorded.get(route, 0), self._skipped.get(route, {})
        return Delivery(self._handed_over[route], recorded, self._lost[route], skipped)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._stream.aclose()

    async def _check(self) -> None:
        if self._clock() < self._rest_until_s:
            if self._full:
                raise StreamFull("the stream has no room: the workers do not keep up")
            raise StoreError("Redis does not answer")
        if self._down:
            try:
                await self._stream.ping()
            except (RedisError, OSError) as error:
                self._rest(down=True)
                raise StoreError(f"Redis does not answer: {type(error).__name__}") from error
        self._down = self._full = False

    def _rest(self, *, down: bool = False, full: bool = False) -> None:
        self._down, self._full = down, full
        self._rest_until_s = self._clock() + REST_S

    def _owner(self, route: str) -> str:
        return f"{self._run_id}/{route}"
