"""The stream of exchanges in Redis, between many gateways and many workers. Redis 6.2 or newer.

An entry holds one parcel. Whoever adds asks for room first, in the same script, so that neither length nor bytes ever
exceed their bounds; whoever is done with an entry acknowledges, deletes and uncounts it in one script, once.
``pending`` counts, for each run of a gateway and route, the entries that are there, and a hash of its own what workers
skipped, by reason: what a gateway added and is in neither, nor stored, was lost, with a Redis that died or because
somebody trimmed the stream. Whoever asks sees first that the counts fit the stream. Those hashes go ``SKIPPED_KEPT_S``
after anybody read or wrote them.

All keys carry one hash tag, so that they live on the same node of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as TimedOut

from shadow.account import skips_of
from shadow.delivery import Held
from shadow.exchange import SkipReason
from shadow.transit import Parcel

STREAM, BYTES, PENDING = "{crossfade}:exchanges", "{crossfade}:bytes", "{crossfade}:pending"
SKIPPED = "{crossfade}:skipped:"
SKIPPED_KEPT_S = 7 * 86400
GROUP = "workers"
MAX_RECOUNTED = 20_000
GONE_AFTER_S = 86400
CONNECT_TIMEOUT_S = 1.0
TIMEOUT_S = 3.0

_FOUND = """
redis.call('XDEL', KEYS[1], '0-0')
return redis.pcall('XGROUP', 'CREATE', KEYS[1], ARGV[1], '0', 'MKSTREAM')
"""
"""Begins with a write that needs no memory: what follows in a script is then done also where memory is at its limit,
and only with a group can the stream that fills it be emptied."""

_ADD = """
local length, bytes = redis.call('XLEN', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or '0')
if length == 0 and bytes ~= 0 then
  redis.call('DEL', KEYS[2], KEYS[3])
  bytes = 0
end
if length >= tonumber(ARGV[1]) or bytes + tonumber(ARGV[3]) > tonumber(ARGV[2]) then return 0 end
redis.call('XADD', KEYS[1], '*', 'id', ARGV[5], 'day', ARGV[6], 'size', ARGV[3], 'owner', ARGV[4], 'sealed', ARGV[7])
redis.call('INCRBY', KEYS[2], ARGV[3])
redis.call('HINCRBY', KEYS[3], ARGV[4], 1)
return 1
"""

_DONE = """
if redis.call('XACK', KEYS[1], ARGV[1], ARGV[2]) == 0 then return 0 end
if redis.call('XDEL', KEYS[1], ARGV[2]) == 1 then
  redis.call('DECRBY', KEYS[2], ARGV[3])
  if redis.call('HINCRBY', KEYS[3], ARGV[4], -1) <= 0 then redis.call('HDEL', KEYS[3], ARGV[4]) end
end
if ARGV[5] ~= '' then
  redis.call('HINCRBY', KEYS[4], ARGV[5], 1)
  redis.call('EXPIRE', KEYS[4], ARGV[6])
end
return 1
"""

_RECOUNT = """
local length, bytes, counted = redis.call('XLEN', KEYS[1]), tonumber(redis.call('GET', KEYS[2]) or '0'), 0
for _, count in ipairs(redis.call('HVALS', KEYS[3])) do counted = counted + count end
if (counted == length and (bytes > 0) == (length > 0)) or length > tonumber(ARGV[1]) then return end
redis.call('DEL', KEYS[2], KEYS[3])
local from = '-'
repeat
  local entries = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 100)
  for _, entry in ipairs(entries) do
    local fields = {size = '', owner = ''}
    for place = 1, #entry[2], 2 do fields[entry[2][place]] = entry[2][place + 1] end
    redis.call('INCRBY', KEYS[2], #fields.size < 16 and string.match(fields.size, '^%d+$') or 0)
    redis.call('HINCRBY', KEYS[3], fields.owner, 1)
    from = '(' .. entry[1]
  end
until #entries < 100
"""
"""Reads the whole stream, but only where the counts do not fit it, nor where it is longer than ``MAX_RECOUNTED``: so
many may take Redis a second."""

_LEAVE = """
for _, told in ipairs(redis.call('XINFO', 'CONSUMERS', KEYS[1], ARGV[1])) do
  local worker = {}
  for place = 1, #told, 2 do worker[told[place]] = told[place + 1] end
  if worker.pending == 0 and (worker.name == ARGV[2] or worker.idle > tonumber(ARGV[3])) then
    redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], worker.name)
  end
