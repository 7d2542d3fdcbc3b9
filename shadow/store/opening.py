"""Open a store whole: its database, its keys, the place of its large bodies. What writes and what reads share this."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from shadow.errors import StoreError
from shadow.store.adoption import adopt, delete_old_files, old_root
from shadow.store.counting import count_old
from shadow.store.database import LOCK_TIMEOUT_S, open_database
from shadow.store.master_key import default_source, read_master_key
from shadow.store.objects import ObjectFolder, Objects
from shadow.store.vault import Vault


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store is. ``bodies`` is a folder or ``s3://…``; ``key`` is ``file:PATH`` or ``env:NAME``, a file beside
    the SQLite database if left out."""

    url: str = field(repr=False)
    bodies: str | Path
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """The three parts of an open store."""

    engine: Engine
    vault: Vault
    objects: Objects


def open_parts(place: Place, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> Opened:
    """Open, and where needed create, migrate or take over the store at ``place``. Blocks.

    Raises ``StoreError``: ``SchemaTooNew``, or ``KeyUnusable`` when its key is missing or another one.
    """
    objects = open_objects(place.bodies)
    engine = open_database(place.url, lock_timeout_s=lock_timeout_s)
    root = old_root(objects, place.bodies)

    def master_key(may_create: bool) -> bytes:
        source = place.key or default_source(place.url)
        return read_master_key(source, os.environ, may_create=may_create)

    def take_over(vault: Vault, connection: Connection) -> None:
        adopt(vault, connection, objects, root)

    try:
        vault = Vault.open(engine, master_key, take_over)
        count_old(engine)
    except DBAPIError as error:  # say, a damaged one
        engine.dispose()
        raise StoreError(f"{type(error.orig).__name__}: {error.orig}") from error
    except BaseException:
        engine.dispose()
        raise
    if root is not None:
        delete_old_files(root)
    return Opened(engine, vault, objects)


def open_objects(where: str | Path) -> Objects:
    """Return the objects at a folder's path or at ``s3://bucket/prefix?endpoint=…``. Raises ``StoreError``."""
    if str(where).startswith("s3://"):
        from shadow.store.bucket import Bucket  # the package for it is needed by nobody else

        return Bucket.open(str(where))
    return ObjectFolder(Path(where))
