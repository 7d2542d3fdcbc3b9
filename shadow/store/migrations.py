"""Bring a database to the present schema, one version after the other; refuse one from the future.

A step is all that turns version N - 1 into N. It runs in the transaction that opens the database, under the write lock,
so that a crash leaves the old version whole. SQLite keeps its version in ``user_version``, PostgreSQL in a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import Connection, text

from shadow.errors import SchemaTooNew
from shadow.store.schema import SCHEMA_VERSION, body_keys, counted_to, ended_accounts, exchange_hours, metadata


def migrate(connection: Connection) -> None:
    """Create the tables, or bring them to ``SCHEMA_VERSION``. Raises ``SchemaTooNew``."""
    version = _version(connection)
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"the database has schema version {version}, this Crossfade knows up to {SCHEMA_VERSION}: use a newer one"
        )
    if version == 0:
        metadata.create_all(connection)
    else:
        for number in range(version + 1, SCHEMA_VERSION + 1):
            STEPS[number](connection)
    if version < SCHEMA_VERSION:
        _set_version(connection)


def _to_2(connection: Connection) -> None:
    """Name bodies by a keyed digest. The digests and bodies themselves are taken over by whoever opens the store next
    with its key (``adoption.py``): ``bodies`` says which rows wait for that."""
    for table in ("exchanges", "observations"):
        connection.execute(text(f"ALTER TABLE {table} RENAME COLUMN body_sha256 TO body_digest"))
    connection.execute(text("ALTER TABLE exchanges ADD COLUMN bodies TEXT NOT NULL DEFAULT 'shared'"))
    connection.execute(text("UPDATE exchanges SET bodies = 'plain'"))
    connection.execute(text("CREATE INDEX exchanges_by_route_and_time ON exchanges (route, received_at_us)"))
    body_keys.create(connection)


def _to_3(connection: Connection) -> None:
    """Count in the accounts what the gateway refused; of the time before nothing is known."""
    connection.execute(text("ALTER TABLE accounts ADD COLUMN refused TEXT NOT NULL DEFAULT '{}'"))


def _to_4(connection: Connection) -> None:
    """Make room for the counts. What is there already is counted by whoever opens the store next (``counting.py``),
    outside of this transaction: it takes seconds per million, and nobody shall wait for the write lock so long."""
    exchange_hours.create(connection)
    counted_to.create(connection)


def _to_5(connection: Connection) -> None:
    """Make room for the sum of the accounts of runs that ended long ago; the next purge folds them."""
    connection.execute(text("ALTER TABLE accounts ADD COLUMN folded INTEGER"))
    connection.execute(text("CREATE INDEX accounts_open ON accounts (route) WHERE folded IS NULL"))
    ended_accounts.create(connection)


STEPS: Mapping[int, Callable[[Connection], None]] = {2: _to_2, 3: _to_3, 4: _to_4, 5: _to_5}


def _version(connection: Connection) -> int:
    if connection.dialect.name == "sqlite":
        return int(connection.execute(text("PRAGMA user_version")).scalar_one())
    connection.execute(text("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"))
    return int(connection.execute(text("SELECT max(version) FROM schema_version")).scalar_one() or 0)


def _set_version(connection: Connection) -> None:
    if connection.dialect.name == "sqlite":
        connection.execute(text(f"PRAGMA user_version = {SCHEMA_VERSION}"))
        return
    connection.execute(text("DELETE FROM schema_version"))
    connection.execute(text("INSERT INTO schema_version VALUES (:version)"), {"version": SCHEMA_VERSION})
