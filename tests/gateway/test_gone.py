"""Clients that leave, over real sockets: their backend call ends with them, and nothing leaks."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import httpx
import pytest

from shadow.exchange import FailureKind, SkipReason
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.client import encode
from tests.gateway.harness import SOON_S, one_route, running

pytestmark = pytest.mark.usefixtures("each_transport")
EVENT_STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def never_answer(peer: Peer) -> None:
    """Read a request and wait for the gateway to leave."""
    peer.read_request()
    peer.wait_closed()


def stream_for_ever(peer: Peer) -> None:
    """Stream an answer until the gateway leaves."""
    peer.read_request()
    go_on_for_ever(peer)


def go_on_for_ever(peer: Peer) -> None:
    """Stream the answer to a request that has been read."""
    peer.send(EVENT_STREAM)
    while True:
        peer.send(b"400\r\n" + b"x" * 1024 + b"\r\n")


def test_p14_aborted_downloads_leave_no_connection() -> None:
    def script(peer: Peer) -> None:
        request = peer.read_request()
        while request is not None:
            if request.target == b"/ok":
                peer.send(plain())
                request = peer.read_request()
            else:
                go_on_for_ever(peer)

    with Backend(script) as backend, running(one_route(backend.url)) as gateway:
        for number in range(20):
            client = gateway.client()
            client.send(encode("GET", "/stream"))
            if number % 2:
                client.read_head()
            client.reset()
        assert len(gateway.taps.wait(20)) == 20
        started = time.monotonic()
        assert gateway.request("GET", "/ok").status == 200
        assert time.monotonic() - started < SOON_S
        assert backend.wait_for(lambda: backend.open_connections <= 1)


def test_p14_a_pool_of_four_is_not_drained_by_clients_that_leave() -> None:
    def script(peer: Peer) -> None:
        answers = iter([plain(status=b"500 Oops")] * 20)
        while (request := peer.read_request()) is not None:
            if request.target == b"/stream":
                go_on_for_ever(peer)
            peer.send(plain() if request.target == b"/ok" else next(answers))

    def pool_of_four() -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=4, keepalive_expiry=4.0))

    with Backend(script) as backend, running(one_route(backend.url), transport_factory=pool_of_four) as gateway:
        for number in range(20):
            client = gateway.client()
            client.send(encode("GET", "/stream"))
            if number % 2:
                client.read_head()
            client.reset()
        assert [gateway.request("GET", "/error").status for _ in range(20)] == [500] * 20
        gateway.taps.wait(40)
        started = time.monotonic()
        assert gateway.request("GET", "/ok").status == 200
        assert time.monotonic() - started < SOON_S
        assert backend.wait_for(lambda: backend.open_connections <= 1)


def test_p14_error_answers_leave_no_connection() -> None:
    errors = [plain(status=status) for status in (b"429 Too Many Requests", b"500 Oops")]
    with Backend(answering(*errors * 10, plain())) as backend, running(one_route(backend.url)) as gateway:
        statuses = [gateway.request("GET", "/").status for _ in range(21)]
        assert statuses == [429, 500] * 10 + [200]
        assert backend.accepted == 1


@pytest.mark.parametrize("script", [never_answer, stream_for_ever])
def test_a_client_that_left_costs_the_backend_nothing_more_and_keeps_its_pair(script: object) -> None:
    assert callable(script)
    with Backend(script) as backend, running(one_route(backend.url)) as gateway:
        client = gateway.client()
        client.send(encode("POST", "/", body=b"whole"))
        assert backend.wait_requests(1)
        left = time.monotonic()
        client.reset()
        assert backend.wait_for(lambda: backend.open_connections == 0)
        assert time.monotonic() - left < SOON_S
        exchange = gateway.taps.wait()[0]
    assert exchange.skipped is None
    assert exchange.primary.failure is not None
    assert exchange.primary.failure.kind is FailureKind.CANCELLED
    assert exchange.request.body.size_bytes == 5


def test_clients_that_leave_are_no_errors_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def cut(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")

    with Backend(stream_for_ever) as backend, running(one_route(backend.url)) as gateway:
        client = gateway.client()
        client.send(encode("GET", "/"))
        client.read_head()
        client.reset()
        gateway.taps.wait(1)
    with Backend(cut) as backend, running(one_route(backend.url)) as gateway, gateway.client() as client:
        client.send(encode("GET", "/"))
        client.read_head()
        assert client.read_up_to(100) == b"hello"
        gateway.taps.wait(1)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_a_client_that_left_in_the_middle_of_its_upload_is_skipped() -> None:
    def script(peer: Peer) -> None:
        peer.read_head()
        peer.wait_closed()

    with Backend(script) as backend, running(one_route(backend.url)) as gateway:
        client = gateway.client()
        client.send(encode("POST", "/", [(b"Content-Length", b"100")]) + b"part")
        assert backend.wait_for(lambda: backend.open_connections == 1)
        client.reset()
        assert backend.wait_for(lambda: backend.open_connections == 0)
        exchange = gateway.taps.wait()[0]
    assert exchange.skipped is SkipReason.CLIENT_GONE


def test_p14_clients_that_leave_while_a_connection_is_made_leave_none_open() -> None:
    def script(peer: Peer) -> None:
        peer.read_head()
        peer.wait_closed()

    with Backend(script) as backend, running(one_route(backend.url)) as gateway:
        for number in range(1, 101):
            client = gateway.client()
            client.send(encode("POST", "/", [(b"Content-Length", b"9")]) + b"part")
            assert backend.wait_accepted(number)
            client.reset()
        assert backend.wait_for(lambda: backend.open_connections == 0)
        assert {exchange.skipped for exchange in gateway.taps.wait(100)} == {SkipReason.CLIENT_GONE}


@pytest.mark.usefixtures("each_parser")
def test_a_client_that_breaks_off_while_the_backend_does_not_take_its_upload_is_noticed() -> None:
    go_on = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_head()
        go_on.wait(30)
        peer.wait_closed()

    with Backend(script) as backend, running(one_route(backend.url)) as gateway:
        client = gateway.client()
        client.send(encode("POST", "/", [(b"Content-Length", b"%d" % 30_000_000)]))
        assert backend.wait_accepted(1)
        client.sock.settimeout(0.3)
        with suppress(TimeoutError):  # as much as fits on the way: then nobody reads the client's socket any more
            client.send(b"x" * 29_000_000)
        client.reset()  # the end of one that closes in order comes after its bytes, which nobody reads
        left = time.monotonic()
        skipped = gateway.taps.wait()[0].skipped
        assert time.monotonic() - left < SOON_S
        assert skipped is SkipReason.CLIENT_GONE
        go_on.set()
        assert backend.wait_for(lambda: backend.open_connections == 0)


@pytest.mark.usefixtures("each_parser")
def test_a_client_that_leaves_with_another_request_in_the_pipeline_is_noticed() -> None:
    with Backend(never_answer) as backend, running(one_route(backend.url)) as gateway:
        client = gateway.client()
        client.send(encode("GET", "/") + encode("GET", "/second"))
        assert backend.wait_requests(1)
        client.close()
        left = time.monotonic()
        assert backend.wait_for(lambda: backend.open_connections == 0)
        assert time.monotonic() - left < SOON_S


@pytest.mark.usefixtures("each_parser")
def test_a_client_that_closes_its_sending_side_too_early_counts_as_gone() -> None:
    with Backend(never_answer) as backend, running(one_route(backend.url)) as gateway, gateway.client() as client:
        client.send(encode("GET", "/"))
        assert backend.wait_requests(1)
        client.sock.shutdown(socket.SHUT_WR)
        left = time.monotonic()
        assert backend.wait_for(lambda: backend.open_connections == 0)
        assert time.monotonic() - left < SOON_S
        assert client.at_end()
