"""Take over what a store of version 1 kept in plain: digests, bodies in rows, bodies in the folder.

Called once, in the transaction that founds the vault, so that it is done whole or not at all. The files of the old
layout (``ab/cd/SHA256`` instead of ``DAY/ab/NAME``) are deleted after it; what a crash left of them goes at the next
opening.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, func, select, update

from shadow.keeping import Kept
from shadow.store.objects import ObjectFolder, Objects
from shadow.store.progress import logged
from shadow.store.rows import REQUEST
from shadow.store.schema import exchanges, observations
from shadow.store.sealing import row_place
from shadow.store.vault import Vault, day_of

_AT_ONCE = 500


def adopt(vault: Vault, connection: Connection, objects: Objects, old_root: Path | None) -> None:
    """Encrypt all bodies that are there in plain, and replace every plain sha256 by its keyed digest."""
    after, tell = 0, logged("encrypting what version 1 stored")
    newest = connection.execute(select(func.max(exchanges.c.sequence))).scalar_one() or 0
    columns = (exchanges.c.sequence, exchanges.c.id, exchanges.c.received_at_us)
    while True:
        page = select(*columns).where(exchanges.c.sequence > after, exchanges.c.bodies == Kept.PLAIN.value)
        page = page.order_by(exchanges.c.sequence).limit(_AT_ONCE)
        rows = connection.execute(page).all()
        if not rows:
            return
        days = {day_of(row.received_at_us) for row in rows}
        vault.found_days(days, connection)
        for row in rows:
            _adopt_one(vault, connection, objects, old_root, row.sequence, row.id, day_of(row.received_at_us))
        after = rows[-1].sequence
        tell(after, newest)


def _adopt_one(
    vault: Vault, connection: Connection, objects: Objects, old_root: Path | None, sequence: int, id_: str, day: str
) -> None:
    for role, digest, inline in _bodies(connection, sequence):
        new = vault.digest(digest)
        sealed = None if inline is None else vault.seal(day, row_place(id_, role), inline)
        file = None if old_root is None or inline is not None else _old_file(old_root, digest)
        if file is not None:
            name = vault.object_name(day, new)
            objects.put(name, partial(vault.seal_chunks, day, name, [file.read_bytes()]))
        values = {"body_digest": new, "body_inline": sealed}
        change = (
            update(exchanges).where(exchanges.c.sequence == sequence)
            if role == REQUEST
            else update(observations).where(observations.c.sequence == sequence, observations.c.role == role)
        )
        connection.execute(change.values(values))
    taken = update(exchanges).where(exchanges.c.sequence == sequence).values(bodies=Kept.SHARED.value)
    connection.execute(taken)


def _bodies(connection: Connection, sequence: int) -> Iterator[tuple[str, str, bytes | None]]:
    asked = select(exchanges.c.body_digest, exchanges.c.body_inline).where(exchanges.c.sequence == sequence)
    for digest, inline in connection.execute(asked).all():
        yield REQUEST, digest, inline
    legs = select(observations.c.role, observations.c.body_digest, observations.c.body_inline)
    for role, digest, inline in connection.execute(legs.where(observations.c.sequence == sequence)).all():
        if digest is not None:
            yield role, digest, inline


def _old_file(root: Path, sha256: str) -> Path | None:
    path = root / sha256[:2] / sha256[2:4] / sha256
    return path if sha256.isalnum() and path.is_file() else None


def old_root(objects: Objects, where: str | Path) -> Path | None:
    """Return the folder that may have files of the old layout."""
    return Path(where) if isinstance(objects, ObjectFolder) else None


def delete_old_files(root: Path) -> None:
    """Delete what is left of the old layout: folders of two hexadecimal digits."""
    for folder in root.glob("[0-9a-f][0-9a-f]"):
        shutil.rmtree(folder, ignore_errors=True)
