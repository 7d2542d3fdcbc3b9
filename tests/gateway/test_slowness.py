"""Clients and backends that are slow, over real sockets: each wait has its bound, and its own answer."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pytest

from gateway.intake import BodyPace
from shadow.exchange import FailureKind, SkipReason
from tests.fakes.backend import Backend, Peer, plain
from tests.gateway.client import encode
from tests.gateway.harness import one_route, running, with_backend
from tests.gateway.test_gone import never_answer, stream_for_ever

pytestmark = pytest.mark.usefixtures("each_transport")


def test_a_backend_that_does_not_answer_in_time_is_a_504() -> None:
    with Backend(never_answer) as backend:
        settings = with_backend(one_route(backend.url), "cloud", timeout_s=0.2)
        with running(settings) as gateway, gateway.client() as client:
            answer = client.request("GET", "/")
            assert (answer.status, answer.code) == (504, "backend_timeout")
            exchange = gateway.taps.wait()[0]
            assert answer.json()["request_id"] == exchange.id
            assert backend.wait_for(lambda: backend.open_connections == 0)
    assert exchange.primary.failure is not None
    assert exchange.primary.failure.kind is FailureKind.TIMEOUT


def test_a_client_that_does_not_send_its_body_is_a_408() -> None:
    def script(peer: Peer) -> None:
        peer.read_head()
        peer.wait_closed()

    with Backend(script) as backend:
        settings = with_backend(one_route(backend.url), "cloud", timeout_s=0.2)
        with running(settings) as gateway:
            answer = gateway.send(encode("POST", "/", [(b"Content-Length", b"100")]) + b"part", "POST")
            assert (answer.status, answer.code) == (408, "body_timeout")
            assert gateway.taps.wait()[0].skipped is SkipReason.CLIENT_GONE


@pytest.mark.parametrize("framing", [(b"Content-Length", b"100000"), (b"Transfer-Encoding", b"chunked")])
def test_a_body_that_drips_is_a_408_although_no_single_wait_is_long(framing: tuple[bytes, bytes]) -> None:
    def script(peer: Peer) -> None:
        peer.wait_closed()

    pace = BodyPace(grace_s=0.3, min_bytes_per_s=1e6)
    drop = b"1\r\nx\r\n" if framing[1] == b"chunked" else b"x"
    with Backend(script) as backend, running(one_route(backend.url), pace=pace) as gateway, gateway.client() as client:
        started = time.monotonic()
        client.send(encode("POST", "/", [framing]))
        stop = threading.Event()

        def drip() -> None:
            while not stop.wait(0.02):
                with suppress(OSError):
                    client.send(drop)

        dripping = threading.Thread(target=drip)
        dripping.start()
        answer = client.read("POST")
        stop.set()
        dripping.join()
        assert (answer.status, answer.code) == (408, "body_timeout")
        assert 0.25 < time.monotonic() - started < 8
        assert gateway.taps.wait()[0].skipped is SkipReason.CLIENT_GONE
        assert backend.wait_for(lambda: backend.open_connections == 0)


def test_a_backend_that_reads_slowly_does_not_make_its_client_a_slow_one() -> None:
    go_on = threading.Event()
    size = 20_000_000

    def script(peer: Peer) -> None:
        peer.read_head()
        go_on.wait(30)
        left = size
        while left:
            left -= len(peer.read_some())
        peer.send(plain())

    pace = BodyPace(grace_s=1.5, min_bytes_per_s=1e12)
    with Backend(script) as backend, running(one_route(backend.url), pace=pace) as gateway, gateway.client() as client:
        sending = threading.Thread(target=client.send, args=(encode("POST", "/", body=b"x" * size),))
        sending.start()
        assert backend.wait_for(lambda: backend.open_connections == 1)
        time.sleep(2.5)  # more than the grace, in which the backend takes nothing: only waiting shows that it passes
        go_on.set()
        assert client.read("POST").status == 200
        sending.join()


def test_a_client_that_does_not_read_is_not_waited_for_for_ever() -> None:
    with Backend(stream_for_ever) as backend:
        settings = with_backend(one_route(backend.url), "cloud", timeout_s=0.3)
        with running(settings) as gateway, gateway.client() as client:
            client.send(encode("GET", "/"))
            primary = gateway.taps.wait()[0].primary
            assert backend.wait_for(lambda: backend.open_connections == 0)
    assert primary.failure is not None
    assert primary.failure.kind in (FailureKind.CANCELLED, FailureKind.TIMEOUT)
