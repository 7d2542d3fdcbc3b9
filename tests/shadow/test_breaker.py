"""The circuit breaker, on a clock of numbers."""

from __future__ import annotations

from shadow.breaker import Breaker, BreakerState


def opened(at_s: float = 0.0) -> Breaker:
    breaker = Breaker(failures=3, reset_s=5.0)
    for _ in range(3):
        assert breaker.admit(at_s)
        breaker.fail(at_s)
    return breaker


def test_it_opens_after_consecutive_failures_only() -> None:
    breaker = Breaker(failures=3, reset_s=5.0)
    for outcome in (breaker.fail, breaker.fail, lambda _now: breaker.succeed(), breaker.fail, breaker.fail):
        assert breaker.admit(0.0)
        outcome(0.0)
    assert not breaker.blocks(0.0)
    breaker.fail(0.0)
    assert breaker.state is BreakerState.OPEN


def test_open_it_admits_nothing_until_its_time_has_come() -> None:
    breaker = opened()
    assert breaker.blocks(4.9)
    assert not breaker.admit(4.9)
    assert not breaker.blocks(5.0)


def test_half_open_it_admits_exactly_one_call() -> None:
    breaker = opened()
    assert breaker.admit(5.0)
    assert breaker.state is BreakerState.HALF_OPEN
    assert not breaker.admit(5.0)
    assert breaker.blocks(100.0)


def test_a_probe_that_succeeds_closes_it() -> None:
    breaker = opened()
    assert breaker.admit(5.0)
    breaker.succeed()
    assert breaker.state is BreakerState.CLOSED
    assert breaker.admit(5.0)
    breaker.fail(5.0)
    assert breaker.state is BreakerState.CLOSED  # counting starts anew


def test_a_probe_that_fails_opens_it_for_another_turn() -> None:
    breaker = opened()
    assert breaker.admit(5.0)
    breaker.fail(6.0)
    assert breaker.blocks(10.9)
    assert breaker.admit(11.0)


def test_a_probe_that_was_given_up_leaves_the_place_to_the_next() -> None:
    breaker = opened()
    assert breaker.admit(5.0)
    breaker.abandon()
    assert breaker.state is BreakerState.OPEN
    assert breaker.admit(5.0)
