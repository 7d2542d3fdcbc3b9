"""How the places of calls are shared."""

from __future__ import annotations

from itertools import cycle, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadow.places import Places


def filled(count: int, *routes: str) -> list[int]:
    """Let the routes take in turn for as long as any may; return what each holds, and what is left."""
    places, held = Places(count), dict.fromkeys(routes, 0)
    places.shared = True
    for route in islice(cycle(routes), count * len(routes)):
        if sum(held.values()) < count and places.may_take(route):
            places.take(route)
            held[route] += 1
    return [*held.values(), count - sum(held.values())]


@pytest.mark.parametrize(
    ("count", "routes", "held"),
    [
        (1, "a", [1, 0]),
        (2, "a", [1, 1]),
        (4, "a", [3, 1]),
        (16, "a", [12, 4]),
        (16, "ab", [7, 6, 3]),
        (16, "abc", [5, 5, 4, 2]),
        (2, "abc", [1, 1, 0, 0]),
    ],
)
def test_a_few_places_stay_for_who_has_none_yet(count: int, routes: str, held: list[int]) -> None:
    assert filled(count, *routes) == held


def test_who_is_alone_gets_all() -> None:
    places = Places(16)
    for _ in range(100):
        assert places.may_take("a")
        places.take("a")


@given(st.integers(1, 40), st.lists(st.sampled_from("abcd")))
def test_who_has_none_gets_one_where_any_is_free(count: int, takers: list[str]) -> None:
    places, held = Places(count), 0
    places.shared = True
    for route in takers:
        if held < count and places.may_take(route):
            places.take(route)
            held += 1
    assert places.may_take("newcomer")