end
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A parcel in the stream. ``owner`` is the run and route that it counts for."""

    key: str
    owner: str
    parcel: Parcel


class Stream:
    """One connection pool to the stream. Every method raises ``RedisError`` in bounded time."""

    def __init__(self, url: str, *, max_length: int, max_bytes: int) -> None:
        self._redis: Any = Redis.from_url(
            url,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            socket_timeout=TIMEOUT_S,
            # Nothing is tried again, but what failed so ends its connection: also where a primary became a replica, or
            # it would refuse every entry for as long as that lasts.
            retry=Retry(NoBackoff(), 0, (Disconnected, TimedOut, ResponseError)),
        )
        self._max_length = max_length
        self._max_bytes = max_bytes
        self._found = self._redis.register_script(_FOUND)
        self._add = self._redis.register_script(_ADD)
        self._done = self._redis.register_script(_DONE)
        self._recount = self._redis.register_script(_RECOUNT)
        self._leave = self._redis.register_script(_LEAVE)

    async def ping(self) -> None:
        """See that Redis answers."""
        await self._redis.ping()

    async def add(self, parcel: Parcel, owner: str) -> bool:
        """Add the parcel; ``False`` when there is no room. After an error it may have been added or not."""
        bounds = (self._max_length, self._max_bytes)
        told = (parcel.size_bytes, owner, parcel.exchange_id, parcel.day, parcel.sealed)
        return bool(await self._add(keys=[STREAM, BYTES, PENDING], args=[*bounds, *told]))

    async def held(self, owners: list[str]) -> dict[str, Held]:
        """Return what is there of each owner and what of it was skipped, all as of one moment. What a person or an
        eviction took out of the stream counts no longer, for anybody."""
        await self._recount(keys=[STREAM, BYTES, PENDING], args=[MAX_RECOUNTED])
        if not owners:
            return {}
        async with self._redis.pipeline(transaction=True) as together:
            together.hmget(PENDING, owners)
            for owner in owners:
                together.hgetall(SKIPPED + owner)
                together.expire(SKIPPED + owner, SKIPPED_KEPT_S)
            counts, *hashes = await together.execute()
        return {
            owner: Held(int(count or 0), skips_of({reason.decode(): int(n) for reason, n in skipped.items()}))
            for owner, count, skipped in zip(owners, counts, hashes[::2], strict=True)
        }

    async def backlog(self) -> tuple[int, int]:
        """Return how many entries were given to a worker that is not done with them, and how many to none yet."""
        async with self._redis.pipeline(transaction=True) as together:
            together.xlen(STREAM)
            together.xpending(STREAM, GROUP)
            length, given = await together.execute()
        pending = min(int(given["pending"]), int(length))  # what somebody took out of the stream may still be given
        return pending, int(length) - pending

    async def found_group(self) -> None:
        """Make the group of workers, where there is none."""
        try:
            await self._found(keys=[STREAM], args=[GROUP])
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

    async def read(self, worker: str, count: int, wait_s: float) -> list[Entry]:
        """Take the next entries that nobody was given yet; wait for the first."""
        answer = await self._redis.xreadgroup(GROUP, worker, {STREAM: ">"}, count=count, block=int(wait_s * 1000))
        return [_entry(key, fields) for _, entries in answer or () for key, fields in entries]

    async def claim(self, worker: str, count: int, idle_s: float) -> list[Entry]:
        """Take over entries that somebody was given so long ago and is not done with."""
        answer = await self._redis.xautoclaim(STREAM, GROUP, worker, int(idle_s * 1000), count=count)
        return [_entry(key, fields) for key, fields in answer[1] if fields]

    async def deliveries(self, entry: Entry) -> int:
        """Return how often the entry was given to a worker."""
        (told,) = await self._redis.xpending_range(STREAM, GROUP, entry.key, entry.key, 1) or [{"times_delivered": 0}]
        return int(told["times_delivered"])

    async def hold(self, worker: str, entries: list[Entry]) -> None:
        """Say that the worker still has these, as if they had just been given; what is done stays done."""
        if entries:
            keys = [entry.key for entry in entries]
            await self._redis.xclaim(STREAM, GROUP, worker, 0, keys, justid=True)

    async def give_back(self, worker: str, entry: Entry) -> None:
        """Leave the entry to whoever claims it next, as one that nobody was given before."""
        await self._redis.xclaim(STREAM, GROUP, worker, 0, [entry.key], retrycount=0, justid=True)

    async def leave(self, worker: str, gone_after_s: float = GONE_AFTER_S) -> None:
        """Let the group forget this worker, and those that nobody has heard of for so long, unless something is given
        to them."""
        await self._leave(keys=[STREAM], args=[GROUP, worker, int(gone_after_s * 1000)])

    async def done(self, entry: Entry, skipped: SkipReason | None = None) -> bool:
        """Remove the entry and count why it was not recorded, if so; ``False`` when it is gone already."""
        told = (GROUP, entry.key, entry.parcel.size_bytes, entry.owner, skipped or "", SKIPPED_KEPT_S)
        return bool(await self._done(keys=[STREAM, BYTES, PENDING, SKIPPED + entry.owner], args=told))

    async def length(self) -> int:
        """Return how many entries are there."""
        return int(await self._redis.xlen(STREAM))

    async def aclose(self) -> None:
        """Close all connections."""
        await self._redis.aclose()


def _entry(key: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    """Return the entry; what another version writes in other words can be given up, and stops nobody."""
    exchange_id, day, owner = (fields.get(name, b"").decode(errors="replace") for name in (b"id", b"day", b"owner"))
    size = fields.get(b"size", b"")
    size_bytes = int(size) if size.isdigit() and len(size) < 16 else 0
    return Entry(key.decode(), owner, Parcel(exchange_id, day, fields.get(b"sealed", b""), size_bytes))
