"""Databases of other versions: an older one is brought up to date with all that it holds, a newer one left alone."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, inspect, text

from shadow.account import RouteAccount
from shadow.errors import SchemaTooNew
from shadow.exchange import SkipReason
from shadow.store.database import open_database, writing
from shadow.store.expiry import purge_everything
from shadow.store.opening import open_objects
from shadow.store.schema import SCHEMA_VERSION, metadata
from tests.shadow.bench import exchange_of
from tests.shadow.store.shelf import Shelf, everything_in, url_in

pytestmark = pytest.mark.anyio
VERSION_1 = Path(__file__).with_name("store_v1.sql")
"""What version 1 wrote: three exchanges, with plain bodies and hashes, and an account."""
LARGE_V1 = b"large " * 2000


@pytest.fixture
def old(tmp_path: Path) -> Shelf:
    """A store of version 1, with one large body in its folder."""
    shelf = Shelf.in_folder(tmp_path)
    (tmp_path / "var").mkdir()
    connection = sqlite3.connect(tmp_path / "var" / "crossfade.db")
    connection.executescript(VERSION_1.read_text(encoding="utf-8"))
    connection.close()
    sha256 = hashlib.sha256(LARGE_V1).hexdigest()
    file = tmp_path / "bodies" / sha256[:2] / sha256[2:4] / sha256
    file.parent.mkdir(parents=True)
    file.write_bytes(LARGE_V1)
    return shelf


def tables_of(engine: Engine) -> dict[str, object]:
    """Return columns and indexes of the store's tables, by name."""
    seen = inspect(engine)
    found: dict[str, object] = {}
    for table in metadata.tables:
        columns = [(column["name"], str(column["type"]), column["nullable"]) for column in seen.get_columns(table)]
        found[table] = sorted(columns), sorted(str(index["name"]) for index in seen.get_indexes(table))
    return found


async def test_a_store_of_version_1_keeps_everything_and_loses_what_was_plain(old: Shelf) -> None:
    for _ in range(2):  # the second opening finds it done
        async with old.stored() as store:
            reader = store.reader()
            small, large, unkept = reader.exchanges()
            assert [exchange.id for exchange in (small, large, unkept)] == ["small", "large", "unkept"]
            loaded = [reader.load(exchange.request.body) for exchange in (small, large, unkept)]
            assert loaded == [b"a small picture", LARGE_V1, None]
            for exchange in (small, large, unkept):
                assert exchange.primary.body is not None
                assert exchange.shadow is not None
                assert exchange.shadow.body is not None
                assert reader.load(exchange.primary.body) == b"yes"
                assert exchange.primary.body.sha256 == exchange.shadow.body.sha256
            assert reader.accounts() == {"classify": RouteAccount(4, 3, 0, {SkipReason.QUEUE_FULL: 1})}
    written = everything_in(old.folder / "var") + b"".join(path.read_bytes() for path in old.files())
    for plain in (b"a small picture", LARGE_V1):
        assert plain not in written
        assert hashlib.sha256(plain).hexdigest().encode() not in written
    assert [path.parent.parent.name for path in old.files()] == ["2026-05-04"]


async def test_a_purge_of_everything_that_comes_before_the_first_opening_leaves_nothing_to_adopt(old: Shelf) -> None:
    engine = open_database(old.url)
    purge_everything(engine, open_objects(old.bodies))
    engine.dispose()
    async with old.stored() as store:
        assert [store.reader().load(exchange.request.body) for exchange in store.reader().exchanges()] == [None] * 3
    assert old.files() == []
    assert b"a small picture" not in everything_in(old.folder)


async def test_a_migrated_database_has_the_very_tables_of_a_new_one(old: Shelf, tmp_path: Path) -> None:
    async with old.stored() as store:
        await store.save(exchange_of("after"))
        migrated = tables_of(store.reader().engine)
    engine = open_database(url_in(tmp_path / "new"))
    assert migrated == tables_of(engine)
    engine.dispose()


async def test_a_store_of_version_2_keeps_its_accounts_and_counts_refusals_from_then_on(shelf: Shelf) -> None:
    account = RouteAccount(4, 3, 1, {}, {"rate_limited": 2})
    async with shelf.stored() as store:
        await store.save_accounts("run", {"r": account})
        back = "PRAGMA user_version = 2" if shelf.is_sqlite else "UPDATE schema_version SET version = 2"
        with writing(store.reader().engine).begin() as connection:
            for change in (
                "ALTER TABLE accounts DROP COLUMN refused",
                "DROP TABLE exchange_hours",
                "DROP TABLE counted_to",
                "DROP INDEX accounts_open",
                "ALTER TABLE accounts DROP COLUMN folded",
                "DROP TABLE ended_accounts",
            ):
                connection.execute(text(change))
            connection.execute(text(back))
    async with shelf.stored() as store:
        reader = store.reader()
        assert reader.accounts() == {"r": replace(account, refused={})}
        await store.save_accounts("run", {"r": account})
        assert reader.accounts() == {"r": account}


async def test_a_migration_that_fails_leaves_the_old_version_whole(old: Shelf) -> None:
    engine = create_engine(old.url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE body_keys (in_the_way INTEGER)"))
    with pytest.raises(Exception, match="body_keys"):
        open_database(old.url)
    with engine.begin() as connection:
        assert connection.execute(text("PRAGMA user_version")).scalar_one() == 1
        assert connection.execute(text("SELECT body_sha256 FROM exchanges")).scalars().all()
        connection.execute(text("DROP TABLE body_keys"))
    engine.dispose()
    async with old.stored() as store:
        assert store.reader().count() == 3


async def test_a_newer_schema_is_refused_and_left_alone(shelf: Shelf) -> None:
    later = SCHEMA_VERSION + 1
    async with shelf.stored() as store:
        await store.save(exchange_of())
        with writing(store.reader().engine).begin() as connection:
            change = (
                f"PRAGMA user_version = {later}" if shelf.is_sqlite else f"UPDATE schema_version SET version = {later}"
            )
            connection.execute(text(change))
    with pytest.raises(SchemaTooNew, match=f"version {later}"):
        shelf.open()
    with pytest.raises(SchemaTooNew, match=f"version {later}"):
        shelf.open()
