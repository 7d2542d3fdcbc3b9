"""Streams of events, over real sockets: passed on as they come, for as long as they come."""

from __future__ import annotations

import statistics
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from shadow.exchange import FailureKind
from shadow.store.reader import Reader
from tests.fakes.backend import Backend, Peer, Script, answering, plain
from tests.gateway.client import Cut, encode
from tests.gateway.harness import one_route, running, stored, with_backend
from tests.gateway.test_gone import EVENT_STREAM

pytestmark = pytest.mark.usefixtures("each_transport")


def test_p18_events_are_not_held_back() -> None:
    turns = [threading.Event() for _ in range(5)]

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(EVENT_STREAM)
        for number, turn in enumerate(turns):
            assert turn.wait(30)
            event = b"data: %d\n\n" % number
            peer.send(b"%x\r\n%b\r\n" % (len(event), event))
        peer.send(b"0\r\n\r\n")

    with Backend(script) as backend, running(one_route(backend.url)) as gateway:
        with gateway.client() as client:
            client.send(encode("GET", "/", [(b"Accept-Encoding", b"gzip")]))
            head = client.read_head()  # comes although no event was sent yet
            assert head.values(b"content-type") == [b"text/event-stream"]
            assert not head.values(b"content-encoding")
            for number, turn in enumerate(turns):  # the next is sent only after this one has arrived
                turn.set()
                assert client.read_chunk() == b"data: %d\n\n" % number
            assert client.read_chunk() == b""
        primary = gateway.taps.wait()[0].primary
    assert len(primary.arrivals_s) == 5
    assert list(primary.arrivals_s) == sorted(primary.arrivals_s)


@pytest.mark.parametrize("mirror", [False, True])
def test_p18_events_arrive_when_they_are_sent_with_the_mirror_on_and_off(mirror: bool, tmp_path: Path) -> None:
    sent_s: list[float] = []

    def script(peer: Peer) -> None:
        if peer.read_request() is None:
            return
        peer.send(EVENT_STREAM)
        for number in range(20):
            time.sleep(0.05)  # the backend's own pace is what the test is about
            event = b"data: %d\n\n" % number
            sent_s.append(time.monotonic())
            peer.send(b"%x\r\n%b\r\n" % (len(event), event))
        peer.send(b"0\r\n\r\n")

    with Backend(script) as backend, Backend(answering(plain())) as onprem:
        settings = stored(one_route(backend.url, onprem.url), tmp_path) if mirror else one_route(backend.url)
        with running(settings, mirror=mirror) as gateway, gateway.client() as client:
            client.send(encode("GET", "/", [(b"Accept-Encoding", b"gzip")]))
            client.read_head()
            assert len(sent_s) < 20, "it came before the last event was sent"
            arrived_s = []
            while client.read_chunk():
                arrived_s.append(time.monotonic())
    delays_s = [arrived - sent for arrived, sent in zip(arrived_s, sent_s, strict=True)]
    assert statistics.median(delays_s) < 0.25, "held back to the end, half of them would be late by more than 0.5 s"


def stream_events(count: int, pause_s: float, head: bytes = EVENT_STREAM) -> Script:
    """Return a script that sends so many events, with a pause before each."""

    def script(peer: Peer) -> None:
        while peer.read_request() is not None:
            peer.send(head)
            for number in range(count):
                time.sleep(pause_s)  # the backend's own pace is what the test is about
                event = b"data: %d\n\n" % number
                peer.send(b"%x\r\n%b\r\n" % (len(event), event))
            peer.send(b"0\r\n\r\n")

    return script


def test_a_stream_of_events_may_last_longer_than_any_other_answer() -> None:
    with (
        Backend(stream_events(15, 0.1)) as backend,
        running(with_backend(one_route(backend.url), "cloud", timeout_s=1.2)) as gateway,
    ):
        assert gateway.request("GET", "/").body.count(b"data") == 15
        assert gateway.taps.wait()[0].primary.failure is None


@pytest.mark.parametrize("media_type", ["application/x-ndjson", "Application/JSONL; charset=utf-8"])
def test_a_stream_of_lines_may_last_as_long_as_one_of_events(media_type: str) -> None:
    head = EVENT_STREAM.replace(b"text/event-stream", media_type.encode())
    with (
        Backend(stream_events(15, 0.1, head)) as backend,
        running(with_backend(one_route(backend.url), "cloud", timeout_s=1.2)) as gateway,
    ):
        assert gateway.request("GET", "/").body.count(b"data") == 15
        assert gateway.taps.wait()[0].primary.failure is None


def test_a_stream_of_events_that_falls_silent_is_cut() -> None:
    with Backend(stream_events(1, 0.0)) as quick, Backend(silent_after_one) as slow:
        for backend, ends in ((quick, True), (slow, False)):
            with running(with_backend(one_route(backend.url), "cloud", timeout_s=1.0)) as gateway:
                with gateway.client() as client, nullcontext() if ends else pytest.raises(Cut):
                    client.request("GET", "/")
                failure = gateway.taps.wait()[0].primary.failure
            assert failure is None if ends else failure is not None


def silent_after_one(peer: Peer) -> None:
    peer.read_request()
    peer.send(EVENT_STREAM + b"9\r\ndata: 1\n\n\r\n")
    peer.wait_closed()


def test_a_stream_of_events_has_a_most_that_it_may_last_where_one_is_set() -> None:
    with Backend(stream_events(10_000, 0.05)) as backend:
        settings = with_backend(one_route(backend.url), "cloud", stream_max_s=0.8)
        with running(settings) as gateway:
            with gateway.client() as client, pytest.raises(Cut) as cut:
                client.request("GET", "/")
            failure = gateway.taps.wait()[0].primary.failure
        assert cut.value.partial.count(b"data") >= 1
        assert failure is not None
        assert failure.kind is FailureKind.TIMEOUT


def test_a_copy_of_a_stream_may_last_like_the_stream(tmp_path: Path) -> None:
    with Backend(stream_events(15, 0.1)) as cloud, Backend(stream_events(15, 0.1)) as onprem:
        settings = stored(one_route(cloud.url, onprem.url), tmp_path)
        for name in ("cloud", "onprem"):
            settings = with_backend(settings, name, timeout_s=1.2)
        with running(settings, mirror=True) as gateway:
            assert gateway.request("GET", "/").body.count(b"data") == 15
    reader = Reader.open(f"sqlite:///{tmp_path}/crossfade.db", tmp_path / "bodies")
    (exchange,) = reader.exchanges()
    reader.close()
    assert exchange.shadow is not None
    assert (exchange.shadow.status, exchange.shadow.failure) == (200, None)
