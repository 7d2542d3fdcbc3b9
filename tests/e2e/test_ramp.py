"""The way across with real processes: a gateway, two backends, `crossfade ramp` as a person types it, and a driver."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from crossfade.config.toggle import FileToggle
from tests.e2e.gateway_process import GatewayProcess, gateway_process, write_config
from tests.fakes.backend import Backend, Peer, answering, plain

PATIENCE_S = 90.0
RULES = """\
    shadow: {percent: 100, both_ways: true}
    compare: {kind: bytes, latency_ratio: 50, error_margin: 0.3, mismatch_margin: 0.3, critical_margin: 0.3,
              min_pairs: 20, min_span_s: 0}
    ramp: {steps: [20, 100], min_stay_s: 1, min_requests: 3}
"""


def crossfade(config: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "crossfade.cli", *words, "--config", str(config)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**os.environ, "CLOUD_KEY": "k3y"})


@contextmanager
def driver(config: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run `crossfade ramp run` until the block ends; it must end by itself on SIGTERM."""
    command = [sys.executable, "-m", "crossfade.cli", "ramp", "run", "--config", str(config), "--interval", "0.2"]
    with open(config.with_name("driver.log"), "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(60) == 0, config.with_name("driver.log").read_text()


@contextmanager
def clients(gateway: GatewayProcess, statuses: list[int]) -> Iterator[None]:
    """Send 40 requests a second as many clients would, until the block ends."""
    ended = threading.Event()

    def send() -> None:
        with httpx.Client(base_url=gateway.url, trust_env=False, timeout=30) as http:
            while not ended.wait(0.025):
                caller = f"caller-{len(statuses) % 50}"
                statuses.append(http.get(f"/{len(statuses)}", headers={"X-Api-Key": caller}).status_code)

    thread = threading.Thread(target=send, name="clients")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)  # another process's state: there is no event to wait for


def test_a_ramp_goes_up_and_comes_back_with_real_processes(tmp_path: Path) -> None:
    broken = threading.Event()

    def script(peer: Peer) -> None:
        while peer.read_request() is not None:
            peer.send(plain(b"same", status=b"500 Broken") if broken.is_set() else plain(b"same"))

    statuses: list[int] = []
    with Backend(answering(plain(b"same"))) as cloud, Backend(script) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        config.write_text(config.read_text().replace("    shadow: {percent: 100}\n", RULES))
        toggle = FileToggle(config)
        with gateway_process(config, port) as gateway, clients(gateway, statuses):
            refused = crossfade(config, "ramp", "start", "all")
            assert (refused.returncode, "run crossfade compare first" in refused.stderr) == (2, True)
            wait_until(lambda: gateway.account()["recorded"] >= 40, "nothing was recorded")
            assert crossfade(config, "compare", "--workers", "1").returncode == 0
            started = crossfade(config, "ramp", "start", "all")
            assert started.returncode == 0, started.stderr
            assert "no driver runs" in started.stderr
            assert toggle.percent("all") == 0
            with driver(config):
                wait_until(lambda: toggle.percent("all") == 100, "the ramp did not get to 100 %")
                wait_until(lambda: "done at 100 %" in crossfade(config, "ramp", "status", "all").stdout, "never done")
                assert set(statuses) == {200}
                broken.set()
                wait_until(lambda: toggle.percent("all") == 0, "the ramp did not come back")
                wait_until(lambda: gateway.status()["routes"]["all"]["active"] == {"cloud": 100}, "not taken up")
            told = crossfade(config, "ramp", "status", "all").stdout
            sent = len(statuses)
            wait_until(lambda: len(statuses) > sent + 10, "no traffic any more")
    assert set(statuses[sent + 2 :]) == {200}, "all is served by the baseline again"
    assert "aborted at 0 %" in told
    assert "watch" in told


@pytest.mark.parametrize("words", [("ramp", "status", "nothing"), ("ramp", "pause", "all")])
def test_a_wrong_word_is_told(tmp_path: Path, words: tuple[str, ...]) -> None:
    config, _ = write_config(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2")
    told = crossfade(config, *words)
    assert told.returncode == 2
    assert told.stderr.splitlines()[-1].startswith("crossfade: ")
