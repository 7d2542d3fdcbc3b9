"""Child processes of the demo: each has a name, a log file and a health address, and ends when its owner does."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

import httpx

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 25.0
POLL_S = 0.2


class ProcessFailed(RuntimeError):
    """A child ended early or did not become ready; the message says which and where its log is."""


@dataclass(frozen=True, slots=True)
class Spec:
    """How to run one child: this Python runs ``module`` with ``arguments``; ``health`` answers 200 when it is ready."""

    name: str
    module: str
    arguments: Sequence[str]
    health: str


class Processes:
    """Starts children, waits until they are ready, and stops them in reverse order, also on SIGTERM and SIGHUP.

    To be used from the main thread (signals).
    """

    def __init__(self, logs: Path, environ: Mapping[str, str]) -> None:
        self._logs, self._environ = logs, dict(environ)
        self._children: list[tuple[Spec, subprocess.Popen[bytes]]] = []
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._logs.mkdir(parents=True, exist_ok=True)
        for number in (signal.SIGTERM, signal.SIGHUP):  # else the children would outlive this process
            self._handlers[number] = signal.signal(number, _end)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, child in reversed(self._children):
            _stop(child)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def start(self, spec: Spec) -> None:
        """Start a child; its output goes to its log file."""
        with open(self.log(spec.name), "wb") as log:
            command = [sys.executable, "-m", spec.module, *spec.arguments]
            child = subprocess.Popen(  # noqa: S603 - our own modules
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=self._environ
            )
        self._children.append((spec, child))

    def log(self, name: str) -> Path:
        """Return where the child called ``name`` writes its output."""
        return self._logs / f"{name}.log"

    def pid(self, name: str) -> int:
        """Return the process id of the child called ``name``. Raises ``KeyError``."""
        return {spec.name: child.pid for spec, child in self._children}[name]

    def wait_ready(self) -> None:
        """Wait until every child answers its health address. Raises ``ProcessFailed``."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        with httpx.Client(timeout=2, trust_env=False) as client:
            for spec, child in self._children:
                while not _healthy(client, spec.health):
                    self._check(spec, child, deadline)
                    time.sleep(POLL_S)

    def failures(self) -> list[str]:
        """Return a sentence for each child that has ended by itself."""
        return [
            f"{spec.name} ended with code {child.returncode}; see {self.log(spec.name)}"
            for spec, child in self._children
            if child.poll() is not None
        ]

    def _check(self, spec: Spec, child: subprocess.Popen[bytes], deadline: float) -> None:
        if child.poll() is not None:
            tail = self.log(spec.name).read_text(errors="replace").strip().splitlines()[-3:]
            raise ProcessFailed(f"{spec.name} ended with code {child.returncode}: {' / '.join(tail)}")
        if time.monotonic() > deadline:
            raise ProcessFailed(f"{spec.name} was not ready after {READY_TIMEOUT_S:g} s; see {self.log(spec.name)}")


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)


def _healthy(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx.HTTPError:
        return False


def _stop(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def free_port(preferred: int = 0) -> int:
    """Return ``preferred`` when it is free on loopback, else a port that is."""
    for port in (preferred, 0):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return int(probe.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with ``extra``, and with colours and proxies off for the children."""
    proxies = {"http_proxy", "https_proxy", "all_proxy"}
    kept = {name: value for name, value in os.environ.items() if name.lower() not in proxies}
    return {**kept, "PYTHONUNBUFFERED": "1", **extra}
