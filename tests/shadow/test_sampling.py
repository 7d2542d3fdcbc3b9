"""Sampling by rate: never more than the rate, close to it under steady traffic, and whole users at a time."""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadow.rule import ShadowRule
from shadow.sampling import BURST, Sampler


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def chosen_each_second(rate_per_s: float, traffic_per_s: int, seconds: int, workers: int = 1) -> list[int]:
    clock, rng = Clock(), random.Random(1)
    sampler, rule = Sampler(clock, workers), ShadowRule(percent=100, rate_per_s=rate_per_s)
    counts: Counter[int] = Counter()
    for n in range(seconds * traffic_per_s):
        clock.now_s = 100.0 + n / traffic_per_s
        counts[n // traffic_per_s] += sampler.chooses("r", rule, f"{rng.getrandbits(64):x}")
    return [counts[second] for second in range(seconds)]


@pytest.mark.parametrize(("rate_per_s", "traffic_per_s"), [(5.0, 200), (50.0, 200), (50.0, 40), (0.5, 20)])
def test_a_steady_traffic_is_sampled_at_its_rate(rate_per_s: float, traffic_per_s: int) -> None:
    seconds = 200
    counts = chosen_each_second(rate_per_s, traffic_per_s, seconds)
    expected = min(rate_per_s, traffic_per_s)
    assert 0.75 * expected < sum(counts) / seconds <= expected + BURST / seconds


def test_each_of_four_workers_takes_a_quarter() -> None:
    assert sum(chosen_each_second(40.0, 200, 50, workers=4)) / 50 == pytest.approx(10, rel=0.25)


@settings(max_examples=50)
@given(st.lists(st.floats(0, 0.5), min_size=1, max_size=300), st.floats(0.1, 50))
def test_whatever_comes_no_stretch_holds_more_than_the_rate_and_one_burst(
    gaps_s: list[float], rate_per_s: float
) -> None:
    clock = Clock()
    sampler, rule = Sampler(clock), ShadowRule(percent=100, rate_per_s=rate_per_s)
    chosen_at: list[float] = []
    for n, gap_s in enumerate(gaps_s):
        clock.now_s += gap_s
        if sampler.chooses("r", rule, str(n)):
            chosen_at.append(clock.now_s)
    for first, began_s in enumerate(chosen_at):
        for last in range(first, len(chosen_at)):
            allowed = max(BURST, rate_per_s) + (chosen_at[last] - began_s) * rate_per_s
            assert last - first + 1 <= allowed + 1e-6


def test_a_users_requests_are_chosen_alike_while_the_traffic_is_steady() -> None:
    clock = Clock()
    sampler, rule = Sampler(clock), ShadowRule(percent=100, rate_per_s=1000.0)
    seen: defaultdict[str, set[bool]] = defaultdict(set)
    for n in range(40_000):
        clock.now_s += 1 / 4000  # four times the rate
        user = f"user-{n % 400}"
        chosen = sampler.chooses("r", rule, user)
        if n > 8000:
            seen[user].add(chosen)
    together = sum(len(answers) == 1 for answers in seen.values())
    assert together >= 0.95 * 400
    assert 60 <= sum(answers == {True} for answers in seen.values()) <= 140


def test_without_a_rate_the_percent_alone_decides() -> None:
    sampler = Sampler(Clock())
    chosen = sum(sampler.chooses("r", ShadowRule(percent=25), str(n)) for n in range(4000))
    assert chosen == pytest.approx(1000, rel=0.1)
