"""The health checks of ``deploy/``, asked of the very commands that the containers run."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.deploy.description import CONFIG, Container, compose_containers, image_containers, kubernetes_containers
from tests.ports import free_port

PAUSE_S, PATIENCE = 0.2, 300
GRACE_S = 75.0
SWITCHES = ("ENABLE_RESTORE", "ENABLE_REMOVER", "ENABLE_ERASER", "ENABLE_FACEBLUR", "ENABLE_CLASSIFY")


def _probed_paths(command: str) -> set[str]:
    every: list[Container] = [*image_containers(), *compose_containers(), *kubernetes_containers()]
    return {probe.path for item in every if item.args[:1] == (command,) for probe in item.probes}


def _config_here(folder: Path, port: int) -> Path:
    """Return the deployed config with only its places changed to ones that exist on this machine."""
    text = CONFIG.read_text(encoding="utf-8")
    for there, here in {
        "0.0.0.0:8080": f"127.0.0.1:{port}",
        "async+redis://redis:6379/0": "memory://",
        "/var/lib/crossfade": str(folder),
    }.items():
        assert there in text
        text = text.replace(there, here)
    path = folder / CONFIG.name
    path.write_text(text, encoding="utf-8")
    return path


@contextmanager
def _running(words: Sequence[str], environ: dict[str, str], port: int) -> Iterator[httpx.Client]:
    """Run the command line until the block ends; its end by SIGTERM must fit into the grace that pods get."""
    command = [sys.executable, "-m", "crossfade.cli", *words]
    with subprocess.Popen(command, env=os.environ | environ) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False) as client:
                _wait_until(lambda: process.poll() is not None or _listens(port))
                yield client
        finally:
            process.terminate()
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def _wait_until(happened: Callable[[], bool]) -> None:
    """Look again and again, as a probe does: another process offers no event to wait for."""
    pause = threading.Event()
    for _ in range(PATIENCE):
        if happened():
            return
        pause.wait(PAUSE_S)
    raise AssertionError("nothing happened in time")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _statuses(client: httpx.Client, paths: set[str]) -> dict[str, int]:
    return {path: client.get(path).status_code for path in sorted(paths)}


def test_the_gateway_answers_its_probes_though_every_backend_is_away(tmp_path: Path) -> None:
    port = free_port()
    words = ["gateway", "--config", str(_config_here(tmp_path, port))]

    with _running(words, {"CLOUD_KEY": "of-a-test"}, port) as client:
        assert _statuses(client, _probed_paths("gateway")) == {"/-/live": 200, "/-/ready": 200}


def test_the_dashboard_answers_its_probe_without_the_token_and_shows_nothing_else(tmp_path: Path) -> None:
    port = free_port()
    words = ["dashboard", "--config", str(_config_here(tmp_path, port)), "--host", "0.0.0.0", "--port", str(port)]
    environ = {"CROSSFADE_DASHBOARD_TOKEN": "of-a-test"}

    with _running(words, environ, port) as client:
        assert _statuses(client, _probed_paths("dashboard")) == {"/-/live": 200}
        assert client.get("/").status_code in {303, 401}


def test_the_model_server_answers_its_probes_and_is_ready_with_one_model(tmp_path: Path) -> None:
    port = free_port()
    words = ["onprem", "--host", "127.0.0.1", "--port", str(port), "--models", str(tmp_path), "--device", "cpu"]
    only_what_needs_no_weights = dict.fromkeys(SWITCHES, "0") | {"ENABLE_ERASER": "1"}

    with _running(words, only_what_needs_no_weights, port) as client:
        assert _probed_paths("onprem") == {"/v2/health/live", "/v2/health/ready"}
        assert _statuses(client, {"/v2/health/live"}) == {"/v2/health/live": 200}
        _wait_until(lambda: client.get("/v2/health/ready").status_code != 503)
        assert _statuses(client, {"/v2/health/ready"}) == {"/v2/health/ready": 200}


def test_a_dashboard_beyond_loopback_without_a_token_does_not_start(tmp_path: Path) -> None:
    port = free_port()
    words = ["dashboard", "--config", str(_config_here(tmp_path, port)), "--host", "0.0.0.0", "--port", str(port)]
    environ = {name: value for name, value in os.environ.items() if name != "CROSSFADE_DASHBOARD_TOKEN"}

    done = subprocess.run(
        [sys.executable, "-m", "crossfade.cli", *words],
        env=environ,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 2
    assert "CROSSFADE_DASHBOARD_TOKEN" in done.stderr
