"""A real `crossfade gateway` process on loopback, with a config file that a test may change."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.ports import free_port

READY_S = 60.0
CONFIG = """\
gateway: {{listen: "127.0.0.1:{port}", transport: {transport}}}
backends:
  cloud:  {{servers: ["{cloud}"], auth: {{header: Authorization, value: "Bearer ${{CLOUD_KEY}}"}}, timeout_s: 20}}
  onprem: {{servers: ["{onprem}"], timeout_s: {shadow_timeout_s}}}
routes:
  - name: all
    match: {{methods: [GET, HEAD, POST, DELETE], path: "/*"}}
    baseline: cloud
    candidate: onprem
    active: cloud   # the toggle
    shadow: {{percent: 100}}
store: {{url: "sqlite:///crossfade.db", bodies: bodies}}
mirror: {{slate_dir: slates}}
audit: audit.jsonl
"""


@dataclass
class GatewayProcess:
    """A running gateway; ``config`` is the file it watches."""

    process: subprocess.Popen[bytes]
    config: Path
    port: int
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls is not None else 'http'}://127.0.0.1:{self.port}"

    def get(self, target: str) -> httpx.Response:
        """Ask on a connection of its own."""
        return httpx.get(f"{self.url}{target}", trust_env=False, verify=self.tls or False, timeout=30)

    def status(self) -> Any:
        return self.get("/-/status").json()

    def wait_status(self, condition: Callable[[Any], bool]) -> Any:
        """Read the status until the condition holds."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            try:
                status = self.status()
            except httpx.TransportError:
                continue
            if condition(status):
                return status
            time.sleep(0.02)  # another process's state: there is no event to wait for
        raise AssertionError(f"the status never came to it: {status}")

    def account(self) -> Any:
        """Read the account of the one route and check that it balances."""
        account = self.status()["routes"]["all"]["account"]
        assert account["received"] == account["recorded"] + account["in_flight"] + sum(account["skipped"].values())
        return account

    def wait_drained(self, received: int) -> Any:
        """Wait until so many were received and none is in flight; the account balances at every look before."""
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            account = self.account()
            if account["received"] == received and account["in_flight"] == 0:
                return account
            time.sleep(0.05)  # another process's state: there is no event to wait for
        raise AssertionError(f"not drained: {account}")

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def write_config(folder: Path, cloud: str, onprem: str, shadow_timeout_s: float = 2) -> tuple[Path, int]:
    """Write a config for one route over everything; return its path and the gateway's port."""
    port = free_port()
    config = folder / "crossfade.yaml"
    transport = os.environ.get("CROSSFADE_TEST_TRANSPORT", "own")
    config.write_text(
        CONFIG.format(port=port, cloud=cloud, onprem=onprem, shadow_timeout_s=shadow_timeout_s, transport=transport)
    )
    return config, port


@contextmanager
def gateway_process(
    config: Path, port: int, *arguments: str, tls: ssl.SSLContext | None = None
) -> Iterator[GatewayProcess]:
    """Run the gateway until the block ends; it must end by itself within its drain. ``tls`` is the context of a client
    that trusts it."""
    command = [sys.executable, "-m", "crossfade.cli", "gateway", "--config", str(config), *arguments]
    with open(config.with_name("gateway.log"), "ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "CLOUD_KEY": "k3y"})
    gateway = GatewayProcess(process, config, port, tls)
    try:
        _wait_ready(gateway)
        yield gateway
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


def _wait_ready(gateway: GatewayProcess) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        assert gateway.process.poll() is None, gateway.config.with_name("gateway.log").read_text()
        try:
            if gateway.get("/-/ready").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.05)  # not listening yet: there is no event to wait for
    raise AssertionError("the gateway was not ready in time")
