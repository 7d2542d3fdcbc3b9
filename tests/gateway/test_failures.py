"""Backends that fail, over real sockets: nothing cut looks whole, and nothing is executed twice."""

from __future__ import annotations

import threading

import pytest

from shadow.exchange import FailureKind
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.client import encode
from tests.gateway.harness import one_route, running

pytestmark = pytest.mark.usefixtures("each_transport")


@pytest.mark.parametrize(
    ("head", "reset"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", False),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", True),
    ],
)
def test_p16_a_cut_answer_never_looks_whole(head: bytes, reset: bool) -> None:
    go_on = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(head)
        go_on.wait(30)  # a RST would overtake what the gateway has not read yet
        if reset:
            peer.reset()
        else:
            peer.close()

    with Backend(script) as backend, running(one_route(backend.url)) as gateway:
        with gateway.client() as client:
            client.send(encode("GET", "/"))
            answer = client.read_head()
            assert answer.status == 200
            if answer.values(b"content-length"):
                assert client.read_up_to(5) == b"hello"
            else:
                assert client.read_chunk() == b"hello"
            go_on.set()
            # The end comes, but neither the last chunk nor the bytes that were announced.
            assert client.at_end()
        primary = gateway.taps.wait()[0].primary
    assert primary.failure is not None
    assert primary.failure.kind is FailureKind.TRUNCATED
    assert primary.body is not None
    assert (primary.body.size_bytes, primary.body.chunks) == (5, None)


def test_an_answer_that_ends_with_its_connection_is_whole() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello")

    with Backend(script) as backend, running(one_route(backend.url)) as gateway:
        assert gateway.request("GET", "/").body == b"hello"
        assert gateway.taps.wait()[0].primary.failure is None


def one_answer(peer: Peer) -> None:
    """Answer a connection's first request and leave at its second."""
    peer.read_request()
    peer.send(plain())
    peer.read_request()


def test_p17_a_post_is_never_executed_twice() -> None:
    with Backend(one_answer) as backend, running(one_route(backend.url)) as gateway:
        assert gateway.request("POST", "/", body=b"first").status == 200
        answer = gateway.request("POST", "/", body=b"second")
        assert (answer.status, [request.body for request in backend.requests]) == (502, [b"first", b"second"])
        assert answer.code in ("backend_reset", "backend_protocol_error")
        assert gateway.taps.wait(2)[1].skipped is None, "a failed primary is evidence, not a skip"


def test_p17_a_post_without_a_body_is_no_exception() -> None:
    with Backend(one_answer) as backend, running(one_route(backend.url)) as gateway:
        assert [gateway.request("POST", "/", body=b"").status for _ in range(2)] == [200, 502]
        assert len(backend.requests) == 2


def test_p17_a_get_is_retried_once_on_a_stale_connection() -> None:
    with Backend(one_answer) as backend, running(one_route(backend.url)) as gateway:
        assert [gateway.request("GET", "/").status for _ in range(2)] == [200, 200]
        assert (len(backend.requests), backend.accepted) == (3, 2)


def test_p17_a_fresh_connection_is_not_tried_again() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()

    with Backend(script) as backend, running(one_route(backend.url)) as gateway:
        assert gateway.request("GET", "/").status == 502
        assert len(backend.requests) == 1


def test_p17_a_connection_closed_while_idle_costs_no_request() -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(plain())

    with Backend(script) as backend, running(one_route(backend.url)) as gateway:
        for number in range(1, 4):
            assert gateway.request("POST", "/", body=b"x").status in (200, 502)
            assert backend.wait_for(lambda: backend.open_connections == 0)
            assert len(backend.requests) <= number


def test_nobody_listening_is_a_502_that_names_no_address() -> None:
    with Backend(answering(plain())) as gone:
        url, port = gone.url, gone.port
    with running(one_route(url)) as gateway:
        answer = gateway.request("POST", "/", body=b"x")
        primary = gateway.taps.wait()[0].primary
    assert (answer.status, answer.code) == (502, "backend_unreachable")
    assert (answer.json()["fault"], answer.json()["backend"]) == ("backend", "cloud")
    assert str(port).encode() not in answer.body
    assert primary.failure is not None
    assert primary.failure.kind is FailureKind.CONNECT
    assert str(port) not in primary.failure.detail


@pytest.mark.parametrize(
    "raw",
    [
        b"this is not HTTP\r\n\r\n",
        b"HTTP/1.1 999 Strange\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Bad: a\x01b\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    ],
)
def test_nonsense_from_a_backend_is_a_502(raw: bytes) -> None:
    with Backend(answering(raw)) as backend, running(one_route(backend.url)) as gateway:
        answer = gateway.request("POST", "/", body=b"x")
        primary = gateway.taps.wait()[0].primary
    assert (answer.status, answer.code) == (502, "backend_protocol_error")
    assert primary.failure is not None
    assert primary.failure.kind is FailureKind.PROTOCOL
