"""The clients and the processes of ``benchmarks/isolation.py``."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 2.0
"""How long after the end of a run an answer may come."""


@dataclass(frozen=True, slots=True)
class Run:
    """What production saw in one run: latencies in seconds of what was answered well, and the errors."""

    latencies_s: tuple[float, ...]
    errors: int

    @property
    def sent(self) -> int:
        """How many requests were sent."""
        return len(self.latencies_s) + self.errors

    def percentile_ms(self, percent: int) -> float:
        """Return a percentile in milliseconds; infinite when nothing was answered."""
        if not self.latencies_s:
            return float("inf")
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] * 1000


class Client:
    """Connections to one port, reused; each carries one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def send(self, body: bytes) -> None:
        """Send one request and read its answer. Raises ``OSError`` or ``EOFError`` when it is not a 200."""
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
        try:
            head = f"POST /x HTTP/1.1\r\nHost: bench\r\nContent-Type: image/png\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body if len(body) < 65_536 else head.encode())
            if len(body) >= 65_536:
                writer.write(body)
            await writer.drain()
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            if not answer.startswith(b"http/1.1 200"):
                raise OSError(answer[:40])
            await reader.readexactly(int(answer.split(b"content-length:")[1].split(b"\r\n")[0]))
        except BaseException:
            writer.transport.abort()
            raise
        self._idle.append((reader, writer))

    def close(self) -> None:
        """Close all."""
        for _, writer in self._idle:
            writer.transport.abort()


async def load(port: int, size_bytes: int, per_s: float, seconds: float) -> Run:
    """Send at the rate for so long, whatever becomes of earlier requests.

    A latency counts from when the request is sent, since the loop's timers are late by up to a millisecond."""
    client, body = Client(port), bytes(size_bytes)
    latencies_s: list[float] = []

    async def one() -> None:
        began_s = time.perf_counter()
        await client.send(body)
        latencies_s.append(time.perf_counter() - began_s)

    tasks: list[asyncio.Task[None]] = []
    began_s = time.perf_counter()
    for number in range(max(2, int(per_s * seconds))):
        due_s = began_s + number / per_s
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
        tasks.append(asyncio.create_task(one()))
    _, late = await asyncio.wait(tasks, timeout=PATIENCE_S)
    for task in late:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    client.close()
    return Run(tuple(latencies_s), sum(isinstance(result, BaseException) for result in results))


@contextmanager
def process(*arguments: str, port: int, cores: Set[int] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python module until the block ends, on these cores or on ours; wait until its port is open."""
    command = [sys.executable, "-m", *arguments]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        if cores is not None:
            os.sched_setaffinity(child.pid, cores)  # long before it has threads
        _wait_open(port, child)
        yield child
    finally:
        child.terminate()
        try:
            child.wait(20)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _wait_open(port: int, child: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        if child.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit(f"{child.args!r} did not open port {port}")


def memory_mib(pid: int, field: str = "VmRSS") -> float:
    """Return the memory of a process and its children from /proc; ``VmHWM`` is the sum of their peaks."""
    found_mib = 0.0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            found_mib = int(line.split()[1]) / 1024
    with suppress(FileNotFoundError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found_mib += sum(memory_mib(int(child), field) for child in (thread / "children").read_text().split())
    return found_mib


@contextmanager
def refusing_port() -> Iterator[int]:
    """Hold a port that nobody listens at."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])
