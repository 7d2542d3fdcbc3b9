"""The accounts of runs that ended long ago are summed up, and nothing can tell but the clock."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from shadow.account import RouteAccount, Stamp
from shadow.errors import StoreError
from shadow.exchange import SkipReason
from shadow.store.database import writing
from shadow.store.folding import OPEN_FOR, SILENT_FOR, fold, is_open
from shadow.store.schema import accounts
from shadow.store.store import Store
from tests.shadow.bench import NOON, exchange_of
from tests.shadow.store.shelf import Shelf

pytestmark = pytest.mark.anyio

ROUTES = ("a", "b", "c")


def open_rows(store: Store) -> int:
    with store.reader().engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(accounts).where(is_open())).scalar_one()


def an_account(rng: random.Random) -> RouteAccount:
    skipped = {reason: rng.randrange(1, 9) for reason in rng.sample(list(SkipReason), 3)}
    recorded, in_flight = rng.randrange(50), rng.randrange(3)
    refused = {"rate_limited": rng.randrange(1, 5)}
    return RouteAccount(recorded + in_flight + sum(skipped.values()), recorded, in_flight, skipped, refused)


async def test_totals_stay_the_same_whatever_is_folded_and_whoever_comes_back(shelf: Shelf) -> None:
    """A run that was silent for a month goes on, a worker stores what it still had of one, and runs settle late."""
    rng, moment = random.Random(7), NOON
    known: dict[tuple[str, str], RouteAccount] = {}
    async with shelf.stored(now=lambda: moment) as store:

        async def say(run: str, account: RouteAccount) -> None:
            await store.save_accounts(run, dict.fromkeys(ROUTES, account))
            known.update({(run, route): account for route in ROUTES})

        async def worker_stores(run: str, route: str, number: int) -> None:
            before = known[run, route]
            stamp = Stamp(run, before.received, before.skipped)
            await store.save(exchange_of(f"late-{number}", route=route), stamp=stamp)
            known[run, route] = replace(before, recorded=before.recorded + 1, in_flight=before.in_flight - 1)

        def check() -> None:
            found = store.reader().accounts()
            for route in ROUTES:
                expected = RouteAccount()
                for (_, where), account in known.items():
                    expected = expected.plus(account.ended() if where == route else RouteAccount())
                assert found[route] == expected
                assert found[route].balanced
            assert store.reader().routes() == list(ROUTES)

        for number in range(12):
            await say(f"run-{number}", an_account(rng))
        moment += OPEN_FOR + timedelta(seconds=1)
        check()
        await store.purge()
        assert open_rows(store) == 0
        check()
        for number in range(4):
            await say(f"run-{number}", known[f"run-{number}", "a"].plus(an_account(rng)))
        assert open_rows(store) == 4 * len(ROUTES)
        assert store.reader().recorded("run-9") == {route: known["run-9", route].recorded for route in ROUTES}
        moment += timedelta(minutes=1)
        check()
        late = next(run for run in ("run-9", "run-10", "run-11") if known[run, "b"].in_flight)
        await worker_stores(late, "b", 1)
        moment += timedelta(minutes=1)
        check()
        moment += OPEN_FOR
        for _ in range(2):
            await store.purge()
            assert open_rows(store) == 0
            check()


async def test_however_often_a_gateway_is_restarted_few_rows_are_read(shelf: Shelf) -> None:
    moment, total = NOON, RouteAccount()
    async with shelf.stored(now=lambda: moment) as store:
        engine = store.reader().engine
        for number in range(50):
            moment += timedelta(minutes=1)
            account = RouteAccount(2, 1, 0, {SkipReason.LOST: 1})
            await store.save_accounts(f"run-{number}", {"a": account})
            total = total.plus(account)
        assert fold(engine, moment, open_rows=20) == 0, "none is silent for so long"
        assert fold(engine, moment + SILENT_FOR, open_rows=20) == 30
        assert open_rows(store) == 20
        assert store.reader().accounts() == {"a": total}


async def test_an_account_that_cannot_be_read_keeps_no_body_readable(shelf: Shelf) -> None:
    moment = NOON
    async with shelf.stored(now=lambda: moment) as store:
        await store.save(exchange_of("a face", route="a"))
        await store.save_accounts("run", {"a": RouteAccount(1, 1, 0)})
        reader = store.reader()
        with writing(reader.engine).begin() as connection:
            connection.execute(update(accounts).values(skipped="no JSON"))
        moment += OPEN_FOR + timedelta(days=1)
        with pytest.raises(StoreError):  # which the next hour's purge survives
            await store.purge()
        (kept,) = reader.exchanges()
        assert reader.load(kept.request.body) is None
