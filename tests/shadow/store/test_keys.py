"""The master key: made once, private, and when it is gone the store says so and what to do."""

from __future__ import annotations

import logging
import stat
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from shadow.errors import KeyUnusable
from shadow.store.database import open_database
from shadow.store.expiry import purge_days, purge_everything
from shadow.store.master_key import default_source, read_master_key
from shadow.store.opening import open_objects
from shadow.store.reader import Reader
from tests.shadow.bench import body_of, exchange_of
from tests.shadow.store.shelf import LARGE, Shelf

pytestmark = pytest.mark.anyio


async def test_a_new_store_makes_its_key_beside_the_database_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shelf = Shelf.in_folder(tmp_path)
    with caplog.at_level(logging.WARNING):
        Reader.open(shelf.url, shelf.bodies).close()
    key = tmp_path / "var" / "crossfade.db.key"
    assert default_source(shelf.url) == f"file:{key}"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert f"made a new master key for the store: {key}" in caplog.text
    assert key.read_text().strip() not in caplog.text
    caplog.clear()
    Reader.open(shelf.url, shelf.bodies).close()
    assert caplog.text == ""


async def test_a_store_whose_key_is_gone_or_another_is_refused_with_what_to_do(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        await store.save(exchange_of(body=body_of(LARGE)))
    key = shelf.folder / "store.key"
    kept = key.read_text()
    key.unlink()
    with pytest.raises(KeyUnusable, match="bring it back from your backup"):
        shelf.open()
    assert not key.exists()  # a new one would hide that the old one is lost
    key.write_text("0" * 64)
    key.chmod(0o600)
    with pytest.raises(KeyUnusable, match="another master key"):
        shelf.open()
    key.write_text(kept)
    with shelf.reading() as reader:
        found = reader.exchange("id-1")
        assert found is not None
        assert reader.load(found.request.body) == LARGE


async def test_with_the_key_lost_for_good_the_numbers_stay_and_a_new_one_begins(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        await store.save(exchange_of("before", body=body_of(LARGE)))
    (shelf.folder / "store.key").unlink()
    engine = open_database(shelf.url)
    assert purge_everything(engine, open_objects(shelf.bodies)) == 1
    engine.dispose()
    assert shelf.files() == []
    async with shelf.stored() as store:
        await store.save(exchange_of("after", body=body_of(LARGE)))
        before, after = store.reader().exchanges()
        assert store.reader().load(before.request.body) is None
        assert before.primary.total_s == 0.2
        assert store.reader().load(after.request.body) == LARGE


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("env:NOT_SET", "NOT_SET with the master key of the store is not set"),
        ("env:SHORT", "SHORT is not a master key"),
        ("0" * 64, "file:PATH or env:NAME"),
        ("file:", "file:PATH or env:NAME"),
        ("file:/nowhere/key", "is gone"),
        ("file:/", "cannot be read: IsADirectoryError"),
    ],
)
def test_a_key_that_cannot_be_used_is_told_without_telling_it(source: str, message: str) -> None:
    with pytest.raises(KeyUnusable, match=message) as told:
        read_master_key(source, {"SHORT": "abc123"}, may_create=False)
    assert "abc123" not in str(told.value)


def test_a_key_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0" * 64)
    key.chmod(0o604)
    with pytest.raises(KeyUnusable, match="chmod 600"):
        read_master_key(f"file:{key}", {}, may_create=True)
    key.chmod(0o440)  # how a Kubernetes secret is mounted for a group
    assert read_master_key(f"file:{key}", {}, may_create=True) == bytes(32)


async def test_a_key_from_the_environment_is_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STORE_KEY", "5" * 64)
    shelf = replace(Shelf.in_folder(tmp_path), key="env:STORE_KEY")
    async with shelf.stored() as store:
        await store.save(exchange_of(body=body_of(b"a face")))
        found = store.reader().exchange("id-1")
        assert found is not None
        assert store.reader().load(found.request.body) == b"a face"
    assert b"5" * 64 not in shelf.everything()
    assert bytes.fromhex("5" * 64) not in shelf.everything()


async def test_a_store_that_is_open_while_all_keys_go_writes_nothing_more_and_says_why(shelf: Shelf) -> None:
    async with shelf.stored() as gateway:
        await gateway.save(exchange_of("before", body=body_of(b"small")))
        engine = open_database(shelf.url)
        purge_everything(engine, open_objects(shelf.bodies))
        engine.dispose()
        for name in ("small", "large"):
            with pytest.raises(KeyUnusable, match="restart"):
                await gateway.save(exchange_of(name, body=body_of(LARGE if name == "large" else b"small")))
        with shelf.reading() as reader:  # founds new keys
            assert [found.id for found in reader.exchanges()] == ["before"]
            assert reader.exchanges()[0].request.body.chunks is None
        with pytest.raises(KeyUnusable, match="restart"):
            await gateway.save(exchange_of("after", body=body_of(b"small")))
    async with shelf.stored() as store:
        await store.save(exchange_of("again", body=body_of(b"small")))
        assert store.reader().exchanges()[-1].request.body.chunks == (b"small",)


async def test_a_body_is_never_stored_under_a_days_key_that_another_process_destroyed(shelf: Shelf) -> None:
    async with shelf.stored() as gateway:
        await gateway.save(exchange_of("before", body=body_of(b"small")))
        (Path(shelf.bodies) / "2026-99-99").mkdir(parents=True)  # somebody else's
        engine = open_database(shelf.url)
        purge_days(engine, open_objects(shelf.bodies), date.max)  # the day is over, and may not be kept
        engine.dispose()
        with pytest.raises(KeyUnusable, match="destroyed"):
            await gateway.save(exchange_of("late", body=body_of(b"small")))
        await gateway.save(exchange_of("next", body=body_of(b"small")))  # under a new key
        assert [found.request.body.chunks for found in gateway.reader().exchanges()] == [None, (b"small",)]


async def test_a_process_that_finds_a_large_body_stored_already_needs_no_key_for_it(shelf: Shelf) -> None:
    for name in ("first", "second"):
        async with shelf.stored() as store:
            await store.save(exchange_of(name, body=body_of(LARGE)))
    with shelf.reading() as reader:
        assert [reader.load(found.request.body) for found in reader.exchanges()] == [LARGE, LARGE]
