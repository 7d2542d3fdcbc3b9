"""Does a shadow that misbehaves touch production? Six shadows, three sizes of body, mirror on and off in turns.

``python -m benchmarks.isolation [--quick] [--no-peers]`` prints Markdown tables. Quick: about 5 minutes; in full under
13. Open loop at a stated rate over connections that are reused; what is not answered within 2 s of the end of its run
is an error. While one gateway is measured the other is stopped (SIGSTOP), with all that it still has to do, or the one
would be measured with the other's work; each is woken as long before its own turn. Each round has gateways of its own,
since two processes of one program differ by more than a mirror does. An *on* figure, the median of its runs, is within
when it is no worse than the worst *off* run of the same size. Exit code 1, and what it was, when one is not within, a
client saw an error, memory passed budget + 100 MiB or did not come back, or the account of the mirror does not balance.
Beside it the mirrors of nginx (apt-get install nginx), Traefik and Envoy (pip install 'crossfade[bench]').

The gateways and the peers have the first core, with all that their mirrors do; clients and backend have the others.
Left to the system, the client and the gateway share a core in one run and not in the next, which is as much as what is
measured. A real shadow is another machine; this one, on the cores of clients and backend, runs when these are idle.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import httpx
import uvloop
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from benchmarks.isolation_load import Run, load, memory_mib, process, refusing_port
from benchmarks.isolation_peers import BEHAVIOURS
from benchmarks.isolation_report import Gateway, Results, latency_table, memory_table, peer_table
from crossfade.demo.processes import free_port
from gateway.trimming import CALM_LOOKS, LOOK_EVERY_S

SIZES = {"1 KB": (1_000, 100.0), "1 MB": (1_000_000, 10.0), "10 MB": (10_000_000, 2.0)}
"""Bytes of a body, and requests a second."""
BUDGET_MIB = 128
DRAIN_S = 40.0
CATCH_UP_S = 0.5
COME_BACK_S = CALM_LOOKS * LOOK_EVERY_S + 1.0
"""How long freed memory may take to go back to the system."""
PEERS = ("nginx", "traefik", "envoy")
CONFIG = """\
gateway: {{listen: "127.0.0.1:{port}"}}
backends:
  cloud: {{servers: ["http://127.0.0.1:{backend}"]}}
  onprem: {{servers: ["http://127.0.0.1:{shadow}"], timeout_s: 10}}
routes:
  - name: all
    match: {{path: "/*"}}
    baseline: cloud
    candidate: onprem
    active: cloud
    shadow: {{percent: {percent}}}
mirror: {{byte_budget_bytes: {budget}}}
store: {{url: "sqlite:///{name}.db", bodies: "{name}", keep_bodies_days: 1}}
"""


@dataclass
class Bench:
    """One benchmark under way. ``rounds`` of each of on and off, ``seconds`` each; what is measured has ``cores``."""

    folder: Path
    rounds: int
    seconds: float
    progress: Progress
    cores: Set[int]
    results: Results = field(default_factory=Results)

    def gateways(self, behaviour: str, backend: int) -> None:
        """Measure two gateways with one shadow, new ones for each round: one that mirrors, one that does not."""
        for _ in range(self.rounds):
            with ExitStack() as stack:
                shadow, shadow_process = _start_shadow(stack, behaviour)
                on, on_port = stack.enter_context(self._gateway("on", 100, backend, shadow))
                off, off_port = stack.enter_context(self._gateway("off", 0, backend, shadow))
                for port in (on_port, off_port):
                    uvloop.run(load(port, 1_000, 100, 0.5))
                before_mib = memory_mib(on.pid)
                for size in SIZES:
                    earlier = _copies(shadow, 50) if behaviour == "fast" else 0
                    with _stopped(on):
                        self._run(behaviour, size, "off", off_port)
                    with _stopped(off):
                        run = self._run(behaviour, size, "on", on_port)
                    if behaviour == "fast":
                        self._count(size, "on", shadow, earlier, run)
                if shadow_process is not None:
                    shadow_process.kill()
                peak_mib = memory_mib(on.pid, "VmHWM")
                account = _drained_account(on_port)
                time.sleep(COME_BACK_S)
                seen = Gateway(before_mib, peak_mib, memory_mib(on.pid), account)
                self.results.gateways.setdefault(behaviour, []).append(seen)

    def peer(self, name: str, behaviour: str, backend: int) -> None:
        """Measure another proxy's mirror with one shadow."""
        port, folder = free_port(), Path(tempfile.mkdtemp(dir=self.folder))
        with ExitStack() as stack:
            shadow, _ = _start_shadow(stack, behaviour)
            ports = map(str, (port, backend, shadow))
            proxy = stack.enter_context(
                process("benchmarks.isolation_peers", name, *ports, str(folder), port=port, cores=self.cores)
            )
            uvloop.run(load(port, 1_000, 100, 0.1))
            before_mib = memory_mib(proxy.pid)
            for size in SIZES:
                earlier = _copies(shadow, 10) if behaviour == "fast" else 0
                run = self._run(behaviour, size, name, port)
                if behaviour == "fast":
                    self._count(size, name, shadow, earlier, run)
            self.results.grown_mib[behaviour, name] = memory_mib(proxy.pid, "VmHWM") - before_mib

    def _run(self, behaviour: str, size: str, who: str, port: int) -> Run:
        size_bytes, per_s = SIZES[size]
        run = uvloop.run(load(port, size_bytes, per_s, self.seconds))
        self.results.runs.setdefault((behaviour, size, who), []).append(run)
        self.progress.advance(self.progress.task_ids[0])
        return run

    def _count(self, size: str, who: str, shadow: int, earlier: int, run: Run) -> None:
        self.results.copies[size, who] += _copies(shadow, earlier + run.sent) - earlier

    @contextmanager
    def _gateway(
        self, name: str, percent: int, backend: int, shadow: int
    ) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
        port, folder = free_port(), Path(tempfile.mkdtemp(dir=self.folder))
        config = folder / "crossfade.yaml"
        budget = BUDGET_MIB * 1024 * 1024
        config.write_text(
            CONFIG.format(port=port, backend=backend, shadow=shadow, percent=percent, budget=budget, name=name)
        )
        with process("crossfade.cli", "gateway", "--config", str(config), port=port, cores=self.cores) as child:
            yield child, port
        shutil.rmtree(folder)


