"""Large bodies in an S3-compatible store, over real HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from shadow.errors import StoreError
from shadow.keeping import Kept
from shadow.store.bucket import Bucket
from shadow.store.inventory import take_inventory
from shadow.store.store import Store
from tests.shadow.bench import NOON, body_of, exchange_of
from tests.shadow.store.bucket_server import ENVIRONMENT, BucketServer
from tests.shadow.store.shelf import LARGE, Shelf

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def server() -> Iterator[BucketServer]:
    server = BucketServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


async def test_bodies_go_to_the_bucket_encrypted_and_leave_it_with_their_day(
    server: BucketServer, tmp_path: Path
) -> None:
    shelf = Shelf.in_folder(tmp_path, bodies=server.bodies)
    huge = b"a face of 12 MB " * 750_000  # more than one request
    moment = NOON
    async with shelf.stored(now=lambda: moment) as store:
        saves = [store.save(exchange_of(str(n), body=body_of(LARGE + bytes([n])))) for n in range(20)]
        await asyncio.gather(*saves, store.save(exchange_of("huge", body=body_of(huge))))
        reader = store.reader()
        found = {exchange.id: reader.load(exchange.request.body) for exchange in reader.exchanges()}
        assert found == {**{str(n): LARGE + bytes([n]) for n in range(20)}, "huge": huge}
        objects = reader.parts.objects
        assert objects.days() == ["2026-05-04"]
        place = reader.exchanges()[0].request.body.place
        kept = objects.get(place)
        assert kept is not None
        assert LARGE[:100] not in kept
        moment += timedelta(days=9)
        assert await store.purge() == 21
        assert (objects.days(), objects.get(place)) == ([], None)
        assert [reader.load(exchange.request.body) for exchange in reader.exchanges()] == [None] * 21


async def test_while_the_bucket_is_away_large_bodies_fail_fast_small_ones_go_on_and_it_recovers_by_itself(
    tmp_path: Path,
) -> None:
    server = BucketServer()
    server.start()
    shelf = Shelf.in_folder(tmp_path, bodies=server.bodies)
    async with shelf.stored() as store:
        await store.save(exchange_of("before", body=body_of(LARGE)))
        server.stop()
        started = time.monotonic()
        large = [store.save(exchange_of(f"large-{n}", body=body_of(LARGE + bytes([n])))) for n in range(100)]
        results = await asyncio.gather(*large, store.save(exchange_of("small")), return_exceptions=True)
        assert {type(result) for result in results[:-1]} == {StoreError}
        assert isinstance(results[-1], int)
        assert time.monotonic() - started < 15
        server.start()
        async with asyncio.timeout(60):
            while not await _saved(store):  # noqa: ASYNC110 - until the breaker lets one try
                await asyncio.sleep(0.2)
        assert {exchange.id for exchange in store.reader().exchanges()} == {"before", "small", "after"}
    server.stop()


async def test_while_the_bucket_is_away_keys_are_destroyed_all_the_same(tmp_path: Path) -> None:
    server = BucketServer()
    server.start()
    shelf = Shelf.in_folder(tmp_path, bodies=server.bodies)
    moment = NOON
    async with shelf.stored(now=lambda: moment) as store:
        await store.save(exchange_of("small", body=body_of(b"a face")))
        reader = store.reader()
        server.stop()
        moment += timedelta(days=9)
        with pytest.raises(StoreError):
            await store.purge()
        found = reader.exchange("small")
        assert found is not None
        assert reader.load(found.request.body) is None
        server.start()
        async with asyncio.timeout(60):
            while not await _purged(store):  # noqa: ASYNC110 - until the breaker lets one try
                await asyncio.sleep(0.2)
        assert take_inventory(reader.engine).routes["classify"].bodies == {Kept.EXPIRED: 1}
    server.stop()


async def _purged(store: Store) -> bool:
    try:
        await store.purge()
    except StoreError:
        return False
    return True


async def _saved(store: Store) -> bool:
    try:
        await store.save(exchange_of("after", body=body_of(LARGE + b"!")))
    except StoreError:
        return False
    return True


@pytest.mark.parametrize("url", ["s3://", "s3://me:hush@bucket/x", "s3://bucket/x?endpiont=http://x"])
def test_a_url_that_is_no_bucket_is_refused(url: str) -> None:
    with pytest.raises(StoreError, match="s3://BUCKET/PREFIX"):
        Bucket.open(url)
