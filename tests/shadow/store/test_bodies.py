"""Bodies in the store: how they lie there, who can read them, when they go."""

from __future__ import annotations

import asyncio
import hashlib
import stat
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import text

from shadow.errors import CorruptBody
from shadow.exchange import Body
from shadow.keeping import Kept
from shadow.store.database import writing
from shadow.store.expiry import purge_days
from shadow.store.inventory import take_inventory
from shadow.store.objects import ObjectFolder
from tests.shadow.bench import NOON, body_of, exchange_of
from tests.shadow.store.shelf import LARGE, Shelf, everything_in

pytestmark = pytest.mark.anyio
DAY = "2026-05-04"
FACE = b"a face " * 40
LARGE_FACE = b"a large face " * 4000


async def test_large_bodies_are_one_private_file_a_day_by_content(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        for number in range(3):
            await store.save(exchange_of(str(number), body=body_of(LARGE[:100], LARGE[100:])))
        await store.save(exchange_of("small", body=body_of(LARGE[:-1])))
        reader = store.reader()
        found = reader.exchange("0")
        assert found is not None
        assert found.request.body.chunks is None
        assert reader.load(found.request.body) == LARGE
        digest = reader.parts.vault.digest(body_of(LARGE).sha256)
    (file,) = shelf.files()
    assert file == Path(shelf.bodies) / DAY / digest[:2] / digest
    modes = {stat.S_IMODE(path.stat().st_mode) for path in shelf.folders()}
    assert modes == {0o700}
    private = [path for path in shelf.folder.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


async def test_nothing_of_a_body_and_no_hash_of_it_lies_on_the_disk(tmp_path: Path) -> None:
    """A plain sha256 would let anyone who has a picture confirm that this person sent it."""
    shelf = Shelf.in_folder(tmp_path)
    async with shelf.stored() as store:
        await store.save(exchange_of("small", body=body_of(FACE)))
        await store.save(exchange_of("large", body=body_of(LARGE_FACE)))
        reader = store.reader()
        assert [reader.load(exchange.request.body) for exchange in reader.exchanges()] == [FACE, LARGE_FACE]
    written = everything_in(tmp_path)
    assert b"a face" not in written
    assert b"a large face" not in written
    for content in (FACE, LARGE_FACE):
        assert hashlib.sha256(content).hexdigest().encode() not in written
        assert hashlib.sha256(content).digest() not in written
    assert b"classify" in written


async def test_equal_bytes_have_equal_digests_also_where_they_were_not_kept(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        await store.save(exchange_of("a", body=body_of(FACE)))
        await store.save(exchange_of("b", body=replace(body_of(FACE), chunks=None)))
        await store.save(exchange_of("c", body=body_of(FACE + b"!")))
        a, b, c = (exchange.request.body.sha256 for exchange in store.reader().exchanges())
    assert a == b != c
    other = Shelf.in_folder(shelf.folder / "other")
    async with other.stored() as store:
        await store.save(exchange_of("a", body=body_of(FACE)))
        assert [exchange.request.body.sha256 for exchange in store.reader().exchanges()] != [a]


async def test_a_body_that_is_not_what_was_stored_is_refused(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        await store.save(exchange_of(body=body_of(LARGE)))
        (file,) = shelf.files()
        sealed = bytearray(file.read_bytes())
        sealed[100] ^= 1
        file.write_bytes(sealed)
        found = store.reader().exchange("id-1")
        assert found is not None
        with pytest.raises(CorruptBody):
            store.reader().load(found.request.body)


async def test_bodies_cannot_be_put_in_each_others_place(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        await store.save(exchange_of("a", body=body_of(FACE)))
        await store.save(exchange_of("b", body=body_of(b"another face")))
        reader = store.reader()
        with writing(reader.engine).begin() as connection:
            stolen = "(SELECT body_inline FROM exchanges WHERE id = 'a')"
            connection.execute(text(f"UPDATE exchanges SET body_inline = {stolen} WHERE id = 'b'"))
        a, b = reader.exchanges()
        assert reader.load(a.request.body) == FACE
        with pytest.raises(CorruptBody):
            reader.load(b.request.body)
        assert b.primary.body is not None
        assert reader.load(b.primary.body) == b"yes"


async def test_a_place_that_is_a_path_reads_nothing(shelf: Shelf) -> None:
    (shelf.folder / "secret").write_text("hush")
    async with shelf.stored() as store:
        with pytest.raises(CorruptBody):
            store.reader().load(Body("0" * 64, 4, place="../../../secret"))


async def test_purging_destroys_whole_days_with_their_keys_and_leaves_the_rows(shelf: Shelf) -> None:
    moment = NOON + timedelta(days=8)  # the day of NOON ended seven and a half days ago, the next six and a half
    old, small = exchange_of("old", body=body_of(LARGE)), exchange_of("small", body=body_of(FACE))
    new = replace(exchange_of("new", body=body_of(LARGE)), received_at=NOON + timedelta(hours=12))
    async with shelf.stored(now=lambda: moment) as store:
        for exchange in (old, small, new):
            await store.save(exchange)
        reader = store.reader()
        digest = reader.parts.vault.digest(old.request.body.sha256)
        assert len(shelf.files()) == 2
        assert await store.purge() == 1
        gone, also, kept = reader.exchanges()
        assert (gone.request.body.sha256, gone.request.body.size_bytes) == (digest, len(LARGE))
        for exchange in (gone, also):
            assert exchange.primary.body is not None
            assert [reader.load(body) for body in (exchange.request.body, exchange.primary.body)] == [None, None]
        assert reader.load(kept.request.body) == LARGE
        assert await store.purge() == 0
        with reader.engine.connect() as connection:
            names = connection.execute(text("SELECT name FROM body_keys ORDER BY name")).scalars().all()
    assert names == ["2026-05-05", "digests"]
    assert len(shelf.files()) == 1


async def test_a_destroyed_key_is_nowhere_on_the_disk_and_a_copy_of_the_object_stays_dark(tmp_path: Path) -> None:
    shelf = Shelf.in_folder(tmp_path)
    moment = NOON
    async with shelf.stored(now=lambda: moment) as store:
        await store.save(exchange_of(body=body_of(LARGE)))
        reader = store.reader()
        found = reader.exchange("id-1")
        assert found is not None
        (file,) = shelf.files()
        copy = file.read_bytes()
        with reader.engine.connect() as connection:
            query = text("SELECT wrapped FROM body_keys WHERE name = '2026-05-04'")
            wrapped = connection.execute(query).scalar_one()
        assert wrapped in everything_in(tmp_path)
        moment += timedelta(days=9)
        await store.purge()
        file.parent.mkdir(parents=True)
        file.write_bytes(copy)  # a backup comes back
        assert reader.load(found.request.body) is None
    assert wrapped not in everything_in(tmp_path)


async def test_a_purge_that_was_cut_off_is_ended_by_the_next(shelf: Shelf) -> None:
    moment = NOON + timedelta(days=9)
    async with shelf.stored(now=lambda: moment) as store:
        await store.save(exchange_of("small", body=body_of(FACE)))
        await store.save(replace(exchange_of("next", body=body_of(FACE)), received_at=NOON + timedelta(days=1)))
        reader = store.reader()

        def cut_off(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            purge_days(reader.engine, reader.parts.objects, moment.date(), cut_off)
        assert [reader.load(exchange.request.body) for exchange in reader.exchanges()] == [None, None]
        assert take_inventory(reader.engine).key_days == ()
        await store.purge()
        held = take_inventory(reader.engine).routes["classify"]
        with reader.engine.connect() as connection:
            names = connection.execute(text("SELECT name FROM body_keys")).scalars().all()
    assert held.bodies == {Kept.EXPIRED: 2}
    assert names == ["digests"]


async def test_a_purge_keeps_no_writer_out_while_somebody_reads_for_long(tmp_path: Path) -> None:
    shelf = Shelf.in_folder(tmp_path)
    moment = NOON
    async with shelf.stored(now=lambda: moment, lock_timeout_s=3) as store:
        await store.save(exchange_of("old", body=body_of(FACE)))
        with shelf.reading() as reader, reader.engine.connect() as connection:
            assert connection.execute(text("SELECT count(*) FROM exchanges")).scalar_one() == 1
            moment += timedelta(days=9)
            purge = asyncio.create_task(store.purge())
            slowest, number = 0.0, 0
            while not purge.done():
                started = time.monotonic()
                await store.save(replace(exchange_of(f"new-{number}", body=body_of(FACE)), received_at=moment))
                slowest, number = max(slowest, time.monotonic() - started), number + 1
            await purge
        with store.reader().engine.connect() as connection:
            assert connection.execute(text("PRAGMA busy_timeout")).scalar_one() == 3000
    assert slowest < 1.5, "half of how long a writer waits for the lock"


async def test_what_comes_in_late_for_a_purged_day_goes_with_the_next_purge(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        await store.save(exchange_of("first", body=body_of(LARGE)))
        await store.purge()
        await store.save(exchange_of("late", body=body_of(FACE)))
        late = store.reader().exchange("late")
        assert late is not None
        assert store.reader().load(late.request.body) == FACE
        await store.purge()
        late = store.reader().exchange("late")
        assert late is not None
        assert store.reader().load(late.request.body) is None


async def test_several_gateways_may_purge_at_the_same_moment(shelf: Shelf) -> None:
    moment = NOON + timedelta(days=40)
    async with shelf.stored(now=lambda: moment) as store, shelf.stored(now=lambda: moment) as other:
        for number in range(100):
            exchange = exchange_of(f"id-{number}", body=body_of(LARGE + bytes([number])))
            await store.save(replace(exchange, received_at=NOON + timedelta(days=number % 20)))
        await asyncio.gather(*(each.purge() for each in (store, other, store, other)))
        assert take_inventory(store.reader().engine).routes["classify"].bodies == {Kept.EXPIRED: 100}
    assert shelf.files() == []


def test_a_body_that_cannot_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    folder = ObjectFolder(tmp_path / "bodies")
    name = f"{DAY}/ab/ab{'0' * 62}"
    with pytest.raises(TypeError):
        folder.put(name, lambda: [LARGE[:100], cast("bytes", "not bytes")])
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert folder.get(name) is None
