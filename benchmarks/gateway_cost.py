"""What the gateway costs: CPU per request beside a Starlette no-op, megabytes beside Envoy, and the time it adds.

    python -m benchmarks.gateway_cost            about four minutes
    python -m benchmarks.gateway_cost --quick    about one

The peers run one at a time on the first core; the load, the backend and the shadow share the others. Rounds alternate
between the peers, and the figures are medians over the rounds: on a shared machine only their ratios mean something.
CPU is the run time of all threads of the peer from /proc. Envoy is left out when the extra ``bench`` is missing.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.gateway_cost_load import Ask, closed_loop, open_loop
from benchmarks.gateway_cost_peers import KEY, LARGE, SMALL
from crossfade.demo.processes import free_port

CALLERS = 8
START_S = 20.0
SETTLE_LOOKS = 200
FIELDS = (
    b"Host: bench.test\r\nUser-Agent: bench/1.0\r\nAccept: application/json\r\n"
    b"Authorization: Bearer %b\r\nContent-Type: application/json\r\n" % KEY
)


def post(path: bytes, body: bytes, answer_bytes: int) -> Ask:
    """Return a POST of this body."""
    head = b"POST %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n" % (path, FIELDS, len(body))
    return Ask(head + body, answer_bytes)


SMALL_ASK = post(b"/v1/predict?top=5", SMALL, len(SMALL))
UP = post(b"/up", LARGE, len(SMALL))
DOWN = post(b"/down", b"{}", len(LARGE))
SLOW = post(b"/slow", SMALL, len(SMALL))


@dataclass(frozen=True)
class Peer:
    """A running process."""

    name: str
    port: int
    pid: int

    def cpu_s(self) -> float:
        """User and system seconds of all threads so far, as the scheduler counts them: a tick is too coarse here."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


@contextmanager
def running(name: str, cores: set[int], *ports: int) -> Iterator[Peer]:
    """Run a peer on these cores until the block ends."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.gateway_cost_peers", name, str(port), *map(str, ports)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        os.sched_setaffinity(process.pid, cores)
        deadline_s = time.monotonic() + START_S
        while True:
            assert process.poll() is None, f"{name} ended"
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                assert time.monotonic() < deadline_s, f"{name} does not listen"
                time.sleep(0.05)
        yield Peer(name, port, process.pid)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_per_request(peers: list[Peer], ask: Ask, count: int, rounds: int) -> dict[str, float]:
    """Return the median CPU milliseconds per request of each peer, the rounds alternating between them."""
    seen: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for number in range(rounds + 1):
        for peer in peers:
            before_s = peer.cpu_s()
            asyncio.run(closed_loop(peer.port, ask, count, CALLERS))
            settle(peer)
            if number:  # the first round warms up
                seen[peer.name].append((peer.cpu_s() - before_s) / count * 1000)
    return {name: statistics.median(values) for name, values in seen.items()}


def settle(peer: Peer) -> None:
    """Wait until the peer has nothing left to do: a mirror works on after the answers, and that is its cost too."""
    for _ in range(SETTLE_LOOKS):
        before_s = peer.cpu_s()
        time.sleep(0.1)
        if peer.cpu_s() - before_s < 0.02:
            return
    raise SystemExit(f"{peer.name} does not come to rest: its CPU cannot be told")


def added_ms(peers: list[Peer], backend: Peer, count: int, rounds: int) -> dict[str, float]:
    """Return the median of each peer's p50 minus the backend's own p50, at 200 requests a second over 50 ms."""
    seen: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for _ in range(rounds):
        direct = statistics.median(asyncio.run(open_loop(backend.port, SLOW, count, 200)))
        for peer in peers:
            through = statistics.median(asyncio.run(open_loop(peer.port, SLOW, count, 200)))
            seen[peer.name].append((through - direct) * 1000)
    return {name: statistics.median(values) for name, values in seen.items()}


def main() -> None:
    """Run the comparison and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and requests")
    parser.add_argument("--only", choices=["small", "large", "added"], help="one part of the table")
    options = parser.parse_args()
    rounds, count = (2, 1500) if options.quick else (5, 4000)
    cores = sorted(os.sched_getaffinity(0))
    first, others = {cores[0]}, set(cores[1:] or cores)
    os.sched_setaffinity(0, others)
    names = ["no-op", "gateway", "gateway-shadow", "gateway-store", "gateway-httpx"]
    if importlib.util.find_spec("envoy") is not None:
        names.append("envoy")
    with ExitStack() as stack:
        backend = stack.enter_context(running("backend", others))
        shadow = stack.enter_context(running("backend", others))
        ports = {name: () if name == "no-op" else (backend.port, shadow.port) for name in names}
        peers = {name: stack.enter_context(running(name, first, *ports[name])) for name in names}
        pipes = [peer for name, peer in peers.items() if name in ("gateway", "gateway-httpx", "envoy")]
        large = [peer for name, peer in peers.items() if peer in pipes or name == "gateway-store"]
        if options.only in (None, "small"):
            report_small(cpu_per_request(list(peers.values()), SMALL_ASK, count, rounds))
        if options.only in (None, "large"):
            up = cpu_per_request(large, UP, count // 20, rounds)
            down = cpu_per_request(large, DOWN, count // 20, rounds)
            report_large(up, down)
        if options.only in (None, "added"):
            for name, value in added_ms(pipes, backend, count // 4, rounds).items():
                print(f"p50 added over 50 ms at 200/s, ms   {name:<16}{value:8.2f}")


def report_small(costs: dict[str, float]) -> None:
    """Print the CPU of a 1 KB request, and what the shadow adds."""
    floor = costs["no-op"]
    print("1 KB JSON, CPU ms a request")
    for name, value in costs.items():
        print(f"  {name:<16}{value:8.3f}{value / floor:8.2f} x no-op")
    for name, less in (("gateway-shadow", "gateway"), ("gateway-store", "gateway")):
        value = costs[name] - costs[less]
        print(f"  {name + ' adds':<16}{value:6.3f}{value / floor:8.2f} x no-op")


def report_large(up: dict[str, float], down: dict[str, float]) -> None:
    """Print the CPU of a megabyte."""
    print("1 MB, CPU ms a request: up, down")
    for name in up:
        ratios = f"{up[name] / up['envoy']:8.2f}{down[name] / down['envoy']:8.2f} x envoy" if "envoy" in up else ""
        print(f"  {name:<16}{up[name]:8.3f}{down[name]:8.3f}{ratios}")


if __name__ == "__main__":
    main()
