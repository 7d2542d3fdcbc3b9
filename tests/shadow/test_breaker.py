"""The circuit breaker, on a clock of numbers."""

from __future__ import annotations

from shadow.breaker import Breaker, BreakerState


def fail(breaker: Breaker, at_s: float) -> None:
    turn = breaker.admit(at_s)
    assert turn
    breaker.fail(turn, at_s)


def opened(at_s: float = 0.0) -> Breaker:
    breaker = Breaker(failures=3, reset_s=5.0)
    for _ in range(3):
        fail(breaker, at_s)
    return breaker


def test_it_opens_after_consecutive_failures_only() -> None:
    breaker = Breaker(failures=3, reset_s=5.0)
    fail(breaker, 0.0)
    fail(breaker, 0.0)
    breaker.succeed(breaker.admit(0.0))
    fail(breaker, 0.0)
    fail(breaker, 0.0)
    assert not breaker.blocks(0.0)
    fail(breaker, 0.0)
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
    breaker.succeed(breaker.admit(5.0))
    assert breaker.state is BreakerState.CLOSED
    fail(breaker, 5.0)
    assert breaker.state is BreakerState.CLOSED  # counting starts anew


def test_a_probe_that_fails_opens_it_for_another_turn() -> None:
    breaker = opened()
    breaker.fail(breaker.admit(5.0), 6.0)
    assert breaker.blocks(10.9)
    assert breaker.admit(11.0)


def test_a_probe_that_was_given_up_leaves_the_place_to_the_next() -> None:
    breaker = opened()
    breaker.abandon(breaker.admit(5.0))
    assert breaker.state is BreakerState.OPEN
    assert breaker.admit(5.0)


def test_a_call_from_before_it_opened_says_nothing_about_now() -> None:
    for end in (Breaker.succeed, Breaker.abandon, lambda breaker, turn: breaker.fail(turn, 6.0)):
        breaker = Breaker(failures=1, reset_s=5.0)
        early = breaker.admit(0.0)
        fail(breaker, 0.0)
        end(breaker, early)
        assert (breaker.state, breaker.blocks(4.9), breaker.blocks(5.0)) == (BreakerState.OPEN, True, False)
        breaker = Breaker(failures=1, reset_s=5.0)
        early = breaker.admit(0.0)
        fail(breaker, 0.0)
        probe = breaker.admit(5.0)
        end(breaker, early)
        assert not breaker.admit(6.0), "one probe at a time"
        breaker.succeed(probe)
        assert breaker.state is BreakerState.CLOSED


def test_a_failure_from_before_it_closed_again_does_not_count() -> None:
    breaker = Breaker(failures=3, reset_s=5.0)
    early = [breaker.admit(0.0) for _ in range(3)]
    for _ in range(3):
        fail(breaker, 0.0)
    breaker.succeed(breaker.admit(5.0))
    for turn in early:
        breaker.fail(turn, 6.0)
    assert breaker.state is BreakerState.CLOSED
