"""The bounded queue with a lane for each route."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shadow.lanes import Lanes


def test_lanes_take_turns_and_each_keeps_its_order() -> None:
    lanes: Lanes[str] = Lanes(10)
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        assert lanes.offer(item[0], item) is None
    assert list(lanes.drain()) == ["a1", "b1", "c1", "a2", "c2", "a3"]


def test_one_route_alone_may_use_it_all_and_then_loses_its_newest() -> None:
    lanes: Lanes[str] = Lanes(2)
    assert [lanes.offer("a", item) for item in ("a1", "a2", "a3")] == [None, None, "a3"]
    assert list(lanes.drain()) == ["a1", "a2"]


def test_a_busy_route_gives_way_up_to_an_equal_share() -> None:
    lanes: Lanes[str] = Lanes(4)
    for item in ("a1", "a2", "a3", "a4"):
        lanes.offer("a", item)
    assert [lanes.offer("b", item) for item in ("b1", "b2", "b3")] == ["a4", "a3", "b3"]
    assert list(lanes.drain()) == ["a1", "b1", "a2", "b2"]


def test_a_lane_whose_first_may_not_begin_is_passed_over_and_keeps_its_turn() -> None:
    lanes: Lanes[str] = Lanes(10)
    for item in ("a1", "a2", "b1", "b2"):
        lanes.offer(item[0], item)
    assert [lanes.take(lambda item: item != "a1") for _ in range(3)] == ["b1", "b2", None]
    assert list(lanes.drain()) == ["a1", "a2"]


def test_nothing_is_taken_from_nothing() -> None:
    assert Lanes[int](1).take() is None


@given(st.lists(st.one_of(st.none(), st.sampled_from("abcd"))), st.integers(0, 8))
def test_it_never_exceeds_its_capacity_and_neither_loses_nor_doubles(steps: list[str | None], capacity: int) -> None:
    lanes: Lanes[tuple[str, int]] = Lanes(capacity)
    offered: Counter[tuple[str, int]] = Counter()
    left: Counter[tuple[str, int]] = Counter()
    for number, route in enumerate(steps):
        if route is not None:
            offered[route, number] += 1
            if (displaced := lanes.offer(route, (route, number))) is not None:
                left[displaced] += 1
        elif (taken := lanes.take()) is not None:
            left[taken] += 1
        assert len(lanes) <= capacity
    left.update(lanes.drain())
    assert left == offered
    assert len(lanes) == 0
