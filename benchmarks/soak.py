"""Run the real gateway for minutes under clients of which many vanish, and see whether memory and sockets stay flat.

    python -m benchmarks.soak --minutes 10 --rate 300
    python -m benchmarks.soak --quick                   # 20 seconds, to see that it works

A cloud and an on-prem backend run in a process of their own, `crossfade gateway` in another, with mirroring and the
store on. Requests start at a fixed rate whatever becomes of the earlier ones. One in eight clients resets its
connection: while it uploads, while it waits, or in the middle of the answer. Exit code 0: no open socket and no
request is left at the end, every request is accounted for, the mirror kept up with all whose request was whole, memory
did not grow in the second half by more than a tenth, and every client that stayed got its whole answer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from crossfade.demo.processes import free_port
from shadow.exchange import SkipReason

CONFIG = """\
gateway: {{listen: "127.0.0.1:{port}"}}
backends:
  cloud:  {{servers: ["http://127.0.0.1:{cloud}"], timeout_s: 10}}
  onprem: {{servers: ["http://127.0.0.1:{onprem}"], timeout_s: 10}}
routes:
  - name: all
    match: {{methods: [GET, POST], path: "/*"}}
    baseline: cloud
    candidate: onprem
    active: cloud
    limits: {limits}
    shadow: {{percent: {percent}}}
store: {{url: "sqlite:///soak.db", bodies: bodies}}
audit: audit.jsonl
"""
SAMPLE_S = 5.0
MAX_OPEN = 2000
UPLOAD = b"u" * 100_000
CHUNK = b"4000\r\n" + b"s" * 0x4000 + b"\r\n"
VANISHING = ("vanish in upload", "vanish in wait", "vanish in answer")
KINDS = [*VANISHING, *["quick"] * 15, *["upload"] * 4, *["stream"] * 2]
JSON = json.dumps({"label": "cat", "scores": [0.9, 0.1] * 40}).encode()


# --- the backends ------------------------------------------------------------------------------------------------


async def _serve_backend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
            if length := int(fields.get(b"content-length", b"0")):
                await reader.readexactly(length)
            path = head.split(b" ", 2)[1]
            if path == b"/wait":
                await asyncio.sleep(0.3)
            if path == b"/stream":
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                )
                for _ in range(8):
                    writer.write(CHUNK)
                    await writer.drain()
                    await asyncio.sleep(0.03)
                writer.write(b"0\r\n\r\n")
            else:
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(JSON)
                writer.write(head + JSON)
            await writer.drain()
    except (asyncio.IncompleteReadError, OSError):
        pass
    finally:
        writer.close()


def _run_backends(ports: list[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    async def serve() -> None:
        for port in ports:
            await asyncio.start_server(_serve_backend, "127.0.0.1", port, backlog=2048)
        await asyncio.Event().wait()

    asyncio.run(serve())


# --- the clients -------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What became of the requests. ``latencies_s`` are those of quick requests that were answered."""

    outcomes: Counter[str] = field(default_factory=Counter)
    latencies_s: list[float] = field(default_factory=list)


def _head(method: str, path: str, length: int) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: soak\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n".encode()


async def _one(port: int, kind: str, tally: Tally) -> None:
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(30):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await _talk(reader, writer, kind, tally)
            finally:
                writer.transport.abort() if kind.startswith("vanish") else writer.close()
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        tally.outcomes[f"{kind}: {type(error).__name__}"] += 1
        return
    if kind == "quick":
        tally.latencies_s.append(time.monotonic() - began_s)


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str, tally: Tally) -> None:
    match kind:
        case "quick":
            writer.write(_head("POST", "/quick", 1000) + b"q" * 1000)
        case "upload":
            writer.write(_head("POST", "/upload", len(UPLOAD)) + UPLOAD)
        case "stream" | "vanish in answer":
            writer.write(_head("GET", "/stream", 0))
        case "vanish in upload":
            writer.write(_head("POST", "/upload", len(UPLOAD)) + UPLOAD[:50_000])
        case "vanish in wait":
            writer.write(_head("POST", "/wait", 10) + b"w" * 10)
    await writer.drain()
    if kind.startswith("vanish"):
        if kind == "vanish in answer":
            await reader.readexactly(5000)
        else:
            await asyncio.sleep(0.05)
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        tally.outcomes[kind] += 1
        return
    answer = await reader.read(-1)
    whole = answer.endswith(b"0\r\n\r\n" if kind == "stream" else JSON)
    tally.outcomes[f"{kind}: {answer[9:12].decode()}{'' if whole else ' cut'}"] += 1


async def _load(port: int, rate: float, until_s: float, tally: Tally) -> None:
    rng, tasks, next_s = random.Random(1), set[asyncio.Task[None]](), time.monotonic()
    while next_s < until_s:
        await asyncio.sleep(max(0.0, next_s - time.monotonic()))
        next_s += 1 / rate
        if len(tasks) >= MAX_OPEN:
            tally.outcomes["not sent: too many open"] += 1
            continue
        task = asyncio.create_task(_one(port, rng.choice(KINDS), tally))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(tasks)


# --- the watch ---------------------------------------------------------------------------------------------------


@dataclass
class Sample:
    """The gateway at one moment."""

    at_s: float
    rss_mib: float
    sockets: int
    received: int
    in_flight: int
    balanced: bool
    recorded: int
    skipped: dict[str, int]


