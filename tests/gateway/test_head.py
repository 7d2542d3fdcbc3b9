"""What a head must be (RFC 9112 section 3), what HTTP/1.0 clients get, and refusals that arrive, on both parsers."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from gateway.head import Target, read_target
from gateway.problem import LINGER_BYTES, Problem
from gateway.settings import Settings
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.client import encode
from tests.gateway.harness import one_route, running, with_limits

pytestmark = pytest.mark.usefixtures("each_parser")

UNKNOWN_LENGTH = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"


@pytest.mark.parametrize(
    ("method", "raw", "expected"),
    [
        ("GET", b"/a?b", Target(b"/a?b")),
        ("GET", b"/a?", Target(b"/a?")),
        ("GET", b"//a", Target(b"//a")),
        ("GET", b"http://host", Target(b"/", b"host")),
        ("GET", b"HTTP://host:80?q", Target(b"/?q", b"host:80")),
        ("GET", b"https://[::1]:8/a%2Fb?", Target(b"/a%2Fb?", b"[::1]:8")),
        ("OPTIONS", b"*", Target(b"*")),
        ("OPTIONS", b"http://host", Target(b"*", b"host")),
        ("OPTIONS", b"http://host/", Target(b"/", b"host")),
        ("GET", b"*", None),
        ("GET", b"/a#b", None),
        ("GET", b"/a?b#c", None),
        ("GET", b"http://host/#c", None),
        ("GET", b"http://", None),
        ("GET", b"http:///a", None),
        ("GET", b"http://user@host/", None),
        ("GET", b"http://ho st/", None),
        ("GET", b"ftp://host/a", None),
        ("GET", b"a", None),
        ("GET", b"", None),
        ("CONNECT", b"host:443", None),
    ],
)
def test_targets_have_the_four_forms_and_no_other(method: str, raw: bytes, expected: Target | None) -> None:
    target = read_target(method, raw)
    assert isinstance(target, Problem) if expected is None else target == expected


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        (b"GET http://host HTTP/1.1", b"GET / HTTP/1.1"),
        (b"GET http://host?a=%20 HTTP/1.1", b"GET /?a=%20 HTTP/1.1"),
        (b"OPTIONS http://host/ HTTP/1.1", b"OPTIONS / HTTP/1.1"),
    ],
)
def test_an_absolute_form_stands_for_its_path_and_its_host(line: bytes, sent: bytes) -> None:
    with Backend(answering(plain())) as backend, running(_forwarding(backend)) as gateway:
        assert gateway.send(line + b"\r\nHost: other.test\r\n\r\n").status == 200
        assert backend.requests[0].line == sent
        assert backend.requests[0].values(b"x-forwarded-host") == [b"host"]


@pytest.mark.parametrize("line", [b"OPTIONS * HTTP/1.1", b"OPTIONS http://host HTTP/1.1"])
def test_options_of_everything_is_answered_here(line: bytes) -> None:
    with Backend(answering(plain())) as backend, running(one_route(backend.url)) as gateway:
        answer = gateway.send(line + b"\r\nHost: a\r\n\r\n")
        assert (answer.status, len(answer.values(b"date"))) == (204, 1)
    assert backend.requests == []


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "bad_request"),
        (b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: http://a\r\n\r\n", "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a, b/c\r\n\r\n", "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", "bad_request"),
        (b"GET /#x HTTP/1.1\r\nHost: a\r\n\r\n", "bad_request"),
        (b"GET * HTTP/1.1\r\nHost: a\r\n\r\n", "bad_request"),
        (b"GET a HTTP/1.1\r\nHost: a\r\n\r\n", "bad_request"),
        (b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "upgrade_not_supported"),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", "version_not_supported"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x01b\r\n\r\n", "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n", "bad_request"),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "bad_request"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "bad_request"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx", "bad_request"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0000000000000000001\r\n\r\nx", "bad_request"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"0" * 5000 + b"1\r\n\r\nx", "bad_request"),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "bad_request",
        ),
    ],
)
def test_a_head_that_two_readers_could_read_differently_reaches_nobody(head: bytes, code: str) -> None:
    with Backend(answering(plain())) as backend, running(one_route(backend.url)) as gateway, gateway.client() as client:
        client.send(head)
        answer = client.read()
        assert (answer.code, len(answer.values(b"date"))) == (code, 1)
        assert client.at_end()
    assert backend.requests == []


@pytest.mark.parametrize(
    "host", [b"", b"a.test", b"a.test:80", b"[2001:db8::1]:80", b"a_b", b"xn--e1afmkfd.test", b"a%20"]
)
def test_a_valid_host_passes(host: bytes) -> None:
    with Backend(answering(plain())) as backend, running(one_route(backend.url)) as gateway:
        assert gateway.send(b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host).status == 200


def test_an_empty_line_before_a_request_is_no_request() -> None:
    with Backend(answering(plain())) as backend, running(one_route(backend.url)) as gateway, gateway.client() as client:
        for _ in range(2):
            client.send(b"\r\n" + encode("GET", "/"))
            assert client.read().status == 200


def test_an_http_1_0_client_gets_no_chunks() -> None:
    whole = UNKNOWN_LENGTH + b"5\r\nworld\r\n0\r\n\r\n"
    with Backend(answering(whole)) as backend, running(one_route(backend.url)) as gateway:
        for connection in (b"", b"Connection: keep-alive\r\n"):
            with gateway.client() as client:
                client.send(b"GET / HTTP/1.0\r\n%b\r\n" % connection)
                head = client.read_head()
                assert not head.values(b"transfer-encoding")
                assert head.values(b"connection") == [b"close"]
                assert client.read_up_to(100) == b"helloworld"


def test_p16_a_cut_answer_does_not_look_whole_to_an_http_1_0_client() -> None:
    go_on = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(UNKNOWN_LENGTH)
        go_on.wait(30)

    with Backend(script) as backend, running(one_route(backend.url)) as gateway, gateway.client() as client:
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        client.read_head()
        assert client.read_up_to(5) == b"hello"
        go_on.set()
        with pytest.raises(ConnectionResetError):  # the only end that is no end
            client.sock.recv(1)


@pytest.mark.parametrize(
    "head",
    [
        b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
    ],
)
def test_p12_who_may_not_get_a_100_gets_none(head: bytes) -> None:
    with Backend(answering(plain())) as backend, running(one_route(backend.url)) as gateway:
        answer = gateway.send(head)
        assert (answer.status, answer.interim) == (200, ())
        assert not backend.requests[0].values(b"expect")


@pytest.mark.parametrize("refusal", ["head", "body"])
def test_r14_a_refusal_arrives_although_megabytes_are_still_to_come(refusal: str) -> None:
    with Backend(answering(plain())) as backend:
        with running(with_limits(one_route(backend.url), "1/minute")) as gateway:
            assert gateway.request("GET", "/").status == 200
            with gateway.client() as client:
                wrong = [(b"Host", b"twice")] if refusal == "head" else []
                # All of it is sent before anything is read, as simple clients do.
                client.send(encode("POST", "/", wrong, b"x" * (LINGER_BYTES - 1024 * 1024)))
                assert client.read("POST").code == ("bad_request" if refusal == "head" else "rate_limited")
        assert len(backend.requests) == 1


def test_a_client_that_goes_on_sending_after_its_refusal_is_cut_off() -> None:
    settings = one_route("http://127.0.0.1:9", max_body_bytes=10)
    with running(settings) as gateway, gateway.client() as client:
        client.send(encode("POST", "/", [(b"Content-Length", b"%d" % (100 * LINGER_BYTES))]))
        with pytest.raises(ConnectionError):
            client.send(b"x" * 5 * LINGER_BYTES)


def _forwarding(backend: Backend) -> Settings:
    return replace(one_route(backend.url), forwarded="x-forwarded")
