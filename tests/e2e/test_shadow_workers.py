"""Two gateways, a real Redis and two workers: one of each is killed under load, and every request is accounted for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from shadow.exchange import SkipReason
from shadow.store.reader import Reader
from shadow.stream import BYTES, PENDING, STREAM
from tests.e2e.gateway_process import gateway_process, write_config
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.redis_server import RedisServer
from tests.ports import free_port

PICTURE = b"x" * 30_000


@contextmanager
def worker(config: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker until the block ends; it must end by itself."""
    command = [sys.executable, "-m", "crossfade.cli", "shadow", "work", "--config", str(config), *arguments]
    with open(config.with_name("worker.log"), "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "CLOUD_KEY": "k3y"})
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def write_stream_config(folder: Path, name: str, cloud: str, onprem: str, redis: RedisServer) -> tuple[Path, int]:
    """Write the config of one of several gateways that share a store; return its path and port."""
    written, old = write_config(folder, cloud, onprem)
    port, config = free_port(), folder / f"{name}.yaml"
    # A folder for each: the other gateway must not take over what a killed one left, which it does after ten seconds.
    mirror = f'mirror: {{transport: "redis://127.0.0.1:{redis.port}/0", slate_dir: slates-{name}}}'
    config.write_text(written.read_text().replace(str(old), str(port)).replace("mirror: {slate_dir: slates}", mirror))
    return config, port


def send_until(stop: threading.Event, url: str, answered: list[int]) -> None:
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as client, suppress(httpx.TransportError):
        while not stop.is_set():
            assert client.post("/", content=PICTURE).content == b"cloud"
            answered.append(1)


def read_json(url: str) -> Any:
    return httpx.get(url, trust_env=False).json()


def a_little_slow(peer: Peer) -> None:
    while peer.read_request() is not None:
        time.sleep(0.01)  # so that a worker that is killed has something in its hands
        peer.send(plain(b"onprem"))


def test_a_shadow_that_refuses_is_called_no_more_and_both_pages_say_so(
    tmp_path: Path, redis_server: RedisServer
) -> None:
    """A server's breaker opens at the fifth refusal, the backend's at the twentieth of what it could not be asked; what
    comes then is skipped by that name."""
    pages, sent = f"http://127.0.0.1:{free_port()}", 60
    with Backend(answering(plain(b"cloud"))) as cloud:
        place = write_stream_config(tmp_path, "a", cloud.url, "http://127.0.0.1:1", redis_server)
        with (
            gateway_process(*place) as gateway,
            worker(place[0], "--metrics", pages.removeprefix("http://")),
            httpx.Client(base_url=gateway.url, trust_env=False) as client,
        ):
            for _ in range(sent):
                assert client.post("/", content=PICTURE).content == b"cloud"
            account = gateway.wait_drained(sent)
            gateway.wait_status(lambda _: read_json(f"{pages}/-/status")["stream"] == {"pending": 0, "undelivered": 0})
            status = read_json(f"{pages}/-/status")
            metrics = httpx.get(f"{pages}/metrics", trust_env=False).text
    skipped = account["skipped"].pop("breaker_open")
    assert account["recorded"] == sent - skipped
    assert account["skipped"] == {}
    assert 5 <= account["recorded"] < sent - 20, "those under way when it opened, and now and then a probe"
    assert status["mirror"]["breakers"] == {"cloud": "closed", "onprem": "open"}
    counted = [status[name] for name in ("taken", "recorded", "failed", "skipped", "in_flight", "returned", "given_up")]
    assert counted == [sent, sent - skipped, sent - skipped, {"breaker_open": skipped}, 0, 0, 0]
    assert f"crossfade_worker_taken_total {sent}.0" in metrics
    assert 'crossfade_worker_breaker_open{backend="onprem"} 1.0' in metrics
    reader = Reader.open(f"sqlite:///{tmp_path}/crossfade.db", tmp_path / "bodies")
    try:
        assert reader.accounts()["all"].skipped == {SkipReason.BREAKER_OPEN: skipped}
        assert reader.accounts()["all"].balanced
    finally:
        reader.close()


def test_kill_9_of_a_gateway_and_a_worker_loses_nothing_unnamed(tmp_path: Path, redis_server: RedisServer) -> None:
    stop, answered = threading.Event(), list[int]()
    with Backend(answering(plain(b"cloud"))) as cloud, Backend(a_little_slow) as onprem:
        places = [write_stream_config(tmp_path, name, cloud.url, onprem.url, redis_server) for name in ("a", "b")]
        config = places[0][0]
        with (
            gateway_process(*places[0]) as doomed,
            gateway_process(*places[1]) as gateway,
            worker(config, "--claim-after", "2") as doomed_worker,
            worker(config, "--claim-after", "2"),
            ThreadPoolExecutor(6) as many,
            redis_server.connect() as redis,
        ):
            sending = [many.submit(send_until, stop, one.url, answered) for one in (doomed, gateway) for _ in range(3)]
            gateway.wait_status(lambda status: status["routes"]["all"]["account"]["recorded"] >= 60)
            doomed_worker.kill()
            left = redis.xpending(STREAM, "workers")["pending"]
            doomed.kill()
            gateway.wait_status(lambda status: status["routes"]["all"]["account"]["recorded"] >= 120)
            stop.set()
            for each in sending:
                each.result()
            received = gateway.status()["routes"]["all"]["account"]["received"]
            account = gateway.wait_drained(received)
            assert left > 0, "the worker had something in its hands"
            gateway.wait_status(lambda _: redis.xlen(STREAM) == 0)
            assert (int(redis.get(BYTES) or 0), redis.hgetall(PENDING)) == (0, {})
            assert account["recorded"] == received, "a worker's death loses nothing"
            with gateway_process(*places[0]) as heir:
                heir.wait_status(lambda status: status["taken_over"] == 1)
                left = heir.wait_status(lambda status: status["routes"]["all"]["account"]["in_flight"] == 0)
                inherited = left["routes"]["all"]["account"]
    reader = Reader.open(f"sqlite:///{tmp_path}/crossfade.db", tmp_path / "bodies")
    try:
        stored = reader.count("all")
        total = reader.accounts()["all"]
        some = reader.exchanges("all", limit=5)
        assert all(reader.load(exchange.request.body) == PICTURE for exchange in some)
    finally:
        reader.close()
    assert total.balanced
    assert (total.recorded, total.in_flight) == (stored, 0)
    assert set(total.skipped) <= {SkipReason.LOST}, "what the killed gateway had not handed over yet"
    assert len(answered) <= total.received <= len(answered) + 3, "each of three clients was cut in one request"
    assert inherited["balanced"]
    assert inherited["received"] == total.received - received
    assert inherited["skipped"].get("lost", 0) == total.skipped.get(SkipReason.LOST, 0)
    assert not any((tmp_path / "bodies").rglob("*parcel*"))
