"""The decision on synthetic measurements: knee, what binds, rate, and how sure."""

from __future__ import annotations

import pytest

from crossfade.sweep.advice import (
    Binding,
    advise,
    advise_rate,
    find_knee,
    needed_requests,
    success_low,
    sustainable,
)
from crossfade.sweep.figures import Capacity
from crossfade.sweep.usage import GpuUsage
from crossfade.sweep.words import conclusions
from tests.crossfade.sweep.measured import GB, capacities, cells, usage

FLAT = {1: 5.0, 2: 10.0, 3: 15.0, 4: 20.0, 5: 20.2, 6: 20.1}
FIELD = {1: 1.0, 2: 1.9, 3: 2.7, 4: 3.3, 5: 2.4, 6: 2.2}
"""As reported from the field: throughput breaks down beyond four sessions."""


@pytest.mark.parametrize("per_second", [FLAT, FIELD], ids=["flat", "breaks down"])
@pytest.mark.parametrize("seed", range(5))
def test_the_knee_is_the_last_pool_that_is_worth_it(per_second: dict[int, float], seed: int) -> None:
    knee = find_knee(capacities(per_second, noise=0.01, seed=seed), seed)
    assert (knee.pool, knee.past, knee.reached) == (4, (5, 6), True)
    assert knee.confidence is not None
    assert knee.confidence > 0.9


def test_a_curve_that_still_rises_has_no_knee_yet() -> None:
    advice = advise(capacities({1: 5, 2: 9, 3: 13}), [], seed=1)
    assert advice is not None
    assert (advice.knee.pool, advice.knee.past, advice.knee.reached) == (3, (), False)
    assert any("bigger pools" in warning for warning in advice.warnings)
    assert "not passed" in " ".join(conclusions(advice))


def test_noise_as_big_as_the_gain_makes_the_knee_unsure() -> None:
    sure = find_knee(capacities({1: 10, 2: 10.6, 3: 10.7}, noise=0.002), 1)
    unsure = find_knee(capacities({1: 10, 2: 10.6, 3: 10.7}, noise=0.2), 1)
    assert sure.confidence == 1
    assert unsure.confidence is not None
    assert unsure.confidence < 0.9


def test_one_pool_is_its_own_knee_and_nothing_is_no_advice() -> None:
    assert find_knee(capacities({2: 7}), 1).pool == 2
    assert advise([], [], seed=1) is None
    assert advise([Capacity(1, 0.0, (0.0,) * 5, usage())], [], seed=1) is None


def test_cores_bind_where_memory_is_flat_and_cpu_is_full() -> None:
    advice = advise(capacities(FLAT, {pool: usage(min(pool, 4)) for pool in FLAT}), [], seed=1)
    assert advice is not None
    assert advice.binding is Binding.CPU
    assert advice.memory_slope is not None
    assert advice.memory_slope.value == pytest.approx(0)


def test_memory_binds_where_the_next_session_would_not_fit() -> None:
    used = {pool: usage(0.4 * pool, memory=int(3.3 * GB * pool)) for pool in (1, 2, 3, 4)}
    advice = advise(capacities({1: 5, 2: 10, 3: 15, 4: 20}, used), [], seed=1)
    assert advice is not None
    assert advice.binding is Binding.MEMORY
    assert advice.memory_slope is not None
    assert advice.memory_slope.value == pytest.approx(3.3 * GB)


@pytest.mark.parametrize(
    ("busy", "used_gb", "binding"),
    [(0.97, 8, Binding.GPU), (0.5, 23, Binding.MEMORY), (0.4, 8, Binding.UNKNOWN), (None, 8, Binding.UNKNOWN)],
)
def test_on_a_gpu_its_cores_or_its_memory_bind(busy: float | None, used_gb: int, binding: Binding) -> None:
    gpu = GpuUsage("a card", busy, used_gb * GB, 24 * GB)
    advice = advise(capacities(FLAT, {pool: usage(1.0, gpu=gpu) for pool in FLAT}), [], seed=1)
    assert advice is not None
    assert advice.binding is binding


def test_an_idle_machine_binds_nothing_and_a_shared_full_one_binds_by_its_cores() -> None:
    idle = advise(capacities(FLAT, dict.fromkeys(FLAT, usage(0.4))), [], seed=1)
    crowded = advise(capacities(FLAT, dict.fromkeys(FLAT, usage(2.3, others=1.6))), [], seed=1)
    starved = advise(capacities(FLAT, dict.fromkeys(FLAT, usage(0.3, others=3.6))), [], seed=1)
    assert idle is not None
    assert crowded is not None
    assert starved is not None
    assert (idle.binding, crowded.binding, starved.binding) == (Binding.UNKNOWN, Binding.CPU, Binding.UNKNOWN)
    assert idle.warnings == ()


