"""The e-CUSUM: rare false alarms, fast true ones, and a past that dilutes nothing."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.stats import best_bet, log_e_cusum

ALARM_AFTER = 200.0
RATE, FEARED = 0.02, 0.1
BET = best_bet(RATE, FEARED)


def steps_to_alarm(rate: float, seed: int, limit: int = 20_000) -> int:
    rng, log_w = random.Random(seed), 0.0
    for step in range(1, limit + 1):
        log_w = log_e_cusum(log_w, int(rng.random() < rate), 1, RATE, BET)
        if log_w >= math.log(ALARM_AFTER):
            return step
    return limit


def test_the_mean_time_to_a_false_alarm_is_at_least_a() -> None:
    mean = sum(steps_to_alarm(RATE, seed, limit=5000) for seed in range(60)) / 60
    assert mean >= ALARM_AFTER


def test_a_regression_is_found_soon() -> None:
    delays = sorted(steps_to_alarm(0.2, seed) for seed in range(60))
    assert delays[len(delays) // 2] < 60


def test_a_long_good_past_delays_nothing() -> None:
    def delay(past: int) -> int:
        log_w = 0.0
        for _ in range(past):
            log_w = log_e_cusum(log_w, 0, 1, RATE, BET)
        steps = 0
        while log_w < math.log(ALARM_AFTER):
            log_w, steps = log_e_cusum(log_w, 1, 1, RATE, BET), steps + 1
        return steps

    assert delay(0) == delay(100_000)


@given(st.integers(0, 40), st.integers(0, 40), st.floats(0, 5))
def test_what_is_seen_together_has_no_order(events: int, others: int, start: float) -> None:
    """One step of several is their product: what one by one would give wherever W stays above 1."""
    together = log_e_cusum(start, events, events + others, RATE, BET)
    gain = events * math.log1p(BET * (1 - RATE)) + others * math.log1p(-BET * RATE)
    assert together == pytest.approx(start + gain)


def test_nothing_seen_changes_nothing() -> None:
    assert log_e_cusum(-3.0, 0, 0, RATE, BET) == -3.0
    with pytest.raises(ValueError, match="2 events of 1"):
        log_e_cusum(0.0, 2, 1, RATE, BET)


@given(st.floats(0.001, 0.5), st.floats(0.51, 0.99))
def test_a_bet_never_makes_w_negative(rate: float, feared: float) -> None:
    assert 0 < best_bet(rate, feared) < 1 / rate


@pytest.mark.parametrize(("rate", "feared"), [(0.0, 0.1), (0.2, 0.1), (0.2, 1.0)])
def test_a_bet_on_nothing_is_refused(rate: float, feared: float) -> None:
    with pytest.raises(ValueError, match="does not hold"):
        best_bet(rate, feared)
