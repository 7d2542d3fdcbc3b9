"""What backends are told about a request's origin, and by whom they may be told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gateway.arrival import Arrival
from gateway.forwarding import Forwarding
from shadow.exchange import Headers
from tests.fakes.backend import Backend, answering, plain
from tests.gateway.harness import one_route, running

CLAIMS: Headers = (
    (b"x-forwarded-for", b"1.2.3.4"),
    (b"x-forwarded-proto", b"https"),
    (b"x-forwarded-host", b"shop.test"),
    (b"x-forwarded-port", b"443"),
    (b"x-real-ip", b"1.2.3.4"),
    (b"forwarded", b"for=1.2.3.4"),
)


def seen(mode: str, peer: str | None, headers: Headers, *trusted: str, scheme: str = "http") -> dict[bytes, bytes]:
    """Return the forwarded fields that a backend gets."""
    arrival = Arrival(
        "id", datetime.now(UTC), "GET", b"/", b"/", ((b"host", b"gateway.test:8443"), *headers), peer, None, (), scheme
    )
    changed = Forwarding(mode, trusted).change(arrival).applied_to(arrival.headers)
    found = [field for field in changed if field[0] != b"host"]
    assert len(dict(found)) == len(found), "no field twice"
    return dict(found)


@pytest.mark.parametrize("mode", ["off", "x-forwarded", "forwarded", "both"])
def test_what_a_stranger_claims_reaches_no_backend(mode: str) -> None:
    values = seen(mode, "9.9.9.9", CLAIMS, "10.0.0.0/8").values()
    assert not [value for value in values if b"1.2.3.4" in value or b"shop" in value or value == b"443"]


@pytest.mark.parametrize("mode", ["off", "x-forwarded", "forwarded", "both"])
@pytest.mark.parametrize("peer", ["9.9.9.9", "10.1.1.1"])
def test_what_a_backend_may_take_for_a_claim_is_believed_from_nobody(mode: str, peer: str) -> None:
    aliases = tuple((name, b"6.6.6.6") for name in (b"x_forwarded_for", b"x-forwarded_proto", b"x_real-ip"))
    found = seen(mode, peer, (*aliases, *CLAIMS), "10.0.0.0/8")
    assert not [name for name in found if b"_" in name]
    assert b"6.6.6.6" not in found.values()
    assert (found.get(b"x-forwarded-port") == b"443") is (peer == "10.1.1.1")


def test_nothing_is_invented_when_off_and_a_trusted_proxy_passes_untouched() -> None:
    assert seen("off", "9.9.9.9", ()) == {}
    assert seen("off", "10.1.1.1", CLAIMS, "10.0.0.0/8") == dict(CLAIMS)


@pytest.mark.parametrize("peer", ["10.1.1.1", "::ffff:10.1.1.1"])
def test_a_trusted_proxys_chain_is_continued(peer: str) -> None:
    found = seen("both", peer, CLAIMS, "10.0.0.0/8")
    assert found[b"x-forwarded-for"] == b"1.2.3.4, " + peer.encode()
    assert (found[b"x-forwarded-proto"], found[b"x-forwarded-host"]) == (b"https", b"shop.test")
    assert found[b"x-forwarded-port"] == b"443"
    assert found[b"forwarded"].startswith(b"for=1.2.3.4, for=")


def test_the_gateways_own_word_is_set_where_nobody_trusted_spoke() -> None:
    assert seen("x-forwarded", "9.9.9.9", (), scheme="https") == {
        b"x-forwarded-for": b"9.9.9.9",
        b"x-forwarded-proto": b"https",
        b"x-forwarded-host": b"gateway.test:8443",
    }
    assert seen("forwarded", "9.9.9.9", ()) == {b"forwarded": b'for=9.9.9.9;host="gateway.test:8443";proto=http'}


def test_an_ipv6_address_is_bracketed_and_quoted_and_no_address_is_unknown() -> None:
    assert seen("forwarded", "2001:db8::1", ())[b"forwarded"].startswith(b'for="[2001:db8::1]";')
    assert seen("forwarded", None, ())[b"forwarded"].startswith(b"for=unknown;")
    assert seen("x-forwarded", "2001:db8::1", ())[b"x-forwarded-for"] == b"2001:db8::1"


def test_repeated_fields_of_a_trusted_proxy_are_joined_in_order() -> None:
    twice: Headers = ((b"x-forwarded-for", b"1.1.1.1"), (b"x-forwarded-for", b"2.2.2.2"))
    assert seen("x-forwarded", "10.1.1.1", twice, "10.0.0.0/8")[b"x-forwarded-for"] == b"1.1.1.1, 2.2.2.2, 10.1.1.1"


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="x-forwarded"):
        Forwarding("sometimes", ())


def test_a_client_cannot_have_a_trusted_proxys_word_removed() -> None:
    options = b"X-Forwarded-For, Forwarded, X-Real-IP, X-Forwarded-Port"
    fields = [(b"Connection", options), (b"X-Forwarded-For", b"1.2.3.4")]
    fields += [(b"X-Real-IP", b"1.2.3.4"), (b"X-Forwarded-Port", b"443")]
    with Backend(answering(plain())) as backend:
        settings = one_route(backend.url)
        trusting = replace(settings, limits=replace(settings.limits, trusted_proxies=("127.0.0.0/8",)))
        with running(trusting) as gateway:
            gateway.request("GET", "/", fields)
            kept = gateway.taps.wait()[0].request.headers
        assert backend.requests[0].values(b"x-forwarded-for") == [b"1.2.3.4"]
        assert backend.requests[0].values(b"x-real-ip") == [b"1.2.3.4"]
        assert backend.requests[0].values(b"x-forwarded-port") == [b"443"]
        assert (b"x-forwarded-for", b"1.2.3.4") in kept
        with running(replace(settings, forwarded="both")) as gateway:
            gateway.request("GET", "/", fields)
            copied = dict(gateway.taps.wait()[0].request.headers)
        assert backend.requests[1].values(b"x-forwarded-for") == [b"127.0.0.1"]
        assert backend.requests[1].values(b"forwarded") == [b"for=127.0.0.1;host=gateway.test;proto=http"]
        assert copied[b"x-forwarded-for"] == b"127.0.0.1", "the shadow is told the same"
