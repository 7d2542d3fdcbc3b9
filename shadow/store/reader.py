"""Read what was stored: synchronous, from any thread or process, also while gateways write."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Engine, Select, func, select
from sqlalchemy.exc import DBAPIError

from shadow.account import RouteAccount, together
from shadow.errors import StoreError
from shadow.exchange import Body, Exchange
from shadow.store.account_rows import account_of
from shadow.store.counting import by_hour, snapshot, stored_routes, total
from shadow.store.expiry import drop_bodies, purge_days
from shadow.store.folding import ended, fold, is_open
from shadow.store.opening import Opened, Place, open_parts
from shadow.store.rows import Row, exchange_of, legs_of, microseconds, moment
from shadow.store.schema import accounts, ended_accounts, exchanges, observations
from shadow.store.sealing import Opener
from shadow.store.vault import day_of, unseal

_AT_ONCE = 10_000

STALE_AFTER = timedelta(seconds=10)
"""A gateway saves its accounts each second; one that has not for so long is gone."""


def utc_now() -> datetime:
    """Return the wall time."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Reader:
    """The reading side of a store. ``engine`` is open to others' tables; write through ``database.writing(engine)``."""

    parts: Opened
    keep_bodies_days: float = 7.0
    now: Callable[[], datetime] = utc_now

    @classmethod
    def open(cls, url: str, bodies_dir: str | Path, keep_bodies_days: float = 7.0, *, key: str | None = None) -> Reader:
        """Open the store (see ``opening.Place``) for reading, creating an empty one when there is none. Raises
        ``StoreError``."""
        return cls(open_parts(Place(url, bodies_dir, key)), keep_bodies_days)

    @property
    def engine(self) -> Engine:
        """The database."""
        return self.parts.engine

    def close(self) -> None:
        """Close the idle connections."""
        self.engine.dispose()

    def exchanges(self, route: str | None = None, after_sequence: int = 0, limit: int = 100) -> list[Exchange]:
        """Return the next exchanges in the order of writing. Bodies over 8 KiB come without chunks: ``load`` them."""
        found: list[ColumnElement[bool]] = [exchanges.c.sequence > after_sequence]
        if route is not None:
            found.append(exchanges.c.route == route)
        return self._read(select(exchanges).where(*found).order_by(exchanges.c.sequence).limit(limit))

    def received(
        self,
        route: str | None,
        since: datetime | None = None,
        until: datetime | None = None,
        *,
        after: tuple[datetime, int] | None = None,
        limit: int = 100,
    ) -> list[Exchange]:
        """Return exchanges of a route, or of all, in the order of their arrival, from ``since`` on and before
        ``until``, by an index.

        A page at a time: ``after`` is the arrival and the sequence of the last one of the page before.
        """
        arrival, sequence = exchanges.c.received_at_us, exchanges.c.sequence
        found = _received(route, since, until)
        if after is not None:
            at_us = microseconds(after[0])
            found += [arrival >= at_us, (arrival > at_us) | (sequence > after[1])]
        return self._read(select(exchanges).where(*found).order_by(arrival, sequence).limit(limit))

    def exchange(self, exchange_id: str) -> Exchange | None:
        """Return the exchange with the gateway's id."""
        return next(iter(self._read(select(exchanges).where(exchanges.c.id == exchange_id))), None)

    def load(self, body: Body) -> bytes | None:
        """Return the body's bytes, ``None`` when they were never kept or are gone.

        Raises ``CorruptBody``, and ``StoreError`` or ``OSError`` when the object store cannot be reached.
        """
        if body.chunks is not None:
            return b"".join(body.chunks)
        if not body.place:
            return None
        sealed = self.parts.objects.get(body.place)
        key = None if sealed is None else self.parts.vault.key_of(body.place[:10])
        return None if sealed is None or key is None else unseal(key, body.place, sealed)

    def count(self, route: str | None = None) -> int:
        """Return how many exchanges are stored. Costs the same however many they are."""
        with snapshot(self.engine) as connection:
            return total(connection, route)

    def count_received(self, route: str | None, since: datetime | None, until: datetime | None) -> int:
        """Return how many exchanges of a route, or of all, ``received`` would return. Reads an index entry of each."""
        if since is None and until is None:
            return self.count(route)
        query = select(func.count()).select_from(exchanges).where(*_received(route, since, until))
        with self.engine.connect() as connection:
            return connection.execute(query).scalar_one()

    def hours(self, route: str, since: datetime) -> dict[datetime, int]:
        """Return how many exchanges of a route were received in each UTC hour from ``since``, the beginning of one, on.
        Costs the same however many they are."""
        with snapshot(self.engine) as connection:
            return {moment(at): n for at, n in by_hour(connection, route, microseconds(since)).items()}

    def routes(self) -> list[str]:
        """Return the names of all routes with an exchange or an account, sorted."""
        with self.engine.connect() as connection:
            known = stored_routes().union(select(accounts.c.route).where(is_open()), select(ended_accounts.c.route))
            return sorted(connection.execute(known).scalars())

    def accounts(self) -> dict[str, RouteAccount]:
        """Return each route's account over all runs. What a run that is gone left in flight is skipped as ``lost``."""
        alive_since = microseconds(self.now() - STALE_AFTER)
        with snapshot(self.engine) as connection:
            known = defaultdict(list, {route: [account] for route, account in ended(connection).items()})
            for row in connection.execute(select(accounts).where(is_open())).mappings():
                account = account_of(row)
                known[row["route"]].append(account if row["updated_at_us"] >= alive_since else account.ended())
        return {route: together(of_route) for route, of_route in known.items()}

    def recorded(self, run_id: str) -> dict[str, int]:
        """Return how many exchanges of one run of a gateway are stored, by route."""
        query = select(accounts.c.route, accounts.c.recorded).where(accounts.c.run_id == run_id)
        try:
            with self.engine.connect() as connection:
                return {route: int(count) for route, count in connection.execute(query)}
        except DBAPIError as error:
            raise StoreError(f"the accounts cannot be read: {error.orig}") from error

    def purge(self, now: datetime) -> int:
        """Destroy the bodies of every UTC day that ended ``keep_bodies_days`` ago; return how many objects that were.
        Rows, digests and sizes stay; the accounts of runs that ended long ago are summed up.

        Raises ``StoreError``, say when the database is locked for long.
        """
        before = (now - timedelta(days=self.keep_bodies_days)).astimezone(UTC).date()
        purged = purge_days(self.engine, self.parts.objects, before)
        self.parts.vault.forget_before(before.isoformat())
        fold(self.engine, now)  # last, so that no account that cannot be read keeps a body readable
        return purged

    def drop_bodies(self, ids: Sequence[str]) -> int:
        """Delete the bodies of these exchanges where they are theirs alone; return of how many.

        Raises ``StoreError``.
        """
        return drop_bodies(self.engine, self.parts.vault, self.parts.objects, ids)

    def _read(self, page: Select[Any]) -> list[Exchange]:
        with self.engine.connect() as connection:  # one transaction: rows and legs are of the same moment
            rows = connection.execute(page).mappings().all()
            legs = _legs(connection, [row["sequence"] for row in rows])
            keys = self.parts.vault.reading_keys({day_of(row["received_at_us"]) for row in rows}, connection)
        return [_exchange(row, legs[row["sequence"]], Opener.of(row, self.parts.vault, keys)) for row in rows]


def _received(route: str | None, since: datetime | None, until: datetime | None) -> list[ColumnElement[bool]]:
    found = [] if route is None else [exchanges.c.route == route]
    if since is not None:
        found.append(exchanges.c.received_at_us >= microseconds(since))
    if until is not None:
        found.append(exchanges.c.received_at_us < microseconds(until))
    return found


def _exchange(row: Row, legs: Sequence[Row], opener: Opener) -> Exchange:
    return exchange_of(row, legs_of(legs, opener), opener)


def _legs(connection: Connection, sequences: Sequence[int]) -> Mapping[int, list[Row]]:
    legs: defaultdict[int, list[Row]] = defaultdict(list)
    for start in range(0, len(sequences), _AT_ONCE):
        query = select(observations).where(observations.c.sequence.in_(sequences[start : start + _AT_ONCE]))
        for row in connection.execute(query).mappings():
            legs[row["sequence"]].append(row)
    return legs
