"""Kill everything at random under load, and see that every request is accounted for.

``python -m benchmarks.chaos [--seconds 300] [--seed N]``. Two gateways and two workers on one Redis and one PostgreSQL,
a shadow, and a client that never stops. Gateways, workers, shadow, Redis and PostgreSQL are killed as by a crash
(SIGKILL; PostgreSQL in its immediate mode) in a random order, each before any for a second time, and started again.
At the end all run, and the books are read: ``received = recorded + in_flight + skipped`` for every gateway as long as
it lives and over all runs in the store, what is recorded is what is stored, nothing is in flight, the stream is empty.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.progress import Progress

from shadow.account import RouteAccount
from shadow.store.reader import Reader
from shadow.stream import STREAM
from tests.gateway.redis_server import RedisServer
from tests.ports import free_port
from tests.shadow.store.postgres_server import PostgresServer, postgres_server

PAUSE_S = 0.7
SETTLE_S = 120.0
AT_LEAST = 2
"""How often each is killed, whatever the time."""
CONFIG = """\
gateway: {{listen: "127.0.0.1:{port}"}}
backends:
  cloud: {{servers: ["http://127.0.0.1:{backend}"]}}
  onprem: {{servers: ["http://127.0.0.1:{shadow}"], timeout_s: 3}}
routes:
  - {{name: all, match: {{path: "/*"}}, baseline: cloud, candidate: onprem, active: cloud, shadow: {{percent: 100}}}}
