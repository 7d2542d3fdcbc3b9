"""Which route a path has, and which backend a caller."""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.routing import Ambiguous, NoRoute, RouteTable, WrongMethod, choose, comparable
from gateway.settings import Route


def route(name: str, path: str, *methods: str) -> Route:
    return Route(name, path, frozenset(methods or ("GET",)), "cloud", "onprem", {"cloud": 100})


TABLE = RouteTable(
    [
        route("all", "/*"),
        route("admin", "/admin/*"),
        route("page", "/admin/page"),
        route("deep", "/admin/deep/*"),
        route("read", "/thing", "GET", "HEAD"),
        route("write", "/thing", "POST"),
    ]
)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (b"/", "all"), (b"/x/y", "all"), (b"/admin", "all"), (b"/admin/", "admin"), (b"/admin/x", "admin"),
        (b"/admin/page", "page"), (b"/admin/page/", "admin"), (b"/admin/deep/x", "deep"),
        (b"/%61dmin/page", "page"), (b"/admin/%70age", "page"), (b"/a%2Fb/%252e%252e/c", "all"), (b"/x/../y", "all"),
        (b"/%C3%A9/%FF", "all"), (b"/admin/deep/./x", "deep"),
    ],
)  # fmt: skip
def test_p07_a_path_has_the_most_exact_route(path: bytes, name: str) -> None:
    found = TABLE.match("GET", path)
    assert isinstance(found, Route)
    assert found.name == name


@pytest.mark.parametrize(
    "path",
    [
        b"/admin%2Fx", b"/admin%2fpage", b"/x/%2e%2e/admin/x", b"/x/..%2Fadmin/x", b"/admin/..", b"/admin/deep/../page",
        b"/admin/deep%2F..%2Fpage", b"/x/../admin/page", b"/admin/./page",
    ],
)  # fmt: skip
def test_p07_no_encoding_slips_past_a_rule(path: bytes) -> None:
    assert TABLE.match("GET", path) == Ambiguous()


def test_p07_a_route_that_ends_at_a_folder_cannot_be_left() -> None:
    table = RouteTable([route("files", "/files/*")])
    assert table.match("GET", b"/files/%2e%2e/secret") == Ambiguous()
    assert table.match("GET", b"/secret") == NoRoute()
    assert table.match("GET", b"/files") == NoRoute()


def test_methods_of_a_path_come_together() -> None:
    found = TABLE.match("POST", b"/thing")
    assert isinstance(found, Route)
    assert found.name == "write"
    assert TABLE.match("PUT", b"/thing") == WrongMethod(("GET", "HEAD", "POST"))


@given(st.binary(max_size=40))
def test_the_form_that_paths_are_compared_in_is_one_form_of_the_same_path(path: bytes) -> None:
    everything = b"".join(b"%%%02x" % byte for byte in path)
    sparing = quote(path, safe="").encode()
    assert comparable(everything) == comparable(sparing)
    assert unquote_to_bytes(comparable(everything)) == path


@given(st.integers(0, 2**256), st.integers(0, 100), st.integers(0, 100))
def test_a_growing_percent_moves_callers_only_one_way(key: int, one: int, other: int) -> None:
    few, many = sorted((one, other))
    before = choose({"onprem": few, "cloud": 100 - few}, key)
    after = choose({"cloud": 100 - many, "onprem": many}, key)
    assert (before, after) != ("onprem", "cloud")


def test_the_percent_is_met_exactly_over_all_places() -> None:
    chosen = [choose({"cloud": 95, "onprem": 5}, place) for place in range(100)]
    assert chosen.count("onprem") == 5
