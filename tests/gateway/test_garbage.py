"""What a request held is free as soon as it is over, whatever went wrong. Left to the garbage collector, its body would
stay for hundreds of requests more, in nobody's budget."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gateway.settings import Settings
from tests.fakes.backend import Backend, Peer, plain
from tests.gateway.client import Cut, encode
from tests.gateway.harness import Running, one_route, running, stored, with_backend

REQUESTS = 4
LARGE = bytes(1024 * 1024)
OURS = ("gateway.", "shadow.")


@contextmanager
def collecting_nothing() -> Iterator[Counter[str]]:
    """Collect no garbage in the block; afterwards count, by class, the objects of ours that were garbage."""
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found.update(type(one).__qualname__ for one in gc.garbage if type(one).__module__.startswith(OURS))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def small(gateway: Running) -> None:
    gateway.request("POST", "/", body=b"small")


def large(gateway: Running) -> None:
    gateway.request("POST", "/", body=LARGE)


def missing(gateway: Running) -> None:
    gateway.request("GET", "/nowhere")


def broken(gateway: Running) -> None:
    gateway.send(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno chunk\r\n")


def half_sent(gateway: Running) -> None:
    client = gateway.client()
    client.send(encode("POST", "/", body=LARGE)[:-1])
    client.reset()


def silent(peer: Peer) -> None:
    peer.read_request()
    peer.wait_closed()


def cutting(peer: Peer) -> None:
    peer.read_request()
    peer.send(plain(LARGE)[:1000])
    peer.close()


def resetting(peer: Peer) -> None:
    peer.read_request()
    peer.reset()


def talking_nonsense(peer: Peer) -> None:
    peer.read_request()
    peer.send(b"no HTTP\r\n\r\n")


@pytest.mark.parametrize("ask", [small, large, missing, broken, half_sent])
def test_a_request_leaves_nothing_for_the_collector(
    ask: Callable[[Running], None], cloud: Backend, onprem: Backend, tmp_path: Path
) -> None:
    assert garbage_of(ask, stored(one_route(cloud.url, onprem.url, path="/"), tmp_path)) == {}


@pytest.mark.parametrize("script", [silent, cutting, resetting, talking_nonsense])
@pytest.mark.parametrize("faulty", ["cloud", "onprem"])
def test_a_failure_leaves_nothing_for_the_collector(
    script: Callable[[Peer], None], faulty: str, cloud: Backend, tmp_path: Path
) -> None:
    def ask(gateway: Running) -> None:
        with suppress(Cut):
            large(gateway)

    with Backend(script) as other:
        settings = one_route(other.url, cloud.url) if faulty == "cloud" else one_route(cloud.url, other.url)
        settings = with_backend(settings, faulty, timeout_s=0.5)
        assert garbage_of(ask, stored(settings, tmp_path)) == {}


def garbage_of(ask: Callable[[Running], None], settings: Settings) -> dict[str, int]:
    """Return how many objects of ours, by class, were garbage after some requests, where it was one for each."""
    with running(settings, mirror=True) as gateway:
        with suppress(Cut):
            gateway.request("GET", "/")  # the first makes what is kept
        with collecting_nothing() as garbage:
            for _ in range(REQUESTS):
                ask(gateway)
            gateway.wait_status(lambda status: status["routes"]["all"]["account"]["in_flight"] == 0)
    return {name: count for name, count in garbage.items() if count >= REQUESTS}
