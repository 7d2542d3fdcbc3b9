"""Open the database so that several processes can write and many can read it at once: SQLite or PostgreSQL.

Both give the same promise: whatever begins through ``writing(engine)`` holds the one write lock until it commits, so
that sequences become visible in their order. SQLite: write-ahead log, so that readers never block; ``busy_timeout``, so
that writers wait for each other; and ``BEGIN IMMEDIATE``, because a transaction that reads first and writes later
cannot wait, it fails. PostgreSQL: an advisory lock, and a ``lock_timeout`` of the same length.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event, make_url
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from shadow.errors import StoreError
from shadow.store.migrations import migrate

LOCK_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5
_WRITE_LOCK = 0x43524F5353  # any number: all who write to the database take the same
_URLS = "the store's url must be sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"


def open_database(url: str, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> Engine:
    """Open, and where needed create or migrate, the tables in the database at ``url``.

    Blocks. Raises ``SchemaTooNew`` for a database of a later version, ``StoreError`` for one that cannot be opened; no
    message holds a password.
    """
    parsed = _parse(url)
    try:
        if parsed.get_backend_name() == "sqlite":
            return _open_sqlite(parsed, lock_timeout_s)
        return _open_postgresql(parsed, lock_timeout_s)
    except (DBAPIError, OSError) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        # Without its query: a password may stand there too.
        raise StoreError(f"cannot open the database {parsed.set(query={})}: {cause}") from error
    except ArgumentError as error:
        raise StoreError(_URLS) from error
    except ModuleNotFoundError as error:
        raise StoreError("PostgreSQL needs one more package: pip install 'crossfade[postgres]'") from error


def writing(engine: Engine) -> Engine:
    """Return the same engine for transactions that write: they take the write lock when they begin."""
    return engine.execution_options(immediate=True)


def insert_into(table: Table, connection: Connection | Engine) -> Any:
    """Return an INSERT of the database's own kind: SQLAlchemy has ``on_conflict_do_…`` for each, not for both.

    Typed loosely because the two classes share these methods by agreement only.
    """
    return insert_of(table, connection.dialect.name)


def insert_of(table: Table, dialect: str) -> Any:
    """Return the INSERT of the dialect of that name."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:  # the latter for a port that is no number
        raise StoreError(_URLS) from error
    is_file = parsed.get_backend_name() == "sqlite" and parsed.database not in (None, "", ":memory:")
    if not is_file and parsed.drivername != "postgresql+psycopg":
        raise StoreError(_URLS)
    return parsed


def _open_sqlite(url: URL, lock_timeout_s: float) -> Engine:
    path = Path(url.database or "")
    _create_private(path)
    engine = create_engine(url)

    def configure(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # transactions are begun by begin only
        connection.execute(f"PRAGMA busy_timeout = {int(lock_timeout_s * 1000)}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")  # a destroyed key is overwritten, not just unlinked

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if _is_writing(connection) else "BEGIN")

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", begin)
    with _one_at_a_time(path):
        return _migrated(engine)


def _open_postgresql(url: URL, lock_timeout_s: float) -> Engine:
    options = f"-c lock_timeout={int(lock_timeout_s * 1000)} -c timezone=UTC"
    # Pre-ping: after a restart of the server the first transaction must not fail on a connection that is gone.
    engine = create_engine(
        url, pool_pre_ping=True, connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "options": options}
    )

    def begin(connection: Connection) -> None:
        if _is_writing(connection):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITE_LOCK})")

    event.listen(engine, "begin", begin)
    return _migrated(engine)


def _migrated(engine: Engine) -> Engine:
    try:
        with writing(engine).begin() as connection:
            migrate(connection)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _is_writing(connection: Connection) -> bool:
    return bool(connection.get_execution_options().get("immediate", False))


def _create_private(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Only a new file is opened here: closing a handle of one that is in use would drop SQLite's locks on it. SQLite
    # gives its -wal and -shm files the same mode.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process after the other open the database: the switch to the write-ahead log fails at once when another
    process is at it, whatever ``busy_timeout`` says. A lock file of its own, since closing any handle of the database
    itself would drop SQLite's locks on it (POSIX)."""
    handle = os.open(path.with_name(f"{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
