"""Delete bodies: by age, with the key of their day; or those of single exchanges. Numbers always stay.

A day's key goes first. From then on its bodies are unreadable wherever they are, also in a backup; deleting the
ciphertext after it only frees space, in small steps, so that no writer waits long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta

from sqlalchemy import Connection, Engine, delete, select, update
from sqlalchemy.exc import DBAPIError

from shadow.errors import StoreError
from shadow.keeping import Kept
from shadow.store.database import writing
from shadow.store.objects import Objects
from shadow.store.progress import Progress, no_progress
from shadow.store.rows import Row, microseconds
from shadow.store.schema import body_keys, exchanges, observations
from shadow.store.sealing import Opener
from shadow.store.vault import DIGESTS, Vault

_AT_ONCE = 2000
_HELD = (Kept.SHARED.value, Kept.OWN.value, Kept.PLAIN.value)


def purge_days(engine: Engine, objects: Objects, before: date, progress: Progress = no_progress) -> int:
    """Destroy the bodies of all UTC days before this one, keys first; return how many objects were deleted.

    ``progress`` is told of days. Needs no master key. Blocks. Raises ``StoreError``, say when the database is locked
    for long; what was begun is ended by the next call.
    """
    try:
        with writing(engine).begin() as connection:
            limit = before.isoformat()
            keyed = select(body_keys.c.name).where(body_keys.c.name < limit, body_keys.c.name != DIGESTS)
            days = {*connection.execute(keyed).scalars(), *(day for day in objects.days() if day < limit)}
            connection.execute(delete(body_keys).where(body_keys.c.name.in_(days)))
        deleted = 0
        for number, day in enumerate(sorted(days)):
            progress(number, len(days))
            deleted += objects.delete_day(day)
            begin = datetime.combine(date.fromisoformat(day), time(), UTC)
            _empty_rows(engine, microseconds(begin), microseconds(begin + timedelta(days=1)))
        if days:
            _overwrite_log(engine)
        progress(len(days), len(days))
    except (DBAPIError, OSError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else type(error).__name__
        raise StoreError(f"bodies could not be deleted: {cause}") from error
    return deleted


def purge_everything(engine: Engine, objects: Objects, progress: Progress = no_progress) -> int:
    """Destroy all bodies and all keys, for a store whose master key is lost: the next opening founds new keys.

    Keys first, so that whoever has the store open writes nothing more into it (``Vault.verify``).
    """
    try:
        with writing(engine).begin() as connection:
            connection.execute(delete(body_keys))
        _empty_rows(engine, 0, microseconds(datetime.max.replace(tzinfo=UTC)))
    except DBAPIError as error:
        raise StoreError(f"bodies could not be deleted: {error.orig}") from error
    _overwrite_log(engine)
    return purge_days(engine, objects, date.max, progress)


def drop_bodies(engine: Engine, vault: Vault, objects: Objects, ids: Sequence[str]) -> int:
    """Delete the bodies of these exchanges where they are theirs alone (``Kept.OWN``); return of how many they were."""
    dropped = 0
    for start in range(0, len(ids), 500):
        with writing(engine).begin() as connection:
            found = select(exchanges).where(exchanges.c.id.in_(ids[start : start + 500]))
            rows = connection.execute(found.where(exchanges.c.bodies == Kept.OWN.value)).mappings().all()
            names = [name for row in rows for name in _object_names(connection, row, vault)]
            _mark(connection, [row["sequence"] for row in rows], Kept.DROPPED)
        objects.delete(names)
        dropped += len(rows)
    return dropped


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
    """Let SQLite's write-ahead log go, which still holds the pages with the destroyed keys."""
    if engine.dialect.name != "sqlite":
        return
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")  # readers may hold it back; then the next does
    finally:
        connection.close()
