"""When a server gets requests and when not, and which of several does: rules, without sockets."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.condition import MAX_BACKOFF, Condition, Outcome, ServerState, pick
from gateway.settings import HealthCheck, ServerRules

RULES = ServerRules(eject_after=3, eject_s=10, breaker_failures=2, breaker_reset_s=1)


def call(condition: Condition, outcome: Outcome, now_s: float = 0.0, *, is_last: bool = False) -> bool:
    turn = condition.begin(now_s)
    return condition.end(outcome, now_s, turn, is_last=is_last)


def test_failures_in_a_row_eject_and_time_brings_back() -> None:
    one = Condition(RULES)
    assert [call(one, Outcome.FAILURE) for _ in range(3)] == [False, False, True]
    assert (one.state(9.9), one.is_available(9.9)) == (ServerState.EJECTED, False)
    assert (one.state(10), one.is_available(10)) == (ServerState.UP, True)


def test_a_success_between_failures_forgives_them() -> None:
    one = Condition(RULES)
    for _ in range(10):
        assert not call(one, Outcome.FAILURE)
        assert not call(one, Outcome.FAILURE)
        assert not call(one, Outcome.SUCCESS)
    assert one.is_available(0)


def test_what_shows_nothing_neither_ejects_nor_forgives() -> None:
    one = Condition(RULES)
    for outcome in (Outcome.FAILURE, Outcome.ABANDONED, Outcome.FAILURE, Outcome.ABANDONED):
        assert not call(one, outcome)
    assert call(one, Outcome.FAILURE)


def test_the_last_one_is_never_ejected() -> None:
    one = Condition(RULES)
    assert not any(call(one, Outcome.FAILURE, is_last=True) for _ in range(100))
    assert one.is_available(0)


def test_each_ejection_in_a_row_is_longer_up_to_a_bound() -> None:
    one, now_s, lengths = Condition(RULES), 0.0, []
    for _ in range(MAX_BACKOFF + 2):
        while not call(one, Outcome.FAILURE, now_s):
            pass
        began_s = now_s
        while not one.is_available(now_s):
            now_s += 1
        lengths.append(now_s - began_s)
    assert lengths == [*range(10, 101, 10), 100, 100]
    assert one.ejections == MAX_BACKOFF + 2


def test_the_breaker_opens_for_refused_connections_also_of_the_last_one_and_one_call_tries() -> None:
    one = Condition(RULES)
    for _ in range(2):
        call(one, Outcome.NO_CONNECTION, is_last=True)
    assert (one.state(0.5), one.is_connectable(0.5)) == (ServerState.BROKEN, False)
    assert one.is_connectable(1.0)
    turn = one.begin(1.0)
    assert not one.is_connectable(5.0), "one call tries, and no second one while it does"
    one.end(Outcome.SUCCESS, 5.0, turn, is_last=True)
    assert one.state(5.0) is ServerState.UP


def test_a_failure_after_the_connection_does_not_open_the_breaker() -> None:
    one = Condition(RULES)
    for _ in range(20):
        call(one, Outcome.FAILURE, is_last=True)
    assert one.is_connectable(0)


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.FAILURE, Outcome.ABANDONED])
def test_a_call_from_before_the_breaker_opened_does_not_close_it(outcome: Outcome) -> None:
    one = Condition(replace(RULES, slow_start_s=20))
    early = one.begin(0.0)
    for _ in range(2):
        call(one, Outcome.NO_CONNECTION, is_last=True)
    one.end(outcome, 0.5, early, is_last=True)
    assert (one.state(0.5), one.is_connectable(0.5)) == (ServerState.BROKEN, False)
    turn = one.begin(1.0)
    one.end(Outcome.SUCCESS, 2.0, turn, is_last=True)
    assert one.state(2.0) is ServerState.STARTING


def test_checks_move_a_server_only_at_their_thresholds() -> None:
    one = Condition(ServerRules(check=HealthCheck("/", up_after=2, down_after=3)))
    results = [False, False, True, False, False, False, True, False, True, True]
    changed = [one.note_check(result, 0) for result in results]
    assert [place for place, change in enumerate(changed) if change] == [5, 9]
    assert one.is_available(0)


def test_a_share_grows_after_coming_back() -> None:
    one = Condition(ServerRules(eject_after=1, eject_s=10, slow_start_s=20))
    assert one.share(0) == 1
    call(one, Outcome.FAILURE)
    assert one.share(10) == pytest.approx(0.05)
    assert one.share(20) == pytest.approx(0.5)
    assert one.state(20) is ServerState.STARTING
    assert one.share(30) == 1


def test_the_one_with_fewest_outstanding_calls_is_picked() -> None:
    many = [Condition(RULES) for _ in range(5)]
    for number, one in enumerate(many):
        for _ in range(0 if number == 3 else number + 1):
            one.begin(0)
    assert {pick(many, 0, random.Random(seed)) for seed in range(50)} == {3}


@pytest.mark.parametrize("count", [2, 3, 7])
def test_equals_are_used_evenly_and_in_no_fixed_order(count: int) -> None:
    many, rng, order = [Condition(RULES) for _ in range(count)], random.Random(1), []
    for now_s in range(count * 300):
        place = pick(many, float(now_s), rng)
        call(many[place], Outcome.SUCCESS, float(now_s))
        order.append(place)
    shares = Counter(order)
    assert min(shares.values()) > 0.85 * 300
    if count > 2:
        assert order[:count] != order[count : 2 * count] or order[:count] != order[2 * count : 3 * count]


def test_one_that_is_starting_gets_its_share_and_no_more() -> None:
    rules = ServerRules(slow_start_s=100)
    old, new, rng, taken = Condition(rules), Condition(rules, 0.0), random.Random(7), 0
    for _ in range(4000):
        place = pick([old, new], 20.0, rng)
        taken += place
        for one in (old, new)[place : place + 1]:
            call(one, Outcome.SUCCESS, 20.0)
    # It takes part in 20 % of the choices, and wins at least the half of these.
    assert 0.08 * 4000 < taken < 0.22 * 4000


def test_where_all_are_starting_one_is_picked_all_the_same() -> None:
    many = [Condition(ServerRules(slow_start_s=100), 0.0) for _ in range(3)]
    assert {pick(many, 0.0, random.Random(seed)) for seed in range(50)} == {0, 1, 2}


@given(st.lists(st.sampled_from(Outcome), max_size=60), st.integers(0, 2**32))
def test_whatever_happens_nothing_stays_outstanding_and_it_comes_back(outcomes: list[Outcome], seed: int) -> None:
    one, rng, now_s = Condition(RULES), random.Random(seed), 0.0
    for outcome in outcomes:
        now_s += rng.random() * 3
        call(one, outcome, now_s, is_last=rng.random() < 0.3)
    assert one.outstanding == 0
    assert one.is_available(now_s + RULES.eject_s * MAX_BACKOFF + 1)
