"""Counters on Redis: one script in one round trip, by Redis's clock, and leases for slots.

Theory of operation. ``decide`` runs ``decide.lua``; it raises when Redis does not answer, and it is the caller's to
bound the time and to have a policy. A slot is a lease that ends by itself after ``LEASE_S``, so that a gateway that
dies gives its slots back. While slots are held one task renews their leases (a lease that Redis lost comes back with
the renewal, for the request is still under way) and hands in those given back; if that fails they end by themselves.
Only that task writes outside the script.

The pool is small: a script takes tens of microseconds, so few connections carry all that one process can ask, and few
have to be opened within the deadline when Redis comes back under load.

A server that answers with an error, such as a primary that became a replica, would do so for as long as the connection
lasts. So the next decision connects anew, to whatever the address leads to by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from gateway.limiting.counting import Decision, Look
from gateway.limiting.pool import PatientPool
from gateway.limiting.rules import Charge, Strategy
from shadow.redis_url import check_redis_url

LEASE_S = 30.0
MAX_CONNECTIONS = 8
_DEAD_AFTER_S = 2.0
_SCHEMES = {"async+redis://": "redis://", "async+rediss://": "rediss://", "async+redis+unix://": "unix://"}

_log = logging.getLogger(__name__)

STORE_FAILURES: tuple[type[Exception], ...] = (RedisError, OSError, TimeoutError)


def read_script() -> str:
    """Return the text of the script."""
    return files("gateway.limiting").joinpath("decide.lua").read_text(encoding="utf-8")


def script_arguments(charges: Sequence[Charge], lease: str, *, commit: bool, lease_s: float) -> list[str | int]:
    """Return the script's ARGV."""
    arguments: list[str | int] = [int(commit), lease, int(lease_s * 1_000_000)]
    for charge in charges:
        rule = charge.rule
        arguments += [rule.strategy.value, rule.amount, rule.window_s * 1_000_000, charge.cost, int(rule.dry_run)]
    return arguments


def read_answer(answer: Sequence[int]) -> Decision:
    """Return what the script said."""
    looks = (Look(bool(answer[at]), answer[at + 1], answer[at + 2]) for at in range(2, len(answer), 3))
    return Decision(bool(answer[0]), tuple(looks), answer[1])


class RedisCounters:
    """Counters that several gateways share. ``uri`` is ``async+redis://…``, ``async+rediss://…`` or
    ``async+redis+unix://…``; raises ``ValueError`` for one that is none of these. ``timeout_s`` is how long a caller
    waits for a decision."""

    def __init__(self, uri: str, *, timeout_s: float, lease_s: float = LEASE_S) -> None:
        self._lease_s = lease_s
        self._redis = _open(uri, timeout_s)
        script = self._redis.register_script(read_script())
        self._text, self._sha = str(script.script), script.sha
        self._held: dict[str, str] = {}
        self._returned: dict[str, str] = {}
        self._turn = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    async def decide(self, charges: Sequence[Charge], lease: str, *, commit: bool) -> Decision:
        """Decide in one round trip (two when Redis does not know the script yet). Raises one of ``STORE_FAILURES``."""
        slots = [charge for charge in charges if commit and charge.rule.strategy is Strategy.SLOTS]
        try:
            decision = await self._decide(charges, lease, commit)
        except BaseException as error:
            for charge in slots:  # it may have been taken all the same
                self._give_back(charge.key, lease)
            if isinstance(error, ResponseError):
                await self._leave()
            raise
        for charge, look in zip(charges, decision.looks, strict=True):
            if decision.charged and not look.refused and charge.rule.strategy is Strategy.SLOTS:
                self._held[lease] = charge.key
                self._keep()
        return decision

    def release(self, charge: Charge, lease: str) -> None:
        """Give a slot back, soon."""
        if lease in self._held:
            self._give_back(self._held.pop(lease), lease)

    async def aclose(self) -> None:
        """Give all slots back if Redis takes them at once, and close the connections."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
            self._returned |= self._held
            self._held.clear()
            await self._hand_in()
        await self._redis.aclose()

    async def _decide(self, charges: Sequence[Charge], lease: str, commit: bool) -> Decision:
        keys = [charge.key for charge in charges]
        arguments = script_arguments(charges, lease, commit=commit, lease_s=self._lease_s)
        client: Any = self._redis
        try:
            answer = await client.evalsha(self._sha, len(keys), *keys, *arguments)
        except NoScriptError:
            answer = await client.eval(self._text, len(keys), *keys, *arguments)
        return read_answer(answer)

    async def _leave(self) -> None:
        """Close the connections that nobody uses, the one of the last answer among them."""
        await self._redis.connection_pool.disconnect(inuse_connections=False)

    def _give_back(self, key: str, lease: str) -> None:
        self._returned[lease] = key
        self._keep()
        self._turn.set()

    def _keep(self) -> None:
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._run_keeper(), name="leases of slots")

    async def _run_keeper(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._lease_s / 3):
                    await self._turn.wait()
            except TimeoutError:
                await self._renew()
            else:
                self._turn.clear()
                await self._hand_in()

    async def _hand_in(self) -> None:
        returned, self._returned = self._returned, {}
        if returned:
            await self._write([("ZREM", key, lease) for lease, key in returned.items()])

    async def _renew(self) -> None:
        if not self._held:
            return
        try:
            async with asyncio.timeout(_DEAD_AFTER_S):
                seconds, micro = await self._redis.time()
        except STORE_FAILURES:
            return  # the next renewal comes before the lease ends
        end_us = seconds * 1_000_000 + micro + int(self._lease_s * 1_000_000)
        held = dict(self._held)
        writes: list[tuple[str | int, ...]] = [("ZADD", key, end_us, lease) for lease, key in held.items()]
        writes += [("PEXPIRE", key, int(self._lease_s * 1000)) for key in set(held.values())]
        await self._write(writes)

    async def _write(self, commands: Sequence[tuple[str | int, ...]]) -> None:
        try:
            async with asyncio.timeout(_DEAD_AFTER_S), self._redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                await pipeline.execute()
        except STORE_FAILURES as error:
            _log.info("leases of slots are left to end by themselves (%s)", type(error).__name__)


def redis_url(uri: str) -> str:
    """Return the storage's URL as the client library has it. Raises ``ValueError``, and quotes nothing of it."""
    for scheme, plain in _SCHEMES.items():
        if uri.startswith(scheme):
            return check_redis_url(plain + uri.removeprefix(scheme))
    raise ValueError("must be memory:// or async+redis://host:port/db")


def _open(uri: str, timeout_s: float) -> Redis:
    pool = PatientPool.from_url(
        redis_url(uri),
        max_connections=MAX_CONNECTIONS,
        patience_s=timeout_s / 2,
        timeout=None,  # the caller's deadline bounds every wait
        socket_timeout=None,
        socket_connect_timeout=None,
        # One retry at once, because after a restart of Redis the pooled connections are stale.
        retry=Retry(NoBackoff(), 1),
    )
    return Redis.from_pool(pool)
