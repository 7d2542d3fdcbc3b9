"""What may be asked for on the command line, and that no plan is without an end."""

from __future__ import annotations

import pytest

from crossfade.sweep.plan import SweepPlan, parse_pools, parse_rates
from crossfade.sweep.run import FUNCTIONS, Options, read_options


@pytest.mark.parametrize(
    ("text", "pools"),
    [("1..6", (1, 2, 3, 4, 5, 6)), ("4,1, 2", (1, 2, 4)), ("3", (3,)), ("1..3,6,2..4", (1, 2, 3, 4, 6))],
)
def test_pool_sizes_are_ranges_and_lists(text: str, pools: tuple[int, ...]) -> None:
    assert parse_pools(text) == pools


@pytest.mark.parametrize("text", ["", "0", "6..1", "a", "1..", "1,,2", "1..100000", "-1", "1.5"])
def test_pool_sizes_that_make_no_sense_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="pool"):
        parse_pools(text)


def test_rates_are_sorted_and_unique() -> None:
    assert parse_rates("10,1, 2.5,1") == (1, 2.5, 10)


@pytest.mark.parametrize("text", ["", "0", "-1", "x", "1,inf", "nan"])
def test_rates_that_make_no_sense_are_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="rate"):
        parse_rates(text)


def test_a_load_without_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="4000"):
        SweepPlan("restore", (1,), (1000,), timeout_s=30, duration_s=20)
    with pytest.raises(ValueError, match="above 0"):
        SweepPlan("restore", (1,), (1,), timeout_s=0)
    with pytest.raises(ValueError, match="200000"):
        SweepPlan("restore", (1,), (100,), timeout_s=1, duration_s=1e6)
    with pytest.raises(ValueError, match="at least one"):
        SweepPlan("restore", (), (1,))


def test_a_plan_knows_how_long_its_load_takes() -> None:
    assert SweepPlan("restore", (1, 2), (1, 2, 5), duration_s=20, capacity_s=10).seconds == 2 * (10 + 3 * 20)


def test_options_come_from_words() -> None:
    one = read_options("restore", "1..3", "1,2", all_functions=False, mixed=False)
    assert (one.functions, one.pools, one.rates) == (("restore",), (1, 2, 3), (1, 2))
    assert read_options("restore", "2", None, all_functions=True, mixed=False).functions == FUNCTIONS
    assert read_options("restore", "2", None, all_functions=False, mixed=True).rates == ()


def test_options_that_contradict_or_name_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="known are classify"):
        Options(("restyle",), (1,))
    with pytest.raises(ValueError, match="two runs"):
        Options(("restore",), (1,), mixed=True, soak=10)
    with pytest.raises(ValueError, match="soak sends"):
        Options(("restore",), (1,), soak=10**9)


def test_the_time_that_is_left_counts_every_stage() -> None:
    assert Options(("restore",), (1, 2), (1,), duration_s=5, capacity_s=3).seconds == 2 * (3 + 5)
    assert Options(FUNCTIONS, (1,), (1,), duration_s=5, mixed=True).seconds == 6 * 5
    assert Options(FUNCTIONS, (1,), duration_s=5, capacity_s=3, mixed=True).seconds == 5 * 3 + 6 * 5
    assert Options(("restore",), (1,), (4,), soak=100).seconds == 25