def _start_shadow(stack: ExitStack, behaviour: str) -> tuple[int, subprocess.Popen[bytes] | None]:
    if behaviour == "refusing":
        return stack.enter_context(refusing_port()), None
    port = free_port()
    arguments = ("benchmarks.isolation_peers", "shadow", behaviour, str(port))
    return port, stack.enter_context(process(*arguments, port=port))


def _copies(shadow: int, expected: int) -> int:
    """Return how many bodies the shadow got whole, once they are as many as expected or 3 s have passed."""
    for _ in range(30):
        count = int(httpx.get(f"http://127.0.0.1:{shadow}/count", trust_env=False).text)
        if count >= expected:
            break
        time.sleep(0.1)
    return count


def _account(port: int) -> Mapping[str, object]:
    document = httpx.get(f"http://127.0.0.1:{port}/-/status", trust_env=False).json()
    account: Mapping[str, object] = document["routes"]["all"]["account"]
    return account


@contextmanager
def _stopped(gateway: subprocess.Popen[bytes]) -> Iterator[None]:
    """Keep a gateway from doing anything inside the block; afterwards let it make up for what fell due meanwhile."""
    gateway.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        gateway.send_signal(signal.SIGCONT)
    time.sleep(CATCH_UP_S)


def _drained_account(port: int) -> Mapping[str, object]:
    """Return the account once nothing is in flight; as it is, where that does not come."""
    end_s = time.monotonic() + DRAIN_S
    while (account := _account(port))["in_flight"] and time.monotonic() < end_s:
        time.sleep(0.1)
    return account


def report(results: Results, peers: list[str], console: Console) -> list[str]:
    """Print the tables; return what missed the aim."""
    latency, slow = latency_table(results, list(SIZES))
    memory, large = memory_table(results, BUDGET_MIB)
    beside = ["", *peer_table(results, list(SIZES), peers)] if peers else []
    console.print("\n".join([*latency, "", *memory, *beside]), markup=False, highlight=False, soft_wrap=True)
    return slow + large


def find_peers() -> list[str]:
    """Return the peers that are installed."""
    here = f"{Path(sys.executable).parent}:{os.environ['PATH']}:/usr/sbin"
    found = [name for name in ("nginx", "traefik") if shutil.which(name, path=here)]
    return [*found, *(["envoy"] if find_spec("envoy") else [])]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short runs, about 5 minutes")
    parser.add_argument("--no-peers", action="store_true", help="leave nginx, Traefik and Envoy out")
    arguments = parser.parse_args()
    console = Console()
    peers = [] if arguments.no_peers else find_peers()
    missing = sorted(set(PEERS) - set(peers))
    if missing and not arguments.no_peers:
        console.print(f"not installed, left out: {', '.join(missing)}")
    rounds, seconds = (2, 0.5) if arguments.quick else (3, 2.5)
    results = measure(rounds, seconds, peers, console)
    missed = report(results, peers, console)
    for line in missed:
        console.print(f"MISSED: {line}", markup=False, highlight=False, soft_wrap=True)
    raise SystemExit(1 if missed else 0)


def measure(rounds: int, seconds: float, peers: list[str], console: Console) -> Results:
    """Run everything, with a bar that shows how far it is."""
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    backend, cores = free_port(), sorted(os.sched_getaffinity(0))
    first, others = {cores[0]}, set(cores[1:] or cores)
    os.sched_setaffinity(0, others)
    with (
        tempfile.TemporaryDirectory(prefix="isolation-") as folder,
        process("benchmarks.gateway_cost_peers", "backend", str(backend), port=backend),
        Progress(*columns, console=console, transient=True) as progress,
    ):
        progress.add_task("runs", total=len(BEHAVIOURS) * len(SIZES) * (rounds * 2 + len(peers)))
        bench = Bench(Path(folder), rounds, seconds, progress, first)
        for behaviour in BEHAVIOURS:
            bench.gateways(behaviour, backend)
            for name in peers:
                bench.peer(name, behaviour, backend)
    return bench.results


if __name__ == "__main__":
    main()