def _sockets(pid: int) -> int:
    count = 0
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            count += os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")
        except OSError:
            continue
    return count


def _rss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


async def _sample(pid: int, port: int, began_s: float) -> Sample:
    rss_mib, sockets = _rss_mib(pid), _sockets(pid)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /-/status HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")
    body = (await reader.read(-1)).split(b"\r\n\r\n", 1)[1]
    writer.close()
    account = json.loads(body)["routes"]["all"]["account"]
    return Sample(
        time.monotonic() - began_s,
        rss_mib,
        sockets,
        account["received"],
        account["in_flight"],
        account["balanced"],
        account["recorded"],
        account["skipped"],
    )


async def _watch(pid: int, port: int, began_s: float, samples: list[Sample]) -> None:
    print(f"{'s':>5} {'MiB':>7} {'sockets':>8} {'received':>9} {'in flight':>9}", flush=True)
    while True:
        sample = await _sample(pid, port, began_s)
        samples.append(sample)
        print(
            f"{sample.at_s:5.0f} {sample.rss_mib:7.1f} {sample.sockets:8} {sample.received:9} {sample.in_flight:9}",
            flush=True,
        )
        await asyncio.sleep(SAMPLE_S)


async def _settle(pid: int, port: int, began_s: float) -> Sample:
    """Wait until nothing is under way and idle connections have expired, a minute at most.

    A request each second, because stock httpx closes expired connections only when the next request comes."""
    sample = await _sample(pid, port, began_s)
    for _ in range(60):
        await _one(port, "quick", Tally())
        await asyncio.sleep(1)
        sample = await _sample(pid, port, began_s)
        if not sample.in_flight and sample.sockets <= IDLE_SOCKETS:
            break
    return sample


IDLE_SOCKETS = 12
"""The listener, the loop's own pair, and a few connections to backends that are kept for the next request."""


def _faults(samples: list[Sample], end: Sample, tally: Tally) -> list[str]:
    faults = []
    second_half = samples[len(samples) // 2 :]
    early = statistics.median(sample.rss_mib for sample in second_half[: max(1, len(second_half) // 3)])
    late = statistics.median(sample.rss_mib for sample in second_half[-max(1, len(second_half) // 3) :])
    print(f"memory in the second half: {early:.1f} MiB at its begin, {late:.1f} MiB at its end")
    if late > early * 1.1:
        faults.append("memory grew")
    if end.sockets > IDLE_SOCKETS:
        faults.append(f"{end.sockets} sockets are still open")
    if end.in_flight or not all(sample.balanced for sample in [*samples, end]):
        faults.append("the account does not balance, or something is still in flight")
    behind = {reason: count for reason, count in end.skipped.items() if reason != SkipReason.CLIENT_GONE}
    if behind:
        faults.append(f"the mirror did not keep up: {behind}")
    lost = {name: count for name, count in tally.outcomes.items() if not name.endswith(" 200") and "vanish" not in name}
    if lost:
        faults.append(f"clients that stayed did not get their answer: {lost}")
    return faults


async def _run(pid: int, port: int, minutes: float, rate: float) -> list[str]:
    began_s, samples, tally = time.monotonic(), list[Sample](), Tally()
    watch = asyncio.create_task(_watch(pid, port, began_s, samples))
    await _load(port, rate, began_s + minutes * 60, tally)
    watch.cancel()
    end = await _settle(pid, port, began_s)
    total = sum(tally.outcomes.values())
    gone = sum(tally.outcomes[name] for name in VANISHING)
    print(f"\n{total} requests, {gone / max(1, total):.1%} of their clients vanished; {dict(tally.outcomes)}")
    if tally.latencies_s:
        cuts = statistics.quantiles(tally.latencies_s, n=100)
        print(f"quick requests: p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms")
    print(
        f"at the end: {end.rss_mib:.1f} MiB, {end.sockets} sockets, {end.in_flight} in flight, "
        f"received {end.received}, recorded {end.recorded}, skipped {end.skipped}"
    )
    return _faults(samples, end, tally)


async def _wait_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(400):
        if process.poll() is not None:
            raise SystemExit("the gateway ended")
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise SystemExit("the gateway was not ready in time")


def main() -> int:
    """Run the soak; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=float, default=300, help="requests started each second")
    parser.add_argument("--shadow-percent", type=float, default=100)
    parser.add_argument("--quick", action="store_true", help="20 seconds at 50 requests/s")
    options = parser.parse_args()
    minutes, rate = (20 / 60, 50.0) if options.quick else (options.minutes, options.rate)
    cloud, onprem, port = free_port(), free_port(), free_port()
    backends = multiprocessing.get_context("spawn").Process(target=_run_backends, args=([cloud, onprem],), daemon=True)
    backends.start()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        config = Path(folder) / "crossfade.yaml"
        config.write_text(
            CONFIG.format(port=port, cloud=cloud, onprem=onprem, percent=options.shadow_percent, limits="[]")
        )
        gateway = subprocess.Popen([sys.executable, "-m", "crossfade.cli", "gateway", "--config", str(config)])
        try:
            asyncio.run(_wait_ready(port, gateway))
            faults = asyncio.run(_run(gateway.pid, port, minutes, rate))
        finally:
            gateway.terminate()
            code = gateway.wait(90)
            backends.terminate()
            backends.join()
    if code:
        faults.append(f"the gateway ended with {code}")
    print("FLAT" if not faults else "NOT FLAT: " + "; ".join(faults))
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
