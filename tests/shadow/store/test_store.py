"""The store: what goes in comes out, secrets excepted; nothing else about it is visible from outside."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from shadow.account import RouteAccount, Stamp
from shadow.errors import StoreClosed, StoreError, StoreFull
from shadow.exchange import Exchange, Failure, FailureKind, SkipReason
from shadow.keeping import Kept
from shadow.rule import SECRET_HEADERS
from shadow.store.database import open_database, writing
from shadow.store.inventory import take_inventory
from shadow.store.redaction import REDACTED, redact
from shadow.store.store import Store
from tests.shadow.bench import NOON, body_of, exchange_of
from tests.shadow.store.shelf import Shelf, url_in

pytestmark = pytest.mark.anyio


async def test_m12_secret_headers_are_redacted_before_anything_is_written(shelf: Shelf) -> None:
    names = [*sorted(SECRET_HEADERS), "Ocp-Apim-Subscription-Key", "X-Amz-Security-Token", "X-Auth-Token", "X-Pin"]
    secrets = tuple((name.title().encode(), b"hush-hush") for name in names)
    exchange = exchange_of(headers=((b"Accept", b"*/*"), *secrets))
    asked = replace(exchange.request, target=b"/a?b=1&api_key=hush-hush&x-pin=hush-hush&c=2#d")
    exchange = replace(exchange, request=asked)
    leg = replace(exchange.primary, headers=((b"set-cookie", b"hush-hush"), (b"Server", b"x")))
    async with shelf.stored() as store:
        await store.save(replace(exchange, primary=leg, shadow=leg, control=leg), frozenset({"x-pin"}))
        found = store.reader().exchange(exchange.id)
    assert found is not None
    assert found.request.headers == ((b"Accept", b"*/*"), *((name, REDACTED) for name, _ in secrets))
    assert found.request.target == b"/a?b=1&api_key=[redacted]&x-pin=[redacted]&c=2#d"
    for _, seen in found.observations():
        assert seen.headers == ((b"set-cookie", REDACTED), (b"Server", b"x"))
    written = shelf.everything()
    assert b"hush-hush" not in written
    assert b"[redacted]" in written


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        (b"/a?b=1;token=hush&c=2", b"/a?b=1;token=[redacted]&c=2"),
        (b"/a?b;token=hush;c&d", b"/a?b;token=[redacted]&d"),
        (b"/a?+%74oken%20=hush", b"/a?+%74oken%20=[redacted]"),
        (b"/a#access_token=hush&b=2", b"/a#access_token=[redacted]&b=2"),
        (b"/a?user[password]=hush&user[name]=b", b"/a?user[password]=[redacted]&user[name]=b"),
        (b"/a?accessToken=hush&APIKey=hush&maxTokens=5", b"/a?accessToken=[redacted]&APIKey=[redacted]&maxTokens=5"),
        (b"/a?xPin=hush&x_pin=hush&spin=1", b"/a?xPin=[redacted]&x_pin=[redacted]&spin=1"),
        (b"/a?back=https://b/?sig=hush&c=2", b"/a?back=https://b/?sig=[redacted]&c=2"),
        (b"/a?back=https%3A%2F%2Fb%2F%3Fsig%3Dhush%26c&d=%20", b"/a?back=[redacted]&d=%20"),
        (b"/a?back=%3Fb%3D%253Fsig%253Dhush&c=%25252541", b"/a?back=[redacted]&c=%25252541"),
        (b"/a?b=%3Fb%3D%253Fb%253D%25253Fb%25253D%2525253Fsig%2525253Dhush", b"/a?b=[redacted]"),
        (b"/a?b=%3Fb%3D%253Fb%253D%25253Fb%25253D%2525253Fb%2525253D%252525253Fsig%252525253Dhush", b"/a?b=[redacted]"),
        (b"https://me:hush@b/c@d", b"https://[redacted]@b/c@d"),
        (b"/a?back=https%3A%2F%2Fme:hush%40b%2F&c=a@b", b"/a?back=[redacted]&c=a@b"),
        (b"/?=&;;&a==b&?%", b"/?=&;;&a==b&?%"),
    ],
)
def test_a_secret_in_a_url_is_covered_however_it_is_written_and_wherever_it_stands(url: bytes, kept: bytes) -> None:
    exchange = exchange_of(headers=((b"Referer", url),))
    exchange = replace(
        exchange,
        request=replace(exchange.request, target=url),
        primary=replace(exchange.primary, headers=((b"Location", url), (b"Link", b"<" + url + b">; rel=next"))),
    )
    found = redact(exchange, frozenset({"xpin", "x-pin"}))
    assert found.request.target == kept
    assert found.request.headers == ((b"Referer", kept),)
    assert found.primary.headers[0] == (b"Location", kept)
    assert b"hush" not in found.primary.headers[1][1]


async def test_c12_stored_times_do_not_depend_on_the_zone(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    moments.append(datetime(2026, 10, 25, 23, 59, 59, 999999, tzinfo=UTC))
    written = []
    try:
        for zone in ("UTC", "Asia/Seoul", "Europe/Berlin"):
            monkeypatch.setenv("TZ", zone)
            time.tzset()
            async with shelf.stored() as store:
                for number, moment in enumerate(moments):
                    await store.save(replace(exchange_of(f"{zone} {number}", route=zone), received_at=moment))
                assert [exchange.received_at for exchange in store.reader().exchanges(zone)] == moments
                with store.reader().engine.connect() as connection:
                    query = text("SELECT received_at_us FROM exchanges WHERE route = :zone ORDER BY sequence")
                    written.append(connection.execute(query, {"zone": zone}).scalars().all())
    finally:
        monkeypatch.undo()
        time.tzset()
    assert written[0] == written[1] == written[2]


async def test_a_time_without_a_zone_is_refused_and_harms_no_other(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        naive = replace(exchange_of("naive"), received_at=datetime(2026, 1, 1))
        results = await asyncio.gather(
            store.save(exchange_of("a")), store.save(naive), store.save(exchange_of("b")), return_exceptions=True
        )
        assert isinstance(results[1], StoreError)
        assert [exchange.id for exchange in store.reader().exchanges()] == ["a", "b"]


async def test_a_row_that_the_database_refuses_harms_no_other_of_its_batch(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        results = await asyncio.gather(
            store.save(exchange_of("a")),
            store.save(exchange_of("\ud800")),
            store.save(exchange_of("b")),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [int, StoreError, int]
        assert [exchange.id for exchange in store.reader().exchanges()] == ["a", "b"]


async def test_an_exchange_is_stored_once_by_its_id(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        first = await store.save(exchange_of("same"))
        await store.save(exchange_of("other"))
        assert await store.save(replace(exchange_of("same"), route="changed")) == first
        assert store.reader().count() == 2
        found = store.reader().exchange("same")
    assert found is not None
    assert found.route == "classify"


async def test_a_reader_elsewhere_walks_through_while_the_writer_writes(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        with shelf.reading() as reader:
            for number in range(10):
                await store.save(exchange_of(str(number), route=("even", "odd")[number % 2]))
                assert reader.count() == number + 1
            seen: list[Exchange] = []
            while page := reader.exchanges(after_sequence=seen[-1].sequence if seen else 0, limit=4):
                seen += page
            assert [exchange.id for exchange in seen] == [str(number) for number in range(10)]
            assert [exchange.id for exchange in reader.exchanges("odd")] == ["1", "3", "5", "7", "9"]
            assert (reader.count("odd"), reader.routes()) == (5, ["even", "odd"])
            assert reader.exchange("nowhere") is None


async def test_a_route_is_walked_through_in_the_order_of_arrival(shelf: Shelf) -> None:
    hours = [3, 1, 2, 1, 0, 4]
    async with shelf.stored() as store:
        for number, hour in enumerate(hours):
            exchange = exchange_of(str(number), route="other" if number == 2 else "classify")
            await store.save(replace(exchange, received_at=NOON + timedelta(hours=hour)))
        reader, since, until = store.reader(), NOON + timedelta(hours=1), NOON + timedelta(hours=4)
        seen: list[Exchange] = []
        while page := reader.received(
            "classify", since, until, after=(seen[-1].received_at, seen[-1].sequence) if seen else None, limit=1
        ):
            seen += page
        assert [exchange.id for exchange in seen] == ["1", "3", "0"]


async def test_the_engine_is_open_to_the_tables_of_others(shelf: Shelf) -> None:
    async with shelf.stored():
        with shelf.reading() as reader:
            with writing(reader.engine).begin() as connection:
                connection.execute(text("CREATE TABLE measurements (sequence INTEGER)"))
                connection.execute(text("INSERT INTO measurements VALUES (1)"))
            with reader.engine.connect() as connection:
                assert connection.execute(text("SELECT sequence FROM measurements")).scalar_one() == 1


async def test_accounts_add_up_over_runs_and_what_a_dead_run_left_is_lost(shelf: Shelf) -> None:
    moment = NOON
    async with shelf.stored(now=lambda: moment) as store:
        await store.save_accounts("dead", {"r": RouteAccount(1, 0, 1)})
        await store.save_accounts(
            "dead", {"r": RouteAccount(10, 6, 3, {SkipReason.QUEUE_FULL: 1}, {"rate_limited": 2})}
        )
        moment = NOON + timedelta(seconds=10)
        known = RouteAccount(10, 6, 3, {SkipReason.QUEUE_FULL: 1}, {"rate_limited": 2})
        assert store.reader().accounts() == {"r": known}
        moment += timedelta(microseconds=1)
        await store.save_accounts(
            "alive",
            {"r": RouteAccount(5, 2, 2, {SkipReason.QUEUE_FULL: 1}, {"rate_limited": 3}), "s": RouteAccount()},
        )
        totals = store.reader().accounts()
    assert totals == {
        "r": RouteAccount(15, 8, 2, {SkipReason.QUEUE_FULL: 2, SkipReason.LOST: 3}, {"rate_limited": 5}),
        "s": RouteAccount(),
    }
    assert all(account.balanced for account in totals.values())


async def test_an_account_that_was_taken_before_a_stamp_takes_nothing_back(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        await store.save(exchange_of(), stamp=Stamp("run", 11, {SkipReason.QUEUE_FULL: 10}))
        await store.save_accounts("run", {exchange_of().route: RouteAccount(10, 0, 0, {SkipReason.QUEUE_FULL: 10})})
        account = store.reader().accounts()[exchange_of().route]
    assert account == RouteAccount(11, 1, 0, {SkipReason.QUEUE_FULL: 10})


async def test_what_is_stored_though_its_save_failed_makes_no_number_negative(shelf: Shelf) -> None:
    """The answer to a commit may never come: the gateway counts a failure, and the row is there."""
    moment = NOON
    async with shelf.stored(now=lambda: moment) as store:
        route, failed = exchange_of().route, {SkipReason.STORE_FAILED: 2}
        await store.save(exchange_of(), stamp=Stamp("run", 3))
        await store.save_accounts("run", {route: RouteAccount(3, 0, 1, failed)})
        balanced = RouteAccount(3, 1, 0, failed)
        assert store.reader().accounts() == {route: balanced}
        await store.save_accounts("run", {route: RouteAccount(3, 0, 0, {SkipReason.STORE_FAILED: 3})})
        assert store.reader().accounts() == {route: balanced}
        moment += timedelta(days=1)
        assert store.reader().accounts() == {route: balanced}, "nor when the run is gone"


async def test_what_a_newer_version_wrote_by_names_unknown_here_is_read_and_stays_counted(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        whole = exchange_of("one", body=body_of(b"x"))
        failed = replace(whole.primary, failure=Failure(FailureKind.RESET, "Tired"))
        await store.save(replace(whole, shadow=failed, control=failed))
        await store.save(exchange_of("two", body=body_of(b"y")))
        await store.save_accounts("run", {"r": RouteAccount(9, 3, 0, {SkipReason.LOST: 1, SkipReason.SHUTDOWN: 5})})
        with writing(store.reader().engine).begin() as connection:
            for change in (
                "UPDATE accounts SET skipped = REPLACE(skipped, 'shutdown', 'wind_of_change')",
                "UPDATE exchanges SET bodies = CASE id WHEN 'one' THEN 'on_the_moon' ELSE 'at_sea' END",
                "UPDATE observations SET failure_kind = 'tired' WHERE role = 'shadow'",
                "UPDATE observations SET role = 'witness' WHERE role = 'control'",
            ):
                connection.execute(text(change))
        reader = store.reader()
        assert reader.accounts() == {"r": RouteAccount(9, 3, 0, {SkipReason.LOST: 6})}
        assert take_inventory(reader.engine).routes[whole.route].bodies == {Kept.NONE: 2}
        found = reader.exchange("one")
    assert found is not None
    assert (found.request.body.chunks, found.control) == (None, None)
    assert found.shadow is not None
    assert found.shadow.failure == Failure(FailureKind.PROTOCOL, "Tired")


async def test_a_run_keeps_the_time_it_started(shelf: Shelf) -> None:
    moment = NOON
    async with shelf.stored(now=lambda: moment) as store:
        await store.save_accounts("run", {"r": RouteAccount()})
        moment = NOON + timedelta(seconds=3)
        await store.save_accounts("run", {"r": RouteAccount()})
        with store.reader().engine.connect() as connection:
            row = connection.execute(text("SELECT started_at_us, updated_at_us FROM accounts")).one()
    assert row.updated_at_us - row.started_at_us == 3_000_000


BAD_PORTS = ("postgresql+psycopg://me:hush@host:port/x", "postgresql+psycopg://me:hush@host/x?port=hush")


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "postgresql://localhost/x", "mysql://x", "x", *BAD_PORTS]
)
def test_only_a_known_database_will_do(url: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="sqlite:///PATH or postgresql") as told:
        Store.open(url, tmp_path)
    assert "hush" not in str(told.value)


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "crossfade.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match="cannot open the database"):
        Store.open(url_in(tmp_path), tmp_path / "bodies")


@pytest.mark.parametrize("where", ["me:hush-hush@127.0.0.1:9/x", "me@127.0.0.1:9/x?password=hush-hush"])
def test_a_server_that_is_not_there_is_told_without_the_password(where: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot open the database") as told:
        Store.open(f"postgresql+psycopg://{where}", tmp_path, key=f"file:{tmp_path}/key")
    assert "hush-hush" not in str(told.value)


async def test_a_closed_store_says_so_after_writing_what_was_queued(shelf: Shelf) -> None:
    async with shelf.stored() as store:
        saving = [asyncio.ensure_future(store.save(exchange_of(str(number)))) for number in range(20)]
        await asyncio.sleep(0)
        await store.aclose()
        assert sorted(await asyncio.gather(*saving)) == list(range(1, 21))
        with pytest.raises(StoreClosed):
            await store.save(exchange_of("late"))


async def test_c11_a_locked_database_holds_up_no_loop_and_a_full_queue_is_an_error_at_once(shelf: Shelf) -> None:
    engine = open_database(shelf.url)
    async with shelf.stored(max_queued=2) as store:
        with writing(engine).connect() as other, other.begin():
            waiting = [asyncio.ensure_future(store.save(exchange_of("first")))]
            assert await longest_gap_s(over_s=0.5) < 5, "the lock is waited for up to 10 s"
            waiting += [asyncio.ensure_future(store.save(exchange_of(f"id-{number}"))) for number in range(5)]
            await asyncio.wait(waiting, timeout=0.1)
            assert [task.done() for task in waiting] == [False, False, False, True, True, True]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [int, int, int, StoreFull, StoreFull, StoreFull]
        assert store.reader().count() == 3
    engine.dispose()


async def longest_gap_s(over_s: float) -> float:
    """Return the longest time that the event loop was away."""
    started = before = time.monotonic()
    longest = 0.0
    while before - started < over_s:
        await asyncio.sleep(0.001)
        now = time.monotonic()
        longest, before = max(longest, now - before), now
    return longest


async def test_a_saved_body_is_not_held_any_longer(shelf: Shelf) -> None:
    chunk = os.urandom(20_000)
    before = sys.getrefcount(chunk)
    async with shelf.stored() as store:
        await store.save(exchange_of("a", body=body_of(chunk)))
        async with asyncio.timeout(30):
            # The writing thread is still on its way back to its queue, and a count of references has no event.
            while sys.getrefcount(chunk) > before:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


async def test_a_save_whose_caller_has_gone_is_not_done(shelf: Shelf) -> None:
    engine = open_database(shelf.url)
    async with shelf.stored() as store:
        with writing(engine).connect() as other, other.begin():
            under_way = asyncio.ensure_future(store.save(exchange_of("under-way")))
            await asyncio.sleep(0.1)
            queued = asyncio.ensure_future(store.save(exchange_of("queued")))
            await asyncio.sleep(0)
            queued.cancel()
            await asyncio.wait({queued})
        await under_way
        assert [exchange.id for exchange in store.reader().exchanges()] == ["under-way"]
    engine.dispose()


async def test_a_stamped_exchange_brings_its_runs_account_with_it(shelf: Shelf) -> None:
    """Whatever order they are written in, the account knows every stored row, and a row stored twice counts once."""
    async with shelf.stored() as store:
        reader = store.reader()
        await store.save(exchange_of("b"), stamp=Stamp("run", 3, {SkipReason.CLIENT_GONE: 1}))
        assert reader.accounts()["classify"] == RouteAccount(3, 1, 1, {SkipReason.CLIENT_GONE: 1})
        await store.save(exchange_of("a"), stamp=Stamp("run", 2))
        await store.save(exchange_of("a"), stamp=Stamp("run", 9))
        assert reader.accounts()["classify"] == RouteAccount(3, 2, 0, {SkipReason.CLIENT_GONE: 1})
        await store.save_accounts("run", {"classify": RouteAccount(5, 0, 4, {SkipReason.CLIENT_GONE: 1})})
        assert reader.accounts()["classify"] == RouteAccount(5, 2, 2, {SkipReason.CLIENT_GONE: 1})


async def test_c11_a_database_locked_for_too_long_is_an_error_of_those_saves_and_the_next_ones_work(
    shelf: Shelf,
) -> None:
    engine = open_database(shelf.url)
    async with shelf.stored(lock_timeout_s=0.2) as store:
        await store.save(exchange_of("before"))
        with writing(engine).connect() as other, other.begin():
            saves = [store.save(exchange_of(f"during-{number}")) for number in range(5)]
            results = await asyncio.gather(*saves, return_exceptions=True)
            assert {type(result) for result in results} == {StoreError}
            assert "during" not in str(results)
        await store.save(exchange_of("after"))
        assert [exchange.id for exchange in store.reader().exchanges()] == ["before", "after"]
    engine.dispose()