mirror: {{transport: "redis://127.0.0.1:{redis}/0", slate_dir: slates}}
store: {{url: "{url}", bodies: bodies, key: "file:master.key"}}
"""


@dataclass
class Outcome:
    """What was seen. ``faults`` are broken promises; there must be none."""

    killed: Counter[str] = field(default_factory=Counter)
    answered: int = 0
    unanswered: int = 0
    total: RouteAccount = field(default_factory=RouteAccount)
    stored: int = 0
    faults: list[str] = field(default_factory=list)


class Process:
    """A command that is killed and started again."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._command = [sys.executable, "-m", *arguments]
        self._folder = folder
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; what it says goes to a log."""
        with open(self._folder / "chaos.log", "ab") as log:
            self._child = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def ensure(self) -> None:
        """Start it again where it ended by itself, say because the database was away."""
        if self._child is not None and self._child.poll() is not None:
            self.start()


class Chaos:
    """One run. Everything lives in ``folder``."""

    def __init__(self, folder: Path, redis: RedisServer, postgres: PostgresServer, seed: int) -> None:
        self.outcome = Outcome()
        self._folder, self._redis, self._postgres = folder, redis, postgres
        self._rng = random.Random(seed)
        self._url = postgres.new_database()
        self._ports = [free_port(), free_port()]
        backend, shadow = free_port(), free_port()
        configs = [self._write_config(port, backend, shadow) for port in self._ports]
        self._backend = Process(folder, "benchmarks.gateway_cost_peers", "backend", str(backend))
        gateways = [Process(folder, "crossfade.cli", "gateway", "--config", str(config)) for config in configs]
        work = ("crossfade.cli", "shadow", "work", "--claim-after", "2", "--config", str(configs[0]))
        self._processes = {
            "gateway 1": gateways[0],
            "gateway 2": gateways[1],
            "worker 1": Process(folder, *work),
            "worker 2": Process(folder, *work),
            "shadow": Process(folder, "benchmarks.isolation_peers", "shadow", "fast", str(shadow)),
        }
        self._stop = threading.Event()

    def run(self, seconds: float, advance: Callable[[float], None]) -> None:
        """Do it: load and kill for so long, and each at least ``AT_LEAST`` times, then settle and read the books."""
        with ExitStack() as stack:
            stack.callback(self._end)
            self._backend.start()
            for process in self._processes.values():
                process.start()
            for port in self._ports:
                self._wait_ready(port)
            clients = [threading.Thread(target=self._send, args=(port,)) for port in self._ports for _ in range(2)]
            for client in clients:
                client.start()
            self._kill_at_random(seconds, advance)
            self._stop.set()
            for client in clients:
                client.join()
            self._settle()
            self._read_books()

    def _write_config(self, port: int, backend: int, shadow: int) -> Path:
        config = self._folder / f"gateway-{port}.yaml"
        text = CONFIG.format(port=port, backend=backend, shadow=shadow, redis=self._redis.port, url=self._url)
        config.write_text(text)
        return config

    def _kill_at_random(self, seconds: float, advance: Callable[[float], None]) -> None:
        began_s, order, everyone = time.monotonic(), list[str](), [*self._processes, "redis", "postgresql"]
        while (passed_s := time.monotonic() - began_s) < seconds or min(map(self._kills, everyone)) < AT_LEAST:
            advance(passed_s)
            if not order:
                order = everyone.copy()
                self._rng.shuffle(order)
            name = order.pop()
            self._kill(name)
            self.outcome.killed[name] += 1
            time.sleep(PAUSE_S * self._rng.uniform(0.5, 1.5))
            for process in self._processes.values():
                process.ensure()
            self._look()

    def _kills(self, name: str) -> int:
        return self.outcome.killed[name]

    def _kill(self, name: str) -> None:
        down_s = self._rng.uniform(0.0, PAUSE_S)
        if name == "redis":
            self._redis.kill()
            time.sleep(down_s)
            self._redis.start()
        elif name == "postgresql":
            self._postgres.stop()
            time.sleep(down_s)
            self._postgres.start()
        else:
            self._processes[name].kill()
            time.sleep(down_s)
            self._processes[name].start()

    def _send(self, port: int) -> None:
        body = bytes(20_000)
        while not self._stop.is_set():
            try:
                with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=5) as client:
                    while not self._stop.is_set():
                        answer = client.post("/x", content=body)
                        self.outcome.answered += 1
                        if answer.status_code != 200:
                            self.outcome.faults.append(f"a client got {answer.status_code}")
                        self._stop.wait(0.005)
            except httpx.TransportError:
                self.outcome.unanswered += 1  # its gateway was killed
                self._stop.wait(0.05)

    def _account(self, port: int) -> Any:
        document = httpx.get(f"http://127.0.0.1:{port}/-/status", trust_env=False, timeout=5).json()
        return document["routes"]["all"]["account"]

    def _look(self) -> None:
        for port in self._ports:
            with suppress(httpx.TransportError):
                account = self._account(port)
                if not account["balanced"]:
                    self.outcome.faults.append(f"not balanced: {account}")

    def _wait_ready(self, port: int) -> None:
        self._wait(lambda: httpx.get(f"http://127.0.0.1:{port}/-/ready", trust_env=False).status_code == 200)

    def _settle(self) -> None:
        for port in self._ports:
            self._wait_ready(port)
        for port in self._ports:
            self._wait(partial(self._is_drained, port))
        with self._redis.connect() as redis:
            self._wait(lambda: redis.xlen(STREAM) == 0)

    def _is_drained(self, port: int) -> bool:
        return bool(self._account(port)["in_flight"] == 0)

    def _wait(self, condition: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline_s:
            for process in self._processes.values():
                process.ensure()
            with suppress(httpx.TransportError):
                if condition():
                    return
            time.sleep(0.1)
        self.outcome.faults.append("it did not come to rest")

    def _read_books(self) -> None:
        reader = Reader.open(self._url, self._folder / "bodies", key=f"file:{self._folder / 'master.key'}")

        def is_closed() -> bool:
            self.outcome.total, self.outcome.stored = reader.accounts()["all"], reader.count("all")
            return not self.outcome.total.in_flight and self.outcome.total.received >= self.outcome.answered

        try:
            self._wait(is_closed)  # they are saved each second
        finally:
            reader.close()
        total, faults = self.outcome.total, self.outcome.faults
        if not total.balanced or total.in_flight:
            faults.append(f"the stored account does not balance: {total}")
        if total.recorded != self.outcome.stored:
            faults.append(f"{total.recorded} recorded, {self.outcome.stored} stored")
        if total.received < self.outcome.answered:
            faults.append(f"{self.outcome.answered} answered, but only {total.received} received")
        if not total.recorded:
            faults.append("nothing was recorded")

    def _end(self) -> None:
        self._stop.set()
        for process in (*self._processes.values(), self._backend):
            process.kill()


def run_chaos(seconds: float, seed: int, advance: Callable[[float], None] = lambda _: None) -> Outcome:
    """Run for so long in a folder that is removed afterwards; return what was seen."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name, postgres_server() as postgres:
        redis = RedisServer(Path(name))
        redis.start()
        try:
            chaos = Chaos(Path(name), redis, postgres, seed)
            chaos.run(seconds, advance)
            if chaos.outcome.faults:
                chaos.outcome.faults.append((Path(name) / "chaos.log").read_text(errors="replace")[-2000:])
            return chaos.outcome
        finally:
            redis.kill()


def main() -> None:
    """Run it and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300.0, help="how long things are killed")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4)), help="repeats an order of kills")
    arguments = parser.parse_args()
    console = Console()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("killing", total=arguments.seconds)
        outcome = run_chaos(arguments.seconds, arguments.seed, lambda at_s: progress.update(task, completed=at_s))
    total = outcome.total
    console.print(f"seed {arguments.seed}; killed: {dict(outcome.killed)}")
    console.print(f"clients: {outcome.answered} answered, {outcome.unanswered} cut with their gateway")
    skipped = {reason.value: count for reason, count in total.skipped.items()}
    console.print(f"received {total.received} = recorded {total.recorded} + skipped {skipped}; stored {outcome.stored}")
    for fault in outcome.faults:
        console.print(f"BROKEN: {fault}", markup=False)
    raise SystemExit(1 if outcome.faults else 0)


if __name__ == "__main__":
    main()
