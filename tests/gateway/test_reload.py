"""The toggle: taken up while requests run, refused when it makes no sense, over real sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from gateway.app import create_app
from gateway.backend_tls import ClientContexts
from gateway.generation import Generation, prepare
from gateway.limiting.limiter import Limiter
from gateway.reload import Reloader
from gateway.settings import Settings
from tests.fakes.backend import Backend, Peer
from tests.gateway.client import encode
from tests.gateway.harness import MemorySource, applied, one_route, running, with_limits, with_route


def rejected_after(message: str | None) -> Callable[[Any], bool]:
    """Return the condition that another message than this one is shown."""
    return lambda status: bool(status["config"]["rejected"] != message)


def test_p23_a_request_under_way_keeps_its_backend(onprem: Backend) -> None:
    toggled = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\ncloud")
        toggled.wait(30)
        peer.send(b"cloud")

    with Backend(script) as cloud:
        settings = one_route(cloud.url, onprem.url)
        with running(settings) as gateway, gateway.client() as client:
            client.send(encode("POST", "/", [(b"Content-Length", b"0")]))
            client.read_head()
            gateway.source.replace(with_route(settings, active={"onprem": 100}))
            gateway.wait_status(applied(1))
            assert gateway.request("GET", "/").body == b"onprem"
            toggled.set()
            assert client.read_up_to(10) == b"cloudcloud"
            exchanges = {exchange.request.method: exchange for exchange in gateway.taps.wait(2)}
    assert exchanges["POST"].primary.backend == "cloud"
    assert exchanges["POST"].primary.failure is None
    assert exchanges["GET"].primary.backend == "onprem"


def test_p23_a_broken_config_changes_nothing_and_is_shown(cloud: Backend, onprem: Backend) -> None:
    settings = one_route(cloud.url, onprem.url)
    broken: list[Settings | ValueError] = [
        ValueError("line 3: not YAML"),
        with_route(settings, active={"nowhere": 100}),
        with_route(settings, active={"cloud": 50}),
        with_route(settings, limits=("often",)),
        replace(settings, store_url="sqlite:///elsewhere.db"),
        replace(settings, transport="carrier pigeon"),
    ]
    with running(settings) as gateway:
        before = gateway.status()["config"]
        assert (before["applied"], before["rejected"]) == ("v0", None)
        messages = set()
        for attempt in broken:
            previous = gateway.status()["config"]["rejected"]
            gateway.source.replace(attempt)
            config = gateway.wait_status(rejected_after(previous))["config"]
            messages.add(config["rejected"])
            assert (config["applied"], config["applied_at"]) == ("v0", before["applied_at"])
            assert gateway.request("GET", "/").body == b"cloud"
        assert len(messages) == len(broken)
        assert "line 3: not YAML" in messages
        gateway.source.replace(with_route(settings, active={"onprem": 100}))
        after = gateway.wait_status(applied(len(broken) + 1))
        assert after["config"]["rejected"] is None
        assert after["routes"]["all"]["active"] == {"onprem": 100}
        assert gateway.request("GET", "/").body == b"onprem"


def test_p23_a_rejection_is_logged_once(cloud: Backend, caplog: pytest.LogCaptureFixture) -> None:
    settings = one_route(cloud.url)
    with running(settings) as gateway:
        for _ in range(3):
            gateway.source.replace(ValueError("the same mistake"))
            version = gateway.source.version
            gateway.wait_status(lambda status: status["config"]["rejected"] is not None)
            assert gateway.source.version == version
        metrics = gateway.request("GET", "/-/metrics").body
    assert [record.getMessage() for record in caplog.records if record.name == "gateway.reload"] == [
        "new settings rejected, the old ones stay: the same mistake"
    ]
    assert b'crossfade_reloads_total{result="rejected"} 1.0' in metrics


@pytest.mark.anyio
async def test_p23_what_was_seen_is_not_loaded_again() -> None:
    def build(settings: Settings) -> Generation:
        return prepare(settings, limiter, datetime.now(UTC), ClientContexts())

    settings = one_route("http://cloud.test")
    limiter = Limiter(settings.limits, clock=time.monotonic, count_failure=lambda: None)
    source, counted = MemorySource(settings), list[bool]()
    reloader = Reloader(source, build, current=build(settings), fingerprint="v0", count=counted.append)
    for change in (None, ValueError("broken"), with_route(settings, active={"onprem": 100})):
        if change is not None:
            source.replace(change)
        for _ in range(3):
            await reloader.poll()
    assert (source.loads, counted) == (2, [False, True])
    assert reloader.current().settings.routes[0].active == {"onprem": 100}


def test_many_reloads_under_load_fail_no_request(cloud: Backend, onprem: Backend) -> None:
    settings = one_route(cloud.url, onprem.url)
    bodies: list[bytes] = []
    with running(settings) as gateway:
        done = threading.Event()

        def load() -> None:
            with gateway.client() as client:
                while not done.is_set():
                    bodies.append(client.request("GET", "/").body)

        thread = threading.Thread(target=load)
        thread.start()
        for number in range(1, 31):
            gateway.source.replace(with_route(settings, active={("cloud", "onprem")[number % 2]: 100}))
            gateway.wait_status(applied(number))
        done.set()
        thread.join()
    assert set(bodies) == {b"cloud", b"onprem"}


def test_counts_survive_a_reload_that_leaves_the_limits_alone(cloud: Backend) -> None:
    settings = with_limits(one_route(cloud.url), "2/minute")
    with running(settings) as gateway:
        assert gateway.request("GET", "/").status == 200
        gateway.source.replace(with_route(settings, max_body_bytes=7))
        gateway.wait_status(applied(1))
        assert [gateway.request("GET", "/").status for _ in range(2)] == [200, 429]


def test_a_caller_stays_on_its_side_of_a_split(cloud: Backend, onprem: Backend) -> None:
    settings = with_route(one_route(cloud.url, onprem.url), active={"cloud": 50, "onprem": 50})
    with running(settings) as gateway:
        sides = []
        for number in range(30):
            key = [(b"X-Api-Key", b"caller %d" % number)]
            first, second = (gateway.request("GET", "/", key).body for _ in range(2))
            assert first == second
            sides.append(first)
        gateway.source.replace(with_route(settings, active={"cloud": 20, "onprem": 80}))
        gateway.wait_status(applied(1))
        after = [gateway.request("GET", "/", [(b"X-Api-Key", b"caller %d" % number)]).body for number in range(30)]
    assert set(sides) == {b"cloud", b"onprem"}
    assert after.count(b"onprem") > sides.count(b"onprem")
    assert all(new == b"onprem" for old, new in zip(sides, after, strict=True) if old == b"onprem")


def test_a_broken_first_config_does_not_start(cloud: Backend) -> None:
    app = create_app(MemorySource(with_route(one_route(cloud.url), active={"cloud": 1})))

    async def start() -> None:
        async with app.router.lifespan_context(app):
            raise AssertionError("it started")

    with pytest.raises(ValueError, match="percents"):
        anyio.run(start)
