"""The store fails under a running gateway: production goes on, what is lost is counted, and it recovers by itself."""

from __future__ import annotations

import resource
import sqlite3
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import httpx
import pytest

from tests.e2e.gateway_process import GatewayProcess, gateway_process, write_config
from tests.fakes.backend import Backend, answering, plain
from tests.shadow.store.bucket_server import ENVIRONMENT, BucketServer
from tests.shadow.store.postgres_server import postgres_server

REQUESTS = 20


def send(gateway: GatewayProcess) -> None:
    """Send requests one after the other; each must be answered, and they soon."""
    took_s = []
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        for _ in range(REQUESTS):
            started = time.monotonic()
            assert client.post("/", content=b"x" * 20_000).status_code == 200
            took_s.append(time.monotonic() - started)
    assert statistics.median(took_s) < 1


def works(gateway: GatewayProcess) -> None:
    """Send some; each must be recorded."""
    before = gateway.account()
    send(gateway)
    after = gateway.wait_drained(before["received"] + REQUESTS)
    assert after["recorded"] == before["recorded"] + REQUESTS
    assert gateway.status()["mirror"]["store_works"] is True


def fails(gateway: GatewayProcess) -> None:
    """Send some; each must be answered, and counted as lost to the store."""
    before = gateway.account()
    send(gateway)
    after = gateway.wait_drained(before["received"] + REQUESTS)
    assert after["skipped"] == {"store_failed": REQUESTS}
    assert after["recorded"] == before["recorded"]
    assert gateway.status()["mirror"]["store_works"] is False


def recovers(gateway: GatewayProcess) -> None:
    """Send one after the other until one is recorded."""
    recorded, deadline = gateway.account()["recorded"], time.monotonic() + 60
    while gateway.account()["recorded"] == recorded:
        assert time.monotonic() < deadline, "the store never came back"
        httpx.post(gateway.url, content=b"x" * 20_000, trust_env=False).raise_for_status()
        gateway.wait_drained(gateway.account()["received"])


def outage(gateway: GatewayProcess, begin: Callable[[], None], end: Callable[[], None]) -> None:
    """Send before, during and after an outage, and look at the account."""
    works(gateway)
    begin()
    try:
        fails(gateway)
    finally:
        end()
    recovers(gateway)
    works(gateway)


def test_a_full_disk_costs_production_nothing_and_the_losses_are_counted(tmp_path: Path) -> None:
    """The limit on the size of a file stands for the disk: each write beyond it fails, as on a full one."""
    with Backend(answering(plain())) as cloud, Backend(answering(plain())) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        with gateway_process(config, port) as gateway:
            pid, unlimited = gateway.process.pid, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

            def fill() -> None:
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))

            outage(gateway, fill, lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, unlimited) and None)


def test_a_database_server_that_dies_costs_production_nothing_and_comes_back(tmp_path: Path) -> None:
    with (
        Backend(answering(plain())) as cloud,
        Backend(answering(plain())) as onprem,
        postgres_server() as postgres,
    ):
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        text = config.read_text(encoding="utf-8")
        url = f'url: "{postgres.new_database()}", key: "file:store.key"'
        config.write_text(text.replace('url: "sqlite:///crossfade.db"', url), encoding="utf-8")
        with gateway_process(config, port) as gateway:
            outage(gateway, postgres.stop, postgres.start)


def test_a_bucket_that_is_away_costs_production_nothing_and_may_come_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    bucket = BucketServer()
    with Backend(answering(plain())) as cloud, Backend(answering(plain())) as onprem, ExitStack() as stack:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        text = config.read_text(encoding="utf-8")
        config.write_text(text.replace("bodies: bodies", f'bodies: "{bucket.bodies}"'), encoding="utf-8")
        with gateway_process(config, port) as gateway:
            fails(gateway)
            bucket.start()
            stack.callback(bucket.stop)
            recovers(gateway)
            works(gateway)


def test_a_locked_database_holds_up_nobody_is_waited_for_and_then_counted(tmp_path: Path) -> None:
    """The writer waits ten seconds for a lock before it counts a loss, and goes on by itself."""
    with Backend(answering(plain())) as cloud, Backend(answering(plain())) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        with (
            gateway_process(config, port) as gateway,
            closing(sqlite3.connect(tmp_path / "crossfade.db", isolation_level=None, timeout=30)) as other,
        ):
            works(gateway)
            other.execute("BEGIN IMMEDIATE")
            send(gateway)
            assert gateway.account()["recorded"] == REQUESTS
            gateway.wait_status(lambda _: "store_failed" in gateway.account()["skipped"])
            assert gateway.status()["mirror"]["store_works"] is False
            other.execute("ROLLBACK")
            account = gateway.wait_drained(2 * REQUESTS)
            assert account["recorded"] == 2 * REQUESTS - account["skipped"]["store_failed"]
            recovers(gateway)
            works(gateway)
