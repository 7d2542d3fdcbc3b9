"""The store: exchanges and accounts in SQLite or PostgreSQL, large bodies in a folder or a bucket, all encrypted.

One thread writes, ``Reader`` reads. The event loop is never blocked: ``save`` only queues and waits. What ``save`` has
returned survives the death of the process; what it has not may be lost. An exchange is stored once by its id, however
often it is saved. Nothing that a rule forbids is ever written: secrets are redacted and bodies left out before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from shadow.account import RouteAccount, Stamp
from shadow.courtesy import LARGE_BYTES, NO_COURTESY, Courtesy
from shadow.exchange import Exchange
from shadow.keeping import KeepRule
from shadow.store.account_rows import AccountRow, account_row, stamped_row
from shadow.store.booking import Item, write_items
from shadow.store.database import LOCK_TIMEOUT_S
from shadow.store.opening import Opened, Place, open_parts
from shadow.store.reader import Reader, utc_now
from shadow.store.redaction import redact
from shadow.store.rows import microseconds
from shadow.store.schema import INLINE_LIMIT_BYTES
from shadow.store.sealing import seal_exchange
from shadow.store.writer import Writer

MAX_QUEUED = 1000


class Store:
    """The writing side, for one event loop. Built by ``open``, ended by ``aclose``."""

    def __init__(
        self,
        parts: Opened,
        keep_bodies_days: float,
        now: Callable[[], datetime],
        max_queued: int = MAX_QUEUED,
        courtesy: Courtesy = NO_COURTESY,
    ) -> None:
        self._parts = parts
        self._keep_bodies_days = keep_bodies_days
        self._now = now
        self._courtesy = courtesy
        self._rules: Mapping[str, KeepRule] = {}
        self._writer: Writer[Item] = Writer(parts.engine, partial(write_items, parts.vault), max_queued, courtesy)

    @classmethod
    def open(
        cls,
        url: str,
        bodies_dir: str | Path,
        keep_bodies_days: float = 7.0,
        *,
        key: str | None = None,
        now: Callable[[], datetime] = utc_now,
        max_queued: int = MAX_QUEUED,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        courtesy: Courtesy = NO_COURTESY,
    ) -> Store:
        """Open, and where needed create, the store (see ``opening.Place``); large bodies are encrypted and batches are
        written with ``courtesy``. Blocks for some milliseconds. Raises ``StoreError``."""
        parts = open_parts(Place(url, bodies_dir, key), lock_timeout_s=lock_timeout_s)
        return cls(parts, keep_bodies_days, now, max_queued, courtesy)

    def configure(self, rules: Mapping[str, KeepRule]) -> None:
        """Set what is kept of each route from now on; a route without a rule keeps everything.

        One that is not among them any more keeps its rule, for what is still on its way.
        """
        self._rules = {**self._rules, **rules}

    async def save(
        self, exchange: Exchange, secret_names: frozenset[str] = frozenset(), stamp: Stamp | None = None
    ) -> int:
        """Write the exchange, secrets redacted, and return its sequence once it is committed. Raises ``StoreError``.

        ``secret_names`` are header fields and query parameters (lower case) that are secret beside the known ones. The
        account of the run that the ``stamp`` is of is brought up to date in the same transaction.
        """
        rule = self._rules.get(exchange.route, KeepRule())
        account = () if stamp is None else (stamped_row(stamp, exchange.route, microseconds(self._now())),)
        prepare = partial(_prepare, self._parts, exchange, secret_names, rule, account)
        largest_bytes = _largest_bytes(exchange)
        if largest_bytes > LARGE_BYTES:
            prepare = partial(_prepare_courteously, self._courtesy, self._courtesy.clock(), prepare)
        return await asyncio.wrap_future(self._writer.submit(prepare, slow=largest_bytes > INLINE_LIMIT_BYTES))

    async def save_accounts(self, run_id: str, routes: Mapping[str, RouteAccount]) -> None:
        """Bring the accounts of this run of the gateway up to date. Raises ``StoreError``.

        What stamped exchanges recorded is never taken back: it is in the rows.
        """
        at_us = microseconds(self._now())
        rows = tuple(account_row(run_id, route, account, at_us) for route, account in routes.items())
        await asyncio.wrap_future(self._writer.submit(lambda: Item(None, rows)))

    async def purge(self) -> int:
        """Delete the bodies that are older than they may be kept, on a thread of its own; return how many objects."""
        return await asyncio.to_thread(self.reader().purge, self._now())

    def reader(self) -> Reader:
        """Return the reading side. It shares this store's connections; its methods block."""
        return Reader(self._parts, self._keep_bodies_days, self._now)

    async def aclose(self) -> None:
        """Write what is queued, then close."""
        await asyncio.to_thread(self._writer.close)
        self._parts.engine.dispose()


def _prepare(
    parts: Opened,
    exchange: Exchange,
    secret_names: frozenset[str],
    rule: KeepRule,
    account: tuple[AccountRow, ...],
) -> Item:
    redacted = redact(exchange, secret_names, rule.redact_json, rule.redact_form)
    return Item(seal_exchange(redacted, rule.kept, parts.vault, parts.objects), account)


def _prepare_courteously(courtesy: Courtesy, since_s: float, prepare: Callable[[], Item]) -> Item:
    courtesy.wait(since_s)
    return prepare()


def _largest_bytes(exchange: Exchange) -> int:
    return max((body.size_bytes for body in exchange.bodies() if body.chunks is not None), default=0)
