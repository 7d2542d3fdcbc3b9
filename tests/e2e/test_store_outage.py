"""The store fails under a running gateway: production goes on, what is lost is counted, and it recovers by itself."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.e2e.gateway_process import GatewayProcess, gateway_process, write_config
from tests.fakes.backend import Backend, answering, plain
from tests.shadow.store.postgres_server import postgres_server

REQUESTS = 20


def send(gateway: GatewayProcess, count: int = REQUESTS) -> None:
    """Send requests one after the other; each must be answered, and they soon."""
    took_s = []
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as client:
        for _ in range(count):
            started = time.monotonic()
            assert client.post("/", content=b"x" * 20_000).status_code == 200
            took_s.append(time.monotonic() - started)
    assert statistics.median(took_s) < 1


def outage(gateway: GatewayProcess, begin: Callable[[], None], end: Callable[[], None]) -> None:
    """Send before, during and after an outage, and look at the account."""
    send(gateway)
    assert gateway.wait_drained(REQUESTS)["recorded"] == REQUESTS
    begin()
    try:
        send(gateway)
        during = gateway.wait_drained(2 * REQUESTS)
    finally:
        end()
    assert during["skipped"] == {"store_failed": REQUESTS}
    assert gateway.status()["mirror"]["store_works"] is False
    send(gateway)
    after = gateway.wait_drained(3 * REQUESTS)
    assert after["recorded"] == 2 * REQUESTS
    assert gateway.status()["mirror"]["store_works"] is True


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
