"""Several workers on one port: one gateway to whoever looks at it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.gateway_process import READY_S, GatewayProcess, gateway_process, write_config
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.client import Client, encode


def pids(status: Any) -> list[int]:
    return [worker["pid"] for worker in status["workers"]]


def all_there(status: Any) -> bool:
    return None not in pids(status)


def start_and_fail(config: Path, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "crossfade.cli", "gateway", "--config", str(config), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "CLOUD_KEY": "k"}, check=False
    )
    return done.returncode, done.stderr


def send(port: int, count: int) -> None:
    for _ in range(count):
        with Client(port) as client:
            assert client.request("POST", "/", body=b"x").status == 200


def test_numbers_are_those_of_all_workers_and_budgets_are_shared_out(tmp_path: Path) -> None:
    with Backend(answering(plain())) as cloud, Backend(answering(plain())) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        with gateway_process(config, port, "--workers", "3") as gateway:
            gateway.wait_status(all_there)
            send(port, 60)
            account = gateway.wait_drained(60)
            status = gateway.status()
            metrics = gateway.get("/-/metrics").text
        assert account["recorded"] == 60, "each was mirrored and stored, whichever worker took it"
        assert len(set(pids(status))) == 3
        assert status["mirror"]["budget_total_bytes"] == 256 * 1024 * 1024 // 3 * 3
        assert status["backends"]["cloud"][cloud.url]["served"] == 60
        assert status["routes"]["all"]["active"] == {"cloud": 100}
    lines = [line for line in metrics.splitlines() if line.startswith("crossfade_received_total{")]
    counts = {line.split('worker="')[1][0]: float(line.split(" ")[1]) for line in lines}
    assert sum(counts.values()) == 60
    assert len([number for number, count in counts.items() if count]) >= 2, "the kernel spreads the connections"


def test_a_worker_that_dies_is_replaced_and_the_toggle_reaches_all(tmp_path: Path) -> None:
    with Backend(answering(plain(b"cloud"))) as cloud, Backend(answering(plain(b"onprem"))) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        with gateway_process(config, port, "--workers", "2") as gateway:
            first = pids(gateway.wait_status(all_there))
            send(port, 20)
            os.kill(first[0], signal.SIGKILL)
            second = pids(gateway.wait_status(lambda status: all_there(status) and pids(status)[0] != first[0]))
            assert second[1] == first[1]
            gateway.wait_status(lambda status: status["taken_over"] == 1)
            gateway.wait_drained(20)  # what the killed one had counted goes on counting
            send(port, 20)
            config.write_text(config.read_text().replace("active: cloud", "active: onprem"))
            gateway.wait_status(
                lambda status: status["routes"]["all"]["active"] == {"onprem": 100} and status["config"]["everywhere"]
            )
            for _ in range(20):
                with Client(port) as client:
                    assert client.request("GET", "/").body == b"onprem"


def test_sigterm_drains_every_worker_and_the_exit_code_is_0(tmp_path: Path) -> None:
    go_on = threading.Event()

    def slow(peer: Peer) -> None:
        while peer.read_request() is not None:
            go_on.wait(60)
            peer.send(plain(b"finished"))

    with Backend(slow) as cloud, Backend(answering(plain())) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        with gateway_process(config, port, "--workers", "2") as gateway:
            gateway.wait_status(all_there)
            waiting = [Client(port) for _ in range(10)]
            for client in waiting:
                client.send(encode("POST", "/", body=b"x"))
            assert cloud.wait_requests(10)
            gateway.process.terminate()
            deadline = time.monotonic() + READY_S
            while _accepts(port):
                assert time.monotonic() < deadline, "new connections are still taken"
            go_on.set()
            assert [client.read("POST").body for client in waiting] == [b"finished"] * 10
            for client in waiting:
                client.close()
            assert gateway.process.wait(60) == 0
        assert len(onprem.requests) == 10, "the mirror was drained too"


def test_workers_whose_supervisor_was_killed_end_by_themselves(tmp_path: Path) -> None:
    with Backend(answering(plain())) as cloud:
        config, port = write_config(tmp_path, cloud.url, cloud.url)
        with gateway_process(config, port, "--workers", "2") as gateway:
            workers = pids(gateway.wait_status(all_there))
            gateway.process.kill()
            deadline = time.monotonic() + READY_S
            while any(_is_alive(pid) for pid in workers):
                assert time.monotonic() < deadline, "orphans"
                time.sleep(0.05)  # processes that are not ours: there is no event to wait for


def test_limits_in_memory_are_refused_with_the_way_out(tmp_path: Path) -> None:
    config, _ = write_config(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:1")
    config.write_text(config.read_text().replace("    shadow:", '    limits: ["5/second"]\n    shadow:'))
    code, message = start_and_fail(config, "--workers", "2")
    assert code == 2
    assert "limits.storage" in message
    assert "async+redis://" in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("active: cloud", "active: nowhere", "active names nowhere"),
        ("gateway: {", "gateway: {tls: {certificate: none.pem, key: none.key}, ", "none.pem"),
        ("routes:", "rotues:", "routes"),
    ],
)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_config_that_cannot_be_used_is_a_message_and_exit_code_2(
    tmp_path: Path, old: str, new: str, names: str, workers: str
) -> None:
    config, _ = write_config(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:1")
    config.write_text(config.read_text().replace(old, new))
    code, message = start_and_fail(config, "--workers", workers)
    assert code == 2, message
    assert names in message
    assert "Traceback" not in message


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_gateway_that_cannot_start_says_why_and_ends(tmp_path: Path, workers: str) -> None:
    config, port = write_config(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:1")
    (tmp_path / "crossfade.db").mkdir()  # where the database is to be
    code, message = start_and_fail(config, "--workers", workers)
    assert code == 1
    assert "cannot start" in message
    assert "Traceback" not in message
    with socket.create_server(("127.0.0.1", port)):
        code, message = start_and_fail(config, "--workers", workers)
    assert code == 1
    assert f"port {port}" in message


def _accepts(port: int) -> bool:
    try:
        Client(port).close()
    except OSError:
        return False
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_loads_the_settings_anew_in_every_worker(tmp_path: Path, workers: int) -> None:
    def reloads(gateway: GatewayProcess) -> list[float]:
        lines = gateway.get("/-/metrics").text.splitlines()
        mine = [line for line in lines if line.startswith("crossfade_reloads_total{") and 'result="applied"' in line]
        return [value for line in mine if (value := float(line.split()[-1])) > 0]

    with Backend(answering(plain())) as cloud:
        config, port = write_config(tmp_path, cloud.url, "http://127.0.0.1:9")
        with gateway_process(config, port, "--workers", str(workers)) as gateway:
            gateway.wait_status(lambda status: workers == 1 or all_there(status))
            gateway.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + READY_S
            while len(reloads(gateway)) < workers:
                send(port, 5)
                assert time.monotonic() < deadline, "SIGHUP changed nothing"
            assert gateway.process.poll() is None
