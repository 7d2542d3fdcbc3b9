"""Who a caller is, however it tries to look like somebody else."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.arrival import Arrival
from gateway.callers import REMEMBERED, Caller, Callers
from gateway.limiting.book import RuleBook
from shadow.exchange import Headers
from tests.fakes.backend import Backend, answering, plain
from tests.gateway.harness import one_route, running, with_limits

PROXIES = Callers(["10.0.0.0/8", "192.0.2.7/32", "fd00::/8"])


def arrival(peer: str, *headers: tuple[bytes, bytes]) -> Arrival:
    fields: Headers = headers
    return Arrival("00", datetime(2026, 1, 1, tzinfo=UTC), "GET", b"/", b"/", fields, peer, None, ())


def address(peer: str, *forwarded: bytes) -> str:
    return PROXIES.address_of(arrival(peer, *((b"x-forwarded-for", value) for value in forwarded)))


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        ((b"198.51.100.9, 203.0.113.1",), "203.0.113.1"),
        ((b"198.51.100.9", b"203.0.113.1"), "203.0.113.1"),
        ((b"203.0.113.1, 192.0.2.7",), "203.0.113.1"),
        ((b"203.0.113.1,10.9.9.9", b"192.0.2.7"), "203.0.113.1"),
        ((b"",), "10.0.0.1"),
        ((b"a:b:c",), "10.0.0.1"),
        ((b"203.0.113.1, unknown",), "10.0.0.1"),
        ((b"unknown, 203.0.113.1",), "203.0.113.1"),
        ((b"[2001:db8::1]:443",), "2001:db8::/64"),
        ((b"2001:db8::1",), "2001:db8::/64"),
        ((b"1.2.3.4:55",), "1.2.3.4"),
        ((b"::ffff:1.2.3.4",), "1.2.3.4"),
        ((b"10.1.1.1, 10.2.2.2",), "10.1.1.1"),
        ((b"\xff\x00",), "10.0.0.1"),
        ((), "10.0.0.1"),
    ],
)
def test_r01_a_trusted_proxy_names_the_right_most_untrusted_address(
    forwarded: tuple[bytes, ...], expected: str
) -> None:
    assert address("10.0.0.1", *forwarded) == expected


def test_r01_an_untrusted_peer_is_itself_whatever_it_says() -> None:
    assert address("203.0.113.5", b"198.51.100.1") == "203.0.113.5"


def test_r01_one_subscriber_has_one_bucket() -> None:
    assert address("2001:db8::1") == address("2001:db8::ffff:1") != address("2001:db8:0:1::1")
    assert address("::ffff:203.0.113.5") == address("203.0.113.5")


def test_r01_rotating_the_header_gives_no_fresh_bucket() -> None:
    with Backend(answering(plain())) as backend:
        settings = with_limits(one_route(backend.url), "5/minute")
        with running(settings) as gateway:
            statuses = [
                gateway.request("GET", "/", [(b"X-Forwarded-For", b"198.51.100.%d" % number)]).status
                for number in range(20)
            ]
        assert statuses == [200] * 5 + [429] * 15
        with running(with_limits(settings, "5/minute", trusted_proxies=("127.0.0.0/8",))) as gateway:
            for forwarded in (b"spoof, 203.0.113.1", b"other, 203.0.113.1", b"a:b:c", b"", b"[2001:db8::1]:443"):
                assert gateway.request("GET", "/", [(b"X-Forwarded-For", forwarded)]).status == 200
            counted = gateway.request("GET", "/", [(b"X-Forwarded-For", b"more, 203.0.113.1")])
            assert b";r=2;" in counted.values(b"ratelimit")[0]


FORWARDED = Callers(["10.0.0.0/8", "192.0.2.7/32", "fd00::/8"], "Forwarded")


@pytest.mark.parametrize(
    ("forwarded", "expected"),
    [
        ((b"for=198.51.100.9, for=203.0.113.1",), "203.0.113.1"),
        ((b"for=198.51.100.9", b"for=203.0.113.1"), "203.0.113.1"),
        ((b"for=203.0.113.1, for=192.0.2.7",), "203.0.113.1"),
        ((b'for="203.0.113.1:4711";proto=https;by=10.0.0.1',), "203.0.113.1"),
        ((b'proto=http;FOR="[2001:db8:cafe::17]:4711"',), "2001:db8:cafe::/64"),
        ((b'For="[2001:db8:cafe::17]"',), "2001:db8:cafe::/64"),
        ((b'for="[2001:db8::1]:_port"',), "2001:db8::/64"),
        ((b'for="[::ffff:1.2.3.4]"',), "1.2.3.4"),
        ((b'for="203.0.113.\\1"',), "203.0.113.1"),
        ((b"for=198.51.100.9, proto=https",), "10.0.0.1"),
        ((b"for=203.0.113.1, for=unknown",), "10.0.0.1"),
        ((b"for=_hidden, for=203.0.113.1",), "203.0.113.1"),
        ((b"for=203.0.113.1, for=_hidden",), "10.0.0.1"),
        ((b'for="198.51.100.9, for=203.0.113.1',), "10.0.0.1"),
        ((b'host="a, for=198.51.100.9";for=203.0.113.1',), "203.0.113.1"),
        ((b'host="a\\", for=198.51.100.9";for=203.0.113.1',), "203.0.113.1"),
        ((b'for="[2001:db8::1]evil"',), "10.0.0.1"),
        ((b'for=198.51.100.9;host=", for="[2001:db8::1]:4711"',), "10.0.0.1"),
        ((b'for=198.51.100.9;host=", for=203.0.113.1;host="a"',), "10.0.0.1"),
        ((b'for=198.51.100.9;host="', b"for=203.0.113.1"), "203.0.113.1"),
        ((b"for=203.0.113.1, for=192.0.2.7, ",), "10.0.0.1"),
        ((b"203.0.113.1",), "10.0.0.1"),
        ((b"",), "10.0.0.1"),
        ((b"\xff\x00",), "10.0.0.1"),
        ((), "10.0.0.1"),
    ],
)
def test_r01_forwarded_from_a_trusted_proxy_is_read_like_the_list(forwarded: tuple[bytes, ...], expected: str) -> None:
    fields = [(b"forwarded", value) for value in forwarded]
    assert FORWARDED.address_of(arrival("10.0.0.1", *fields)) == expected


def test_r01_only_the_field_that_the_proxies_write_is_read() -> None:
    both = arrival("10.0.0.1", (b"x-forwarded-for", b"198.51.100.1"), (b"forwarded", b"for=203.0.113.1"))
    assert PROXIES.address_of(both) == "198.51.100.1"
    assert FORWARDED.address_of(both) == "203.0.113.1"
    assert FORWARDED.address_of(arrival("203.0.113.5", (b"forwarded", b"for=198.51.100.1"))) == "203.0.113.5"


@given(st.binary(max_size=80))
def test_r01_nothing_that_is_forwarded_brings_the_gateway_down(value: bytes) -> None:
    for callers, name in ((PROXIES, b"x-forwarded-for"), (FORWARDED, b"forwarded")):
        assert callers.address_of(arrival("10.0.0.1", (name, value)))


@pytest.mark.parametrize(
    "piece", [b" ", b"\t ", b";", b" ;", b"a=b,", b"a=b ;", b"a", b"a=", b'a="', b'a="\\', b'a="b"', b",;"]
)
def test_r01_a_long_forwarded_costs_no_more_than_its_length(piece: bytes) -> None:
    """Where matching tries again at each character, 60 KiB take most of a minute."""
    for end in (b"", b"!", b'"'):
        field = (b"forwarded", piece * (60_000 // len(piece)) + end)
        started = time.process_time()
        assert FORWARDED.address_of(arrival("10.0.0.1", field)) == "10.0.0.1"
        assert time.process_time() - started < 1


def test_r01_a_field_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="X-Real-Ip"):
        Callers([], "X-Real-Ip")


def test_what_is_remembered_of_callers_is_bounded_and_changes_nothing() -> None:
    settings = with_limits(one_route("http://cloud.test"), "10/minute", "9/hour")
    callers = Callers([])
    book = RuleBook(settings, callers)
    (route,) = settings.routes
    peers = [f"10.{number // 256}.{number % 256}.1" for number in range(REMEMBERED + 100)]

    def keys(peer: str) -> tuple[str, ...]:
        return tuple(charge.key for charge in book.charges(route, arrival(peer), None))

    first = {peer: keys(peer) for peer in peers}
    assert len({key for both in first.values() for key in both}) == 2 * len(peers)
    assert {peer: keys(peer) for peer in reversed(peers)} == first


def test_a_key_is_a_caller_and_is_not_kept() -> None:
    one = PROXIES.identify(arrival("203.0.113.5", (b"x-api-key", b"secret-1")))
    other = PROXIES.identify(arrival("203.0.113.5", (b"authorization", b"Bearer secret-2")))
    assert one.kind == other.kind == "key"
    assert one != other
    assert "secret" not in repr(one)


@given(st.text(), st.text(), st.text(), st.text())
def test_r13_no_two_callers_share_a_key_and_none_can_write_into_it(
    one: str, other: str, first: str, second: str
) -> None:
    left, right = Caller("key", one).key(first), Caller("key", other).key(second)
    assert (left == right) == ((one, first) == (other, second))
    assert set(left) <= set("0123456789abcdef")


def test_a_wrong_network_is_refused() -> None:
    with pytest.raises(ValueError, match="not-a-network"):
        Callers(["not-a-network"])
