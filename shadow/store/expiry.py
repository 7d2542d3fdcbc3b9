"""Delete bodies: by age, with the key of their day; or those of single exchanges. Numbers always stay.

A day's key goes first. From then on its bodies are unreadable wherever they are, also in a backup; deleting the
ciphertext after it only frees space, in small steps, so that no writer waits long. Until that is done the day stays
known by its name (``ENDED``), so that whoever comes after a crash or an outage of the object store goes on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from time import sleep

from sqlalchemy import Connection, Engine, delete, select, update
from sqlalchemy.exc import DBAPIError

from shadow.errors import StoreError
from shadow.keeping import Kept
from shadow.store.database import insert_into, writing
from shadow.store.objects import Objects
from shadow.store.progress import Progress, no_progress
from shadow.store.rows import Row, microseconds
from shadow.store.schema import body_keys, exchanges, observations
from shadow.store.sealing import Opener
from shadow.store.vault import DIGESTS, ENDED, Vault

_AT_ONCE = 2000
_MOMENT_MS, _MOMENTS, _BETWEEN_S = 50, 10, 0.2
_HELD = (Kept.SHARED.value, Kept.OWN.value, Kept.PLAIN.value)


def purge_days(engine: Engine, objects: Objects, before: date, progress: Progress = no_progress) -> int:
    """Destroy the bodies of all UTC days before this one, keys first; return how many objects were deleted.

    ``progress`` is told of days. Needs no master key. Blocks. Raises ``StoreError``, say when the database is locked
    for long; what was begun is ended by the next call.
    """
    limit, deleted = before.isoformat(), 0
    with _told():
        with writing(engine).begin() as connection:
            ended = _destroy_keys(connection, limit)
        _overwrite_log(engine)
        days = sorted(ended.union(day for day in objects.days() if day < limit))
        for number, day in enumerate(days):
            progress(number, len(days))
            deleted += objects.delete_day(day)
            begin = datetime.combine(date.fromisoformat(day), time(), UTC)
            _empty_rows(engine, microseconds(begin), microseconds(begin + timedelta(days=1)))
            with writing(engine).begin() as connection:
                connection.execute(delete(body_keys).where(body_keys.c.name == ENDED + day))
        progress(len(days), len(days))
    return deleted


def purge_everything(engine: Engine, objects: Objects, progress: Progress = no_progress) -> int:
    """Destroy all bodies and all keys, for a store whose master key is lost: the next opening founds new keys.

    Keys first, so that whoever has the store open writes nothing more into it (``Vault.verify``).
    """
    with _told():
        with writing(engine).begin() as connection:
            connection.execute(delete(body_keys))
        _overwrite_log(engine)
        _empty_rows(engine, 0, microseconds(datetime.max.replace(tzinfo=UTC)))
    return purge_days(engine, objects, date.max, progress)


def drop_bodies(engine: Engine, vault: Vault, objects: Objects, ids: Sequence[str]) -> int:
    """Delete the bodies of these exchanges where they are theirs alone (``Kept.OWN``); return of how many they were.

    Raises ``StoreError``.
    """
    dropped = 0
    for start in range(0, len(ids), 500):
        with _told(), writing(engine).begin() as connection:
            found = select(exchanges).where(exchanges.c.id.in_(ids[start : start + 500]))
            rows = connection.execute(found.where(exchanges.c.bodies == Kept.OWN.value)).mappings().all()
            names = [name for row in rows for name in _object_names(connection, row, vault)]
            _mark(connection, [row["sequence"] for row in rows], Kept.DROPPED)
        with _told():
            objects.delete(names)
        dropped += len(rows)
    return dropped


def _destroy_keys(connection: Connection, limit: str) -> set[str]:
    """Destroy the keys of the days before ``limit``; return all days that are not done with since."""
    keyed = select(body_keys.c.name).where(body_keys.c.name < limit, body_keys.c.name != DIGESTS)
    days = connection.execute(keyed).scalars().all()
    if days:
        ended = insert_into(body_keys, connection).values([{"name": ENDED + day, "wrapped": b""} for day in days])
        connection.execute(ended.on_conflict_do_nothing())
        connection.execute(delete(body_keys).where(body_keys.c.name.in_(days)))
    known = connection.execute(select(body_keys.c.name).where(body_keys.c.name.startswith(ENDED))).scalars()
    return {name.removeprefix(ENDED) for name in known}


def _object_names(connection: Connection, row: Row, vault: Vault) -> Iterable[str]:
    opener = Opener.of(row, vault, {})
    legs = connection.execute(select(observations).where(observations.c.sequence == row["sequence"])).mappings()
    bodies = [body for body in (row, *legs) if body["body_digest"] is not None]
    return {opener.object_name(body) for body in bodies if body["body_inline"] is None and body["body_size_bytes"]}


def _empty_rows(engine: Engine, first: int, end: int) -> None:
    """Empty the rows received in ``[first, end)``, in UTC microseconds."""
    while True:
        with writing(engine).begin() as connection:
            inside = exchanges.c.received_at_us >= first, exchanges.c.received_at_us < end
            found = select(exchanges.c.sequence, exchanges.c.received_at_us).where(*inside)
            found = found.where(exchanges.c.bodies.in_(_HELD)).order_by(exchanges.c.received_at_us).limit(_AT_ONCE)
            rows = connection.execute(found).all()
            if not rows:
                return
            _mark(connection, [row.sequence for row in rows], Kept.EXPIRED)
            first = rows[-1].received_at_us  # not one more: others may have come in that very microsecond


def _mark(connection: Connection, sequences: Sequence[int], kept: Kept) -> None:
    values = {"body_inline": None, "bodies": kept.value}
    connection.execute(update(exchanges).where(exchanges.c.sequence.in_(sequences)).values(values))
    held = observations.c.sequence.in_(sequences), observations.c.body_inline.is_not(None)
    connection.execute(update(observations).where(*held).values(body_inline=None))


def _overwrite_log(engine: Engine) -> None:
    """Let SQLite's write-ahead log go, which still holds the pages with the destroyed keys.

    A reader may hold it back, and whoever waits for one keeps all writers out: so it is tried for a moment at a time,
    and what is left is for the next purge.
    """
    if engine.dialect.name != "sqlite":
        return
    connection = engine.raw_connection()
    try:
        connection.detach()  # from the pool: nobody else shall wait so shortly
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {_MOMENT_MS}")
        for _ in range(_MOMENTS):
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            (is_held_back, *_), *_ = cursor.fetchall()
            if not is_held_back:
                return
            sleep(_BETWEEN_S)
    finally:
        connection.close()


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except (DBAPIError, sqlite3.Error, OSError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else type(error).__name__
        raise StoreError(f"bodies could not be deleted: {cause}") from error
