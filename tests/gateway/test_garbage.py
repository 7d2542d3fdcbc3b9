"""What a request held is free as soon as it is over. Left to the garbage collector, its body would stay for hundreds of
requests more, and every later body would be read into memory that the processor has not at hand."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.backend import Backend, answering, plain
from tests.gateway.harness import Running, one_route, running, stored

REQUESTS = 8
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
    with gateway.client() as client:
        for _ in range(REQUESTS):
            assert client.request("POST", "/", body=b"small").status == 200


def large(gateway: Running) -> None:
    with gateway.client() as client:
        for _ in range(REQUESTS):
            assert client.request("POST", "/", body=LARGE).status == 200


def missing(gateway: Running) -> None:
    with gateway.client() as client:
        for _ in range(REQUESTS):
            assert client.request("GET", "/nowhere").status == 404


@pytest.mark.parametrize("ask", [small, large, missing])
@pytest.mark.parametrize("mirror", [False, True], ids=["alone", "mirrored"])
def test_a_request_leaves_nothing_for_the_collector(
    ask: Callable[[Running], None], mirror: bool, cloud: Backend, tmp_path: Path
) -> None:
    with Backend(answering(plain(LARGE))) as backend:
        settings = stored(one_route(cloud.url, backend.url, path="/"), tmp_path)
        with running(settings, mirror=mirror) as gateway:
            assert gateway.request("GET", "/").status == 200
            with collecting_nothing() as garbage:
                ask(gateway)
                gateway.wait_status(lambda status: status["routes"]["all"]["account"]["in_flight"] == 0)
    assert {name: count for name, count in garbage.items() if count >= REQUESTS} == {}
