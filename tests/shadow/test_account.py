"""The account of a route."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shadow.account import Account, RouteAccount
from shadow.exchange import SkipReason

REASONS = st.sampled_from(SkipReason)


@given(st.lists(REASONS), st.lists(st.one_of(st.none(), REASONS)), st.integers(0, 5))
def test_every_exchange_is_in_exactly_one_place(
    refused: list[SkipReason], ended: list[SkipReason | None], open_still: int
) -> None:
    account = Account()
    for reason in refused:
        account.skip(reason)
    for _ in range(len(ended) + open_still):
        account.begin()
    for outcome in ended:
        if outcome is None:
            account.record()
        else:
            account.drop(outcome)
    snapshot = account.snapshot()
    assert snapshot.tapped == len(refused) + len(ended) + open_still
    assert (snapshot.in_flight, snapshot.recorded) == (open_still, ended.count(None))
    for reason in SkipReason:
        assert snapshot.skipped.get(reason, 0) == refused.count(reason) + ended.count(reason)


def test_a_snapshot_does_not_change_with_the_account() -> None:
    account = Account()
    account.skip(SkipReason.SHUTDOWN)
    before = account.snapshot()
    account.skip(SkipReason.SHUTDOWN)
    assert before.skipped == {SkipReason.SHUTDOWN: 1}


def test_a_route_account_knows_when_it_does_not_add_up() -> None:
    skipped = {SkipReason.LOST: 1}
    assert RouteAccount(received=6, recorded=3, in_flight=2, skipped=skipped).balanced
    assert not RouteAccount(received=7, recorded=3, in_flight=2, skipped=skipped).balanced