def test_strangers_that_take_cores_make_the_knee_unsure_and_are_named() -> None:
    used = {pool: usage(2.3, others=1.6) if pool == 3 else usage() for pool in FLAT}
    advice = advise(capacities(FLAT, used), [], seed=1)
    assert advice is not None
    assert advice.knee.confidence is None
    words = " ".join(conclusions(advice))
    assert "strangers took up to 1.6 cores from pool 3" in words
    assert "how sure is not known" in words
    starved = advise(capacities(FLAT, dict.fromkeys(FLAT, usage(0.3, others=3.6))), [], seed=1)
    assert starved is not None
    assert "What binds is not known" in " ".join(conclusions(starved))


def test_strangers_on_cores_that_the_server_did_not_need_disturb_nothing() -> None:
    advice = advise(capacities(FLAT, dict.fromkeys(FLAT, usage(1.0, others=1.6))), [], seed=1)
    assert advice is not None
    assert advice.knee.confidence is not None
    assert advice.warnings == ()


def test_the_rate_is_the_highest_that_holds_with_all_below_it() -> None:
    [at_pool] = capacities({4: 20})
    held = cells(4, {5: (100, 100), 10: (200, 200), 15: (298, 300), 18: (300, 360)})
    advice = advise_rate(at_pool, held)
    assert (advice.rate, advice.sent) == (15, 300)
    assert advice.success == pytest.approx(298 / 300)
    assert "18/s only 83.3 %" in advice.why
    gap = cells(4, {5: (100, 100), 10: (150, 200), 15: (300, 300)})
    assert advise_rate(at_pool, gap).rate == 5


def test_a_rate_at_or_above_the_capacity_does_not_hold_however_well_a_short_run_went() -> None:
    [at_pool] = capacities({4: 20})
    advice = advise_rate(at_pool, cells(4, {15: (300, 300), 20: (400, 400)}))
    assert advice.rate == 15
    assert "queue would grow" in advice.why
    assert sustainable(at_pool) < 20


def test_no_rate_holds_where_the_lowest_fails_or_none_was_sent() -> None:
    [at_pool] = capacities({4: 20})
    assert advise_rate(at_pool, cells(4, {5: (50, 100)})).rate is None
    assert "no rate" in advise_rate(at_pool, []).why


def test_how_sure_it_is_depends_on_the_requests_sent() -> None:
    """Without a failure in n the bound is 0.05 ** (1 / n); 0.99 takes 299 (298.07 rounded up)."""
    assert needed_requests(0.99) == 299
    assert success_low(60, 60) == pytest.approx(0.05 ** (1 / 60))
    assert success_low(298, 298) < 0.99 <= success_low(299, 299)
    assert success_low(0, 10) == 0
    [at_pool] = capacities({4: 20})
    few, enough = (advise_rate(at_pool, cells(4, {5: (n, n)})) for n in (60, 299))
    assert (few.shown, enough.shown) == (False, True)


def test_advice_in_words_says_what_to_run_and_how_sure() -> None:
    advice = advise(capacities(FLAT, noise=0.005), cells(4, {10: (200, 200), 15: (300, 300), 20: (300, 400)}), seed=1)
    assert advice is not None
    words = conclusions(advice)
    assert words[0].startswith(
        "Run pool 4 and up to 15 requests/s: 100.0 % of 300 requests were in time, so at least 99.0 %"
    )
    assert "Cpu cores bind; memory per session: 0.0 MB" in words[2]
    few = advise(capacities(FLAT), cells(4, {10: (60, 60)}), seed=1)
    assert few is not None
    assert "99 % is not shown yet: that takes 299 requests" in conclusions(few)[0]


def test_a_sender_that_fell_behind_is_said() -> None:
    late = advise(capacities(FLAT), cells(4, {10: (200, 200)}, lag_s=0.3), seed=1)
    assert late is not None
    assert any("sender fell behind" in warning and "0.3 s" in warning for warning in late.warnings)


def test_a_law_through_three_pool_sizes_is_not_called_tested() -> None:
    three = advise(capacities({1: 5, 2: 9, 3: 12}), [], seed=1)
    four = advise(capacities({1: 5, 2: 9, 3: 12, 4: 14}), [], seed=1)
    assert three is not None
    assert four is not None
    assert "measure a fourth to test the law" in conclusions(three)[-1]
    assert "measure a fourth" not in conclusions(four)[-1]
