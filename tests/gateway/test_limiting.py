"""The arithmetic of limits, in memory, on a clock that the test moves."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.limiting.counting import MemoryCounters
from gateway.limiting.limiter import Limiter
from gateway.limiting.rules import can_spread, make_rules
from gateway.limiting.verdict import Refusal
from gateway.settings import Limit, LimitSettings
from tests.gateway.limits import STRATEGIES, Clock, allowed, charges, limiter

pytestmark = pytest.mark.anyio

arrivals = st.lists(st.integers(0, 700), min_size=1, max_size=200)


def most_in_any_span(times_ms: Sequence[int], span_ms: int) -> int:
    """Return the most times that any span of this length, open at its end, holds."""
    return max((sum(start <= time < start + span_ms for time in times_ms) for start in times_ms), default=0)


async def admitted_times(strategy: str, gaps_ms: Sequence[int]) -> list[int]:
    """Return when requests after these gaps were admitted under 5 per 2 seconds."""
    async with limiter() as bench:
        bench.clock.now_s = 1000.0
        times, now_ms = [], 0
        for gap_ms in gaps_ms:
            bench.clock.advance(gap_ms / 1000)
            now_ms += gap_ms
            if (await bench.admit(charges("5/2 second", strategy=strategy))).allowed:
                times.append(now_ms)
    return times


@pytest.mark.parametrize(
    ("strategy", "after_the_edge"), [("moving-window", 0), ("sliding-window-counter", 0), ("fixed-window", 10)]
)
async def test_r04_a_burst_across_the_edge_is_what_is_documented(strategy: str, after_the_edge: int) -> None:
    async with limiter() as bench:
        bench.clock.now_s = 1000.95
        assert allowed(await bench.admit_many(charges("10/second", strategy=strategy), 11)) == [True] * 10 + [False]
        bench.clock.now_s = 1001.05
        assert sum(allowed(await bench.admit_many(charges("10/second", strategy=strategy), 20))) == after_the_edge


@settings(max_examples=60, deadline=None)
@given(gaps_ms=arrivals)
async def test_r04_a_moving_window_admits_its_number_in_any_span_and_never_more(gaps_ms: list[int]) -> None:
    times = await admitted_times("moving-window", gaps_ms)
    assert most_in_any_span(times, 2000) <= 5
    asked, now_ms = [], 0
    for gap_ms in gaps_ms:
        now_ms += gap_ms
        asked.append(now_ms)
    for time in asked:  # and refuses nobody for whom there was room
        if time not in times:
            assert sum(time - 2000 < other <= time for other in times) == 5


@pytest.mark.parametrize("strategy", ["fixed-window", "sliding-window-counter"])
@settings(max_examples=60, deadline=None)
@given(gaps_ms=arrivals)
async def test_r04_the_others_admit_at_most_twice_their_number(strategy: str, gaps_ms: list[int]) -> None:
    times = await admitted_times(strategy, gaps_ms)
    assert most_in_any_span(times, 2000) <= 2 * 5
    by_window = [sum(time // 2000 == window for time in times) for window in range(max(times) // 2000 + 1)]
    assert max(by_window) <= 5


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_r04_a_window_that_can_burst_says_so_in_the_headers(strategy: str) -> None:
    async with limiter() as bench:
        admission = await bench.admit(charges("10/second", strategy=strategy))
    policy = dict(admission.headers)[b"ratelimit-policy"].decode()
    assert (strategy in policy) == (strategy != "moving-window")


async def test_r04_a_sliding_counter_lets_the_second_half_in_at_the_even_rate() -> None:
    async with limiter() as bench:
        asked = charges("10/10 second", strategy="sliding-window-counter")
        bench.clock.now_s = 1009.9
        assert sum(allowed(await bench.admit_many(asked, 11))) == 10
        for second in range(10):
            bench.clock.now_s = 1011.0 + second
            assert sum(allowed(await bench.admit_many(asked, 5))) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=60, deadline=None)
@given(gaps_ms=st.lists(st.integers(0, 900), max_size=30), cost=st.integers(1, 5))
async def test_r07_who_waits_as_told_is_admitted(strategy: str, gaps_ms: list[int], cost: int) -> None:
    async with limiter() as bench:
        asked = charges("5/2 second", cost=cost, strategy=strategy)
        for gap_ms in gaps_ms:
            bench.clock.advance(gap_ms / 1000)
            await bench.admit(charges("5/2 second", strategy=strategy))
        refused = (await bench.admit_many(asked, 6))[-1]
        assert refused.refusal is Refusal.RATE
        # Under a sliding counter what is counted now still weighs in the window after this one.
        assert 1 <= refused.retry_after_s <= (4 if strategy == "sliding-window-counter" else 2)
        assert dict(refused.headers)[b"ratelimit"].endswith(b";t=%d" % refused.retry_after_s)
        bench.clock.advance(refused.retry_after_s)
        assert (await bench.admit(asked)).allowed


async def test_r07_a_lowered_limit_tells_a_true_wait() -> None:
    async with limiter() as bench:
        for _ in range(50):
            assert (await bench.admit(charges("100/minute"))).allowed
            bench.clock.advance(0.5)
        refused = await bench.admit(charges("10/minute"))
        assert refused.refusal is Refusal.RATE, "the count goes on under the new number"
        # 41 of the 50 have to leave; the 41st came at 20 s, and it is 25 s now.
        assert refused.retry_after_s == 55
        bench.clock.advance(54)
        assert not (await bench.admit(charges("10/minute"))).allowed
        bench.clock.advance(1)
        assert allowed(await bench.admit_many(charges("10/minute"), 2)) == [True, False]


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_r09_a_cost_over_the_limit_is_refused_for_good_and_charges_nothing(strategy: str) -> None:
    async with limiter() as bench:
        bench.clock.now_s = 1200.0
        admissions = [await bench.admit(charges("10/minute", cost=cost, strategy=strategy)) for cost in (5, 100, 5, 1)]
    assert [admission.refusal for admission in admissions] == [None, Refusal.COST, None, Refusal.RATE]
    assert [admission.retry_after_s for admission in admissions] == [
        0,
        0,
        0,
        66 if strategy == "sliding-window-counter" else 60,
    ]
    name = "10/60s" if strategy == "moving-window" else f"10/60s {strategy}"
    states = [dict(admission.headers)[b"ratelimit"].decode() for admission in admissions]
    assert states[1] == f'"{name}";r=5', "no time after which it would pass"
    assert states[2].startswith(f'"{name}";r=0;')


@pytest.mark.parametrize("cost", [0, -1])
def test_r09_a_cost_below_one_is_refused(cost: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        charges("10/minute", cost=cost)


@pytest.mark.parametrize("order", [["2/minute", "10/hour"], ["10/hour", "2/minute"]])
async def test_several_limits_charge_nobody_who_is_refused(order: list[str]) -> None:
    async with limiter() as bench:
        assert allowed(await bench.admit_many(charges(*order), 5)) == [True, True, False, False, False]
        alone = await bench.admit(charges("10/hour"))
    assert dict(alone.headers)[b"ratelimit"].startswith(b'"10/3600s";r=7;')


async def test_the_wait_is_that_of_the_slowest_limit_that_refuses() -> None:
    async with limiter() as bench:
        refused = (await bench.admit_many(charges("2/second", "2/hour"), 3))[-1]
    assert refused.retry_after_s == 3600
    assert dict(refused.headers)[b"ratelimit-policy"] == b'"2/1s";q=2;w=1, "2/3600s";q=2;w=3600'
    assert dict(refused.headers)[b"ratelimit"] == b'"2/1s";r=0;t=1, "2/3600s";r=0;t=3600'


async def test_bytes_have_their_own_unit() -> None:
    async with limiter() as bench:
        limit = Limit("1/minute", unit="megabyte")
        first = await bench.admit(charges(limit, size=600_000))
        second = await bench.admit(charges(limit, size=600_000))
        third = await bench.admit(charges(limit, size=400_000))
        too_large = await bench.admit(charges(limit, size=1_000_001))
        empty = await bench.admit(charges(limit, size=0))
    assert dict(first.headers)[b"ratelimit-policy"] == b'"1MB/60s";q=1000000;qu="content-bytes";w=60'
    assert dict(first.headers)[b"ratelimit"] == b'"1MB/60s";r=400000;t=60'
    assert [second.refusal, third.refusal, too_large.refusal] == [Refusal.RATE, None, Refusal.COST]
    assert empty.allowed
    assert empty.headers == ()


async def test_a_dry_run_counts_and_refuses_nobody() -> None:
    async with limiter() as bench:
        asked = charges("5/minute", Limit("2/minute", dry_run=True))
        admissions = await bench.admit_many(asked, 6)
    assert allowed(admissions) == [True] * 5 + [False]
    assert [admission.would_refuse for admission in admissions] == [(), (), *[("2/60s",)] * 4]
    assert dict(admissions[2].headers)[b"x-crossfade-dry-run"] == b'"2/60s"'
    assert dict(admissions[2].headers)[b"ratelimit-policy"] == b'"5/60s";q=5;w=60'


async def test_callers_do_not_share_and_everyone_does() -> None:
    async with limiter() as bench:
        for key in ("a", "b"):
            assert allowed(await bench.admit_many(charges("1/minute", key=key), 2)) == [True, False]
        shared = Limit("3/minute", per="everyone")
        together = [await bench.admit(charges(shared, key=key)) for key in "abcd"]
    assert allowed(together) == [True, True, True, False]


async def test_r10_a_limit_of_70000_a_day_costs_16_bytes_a_hit_and_refused_hits_nothing() -> None:
    clock = Clock()
    counters = MemoryCounters(clock)
    asked = charges("70000/day")
    tracemalloc.start()
    try:
        for _ in range(70_000):
            clock.advance(0.001)
            assert (await counters.decide(asked, "", commit=True)).charged
        full_bytes = tracemalloc.get_traced_memory()[0]
        for _ in range(20_000):
            assert not (await counters.decide(asked, "", commit=True)).charged
        assert tracemalloc.get_traced_memory()[0] - full_bytes < 50_000
    finally:
        tracemalloc.stop()
    assert full_bytes < 70_000 * 16 * 1.3
    clock.advance(86400)
    assert (await counters.decide(asked, "", commit=True)).looks[0].remaining == 69_999


async def test_r10_a_hundred_thousand_callers_are_the_most_that_are_kept() -> None:
    clock = Clock()
    counters = MemoryCounters(clock, max_keys=1000)
    everyone = charges(Limit("5000/hour", per="everyone"))
    for number in range(3000):
        await counters.decide(charges("5/hour", key=f"caller {number}"), "", commit=True)
        await counters.decide(everyone, "", commit=True)
    assert len(counters) == 1000
    assert (await counters.decide(everyone, "", commit=False)).looks[0].remaining == 2000, "what is in use is kept"
    clock.advance(3600)
    for number in range(600):
        await counters.decide(charges("5/hour", key=f"later {number}"), "", commit=True)
    assert len(counters) == 600, "spent counters go before the cap is reached"


@pytest.mark.parametrize("text", ["0/second", "ten per minute", "10/fortnight", "", "5/0 second/"])
def test_a_limit_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"limit|granularity"):
        make_rules([text], realm="route a", default_strategy="moving-window")


@pytest.mark.parametrize(
    "limit",
    [
        Limit("1/second", strategy="none"),
        Limit("1/second", strategy="slots"),
        Limit("1/second", unit="furlong"),
        Limit("1/second", per="planet"),
        Limit("1/second", per="header:"),
    ],
)
def test_a_limit_of_unknown_words_is_refused(limit: Limit) -> None:
    with pytest.raises(ValueError, match="limit"):
        make_rules([limit], realm="route a", default_strategy="moving-window")


def test_two_limits_that_would_share_a_count_are_refused() -> None:
    with pytest.raises(ValueError, match="same window"):
        make_rules(["10/minute", "5/60 second"], realm="route a", default_strategy="moving-window")


@pytest.mark.parametrize("options", [{"on_failure": "maybe"}, {"storage": "redis://localhost"}])
def test_settings_that_mean_nothing_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"limits\.on_failure|must be memory"):
        Limiter(LimitSettings(**options), clock=Clock(), count_failure=lambda: None)  # type: ignore[arg-type]


def test_callers_are_spread_over_a_cluster_only_where_none_are_counted_together() -> None:
    alone = make_rules(["1/second", "5/minute"], realm="route a", default_strategy="moving-window")
    together = make_rules([Limit("1/second", per="everyone")], realm="gateway", default_strategy="moving-window")
    by_address = make_rules([Limit("1/second", per="address")], realm="gateway", default_strategy="moving-window")
    assert can_spread(alone)
    assert not can_spread(together)
    assert not can_spread((*alone, *together))
    assert not can_spread((*alone, *by_address))
