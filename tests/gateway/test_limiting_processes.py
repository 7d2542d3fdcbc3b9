"""Several gateways as processes of their own, with clocks that disagree, on one Redis: exact all the same."""

from __future__ import annotations

import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.fakes.backend import Backend, answering, plain
from tests.gateway.client import Client
from tests.gateway.redis_server import RedisServer
from tests.gateway.test_server import connect
from tests.ports import free_port

LONGEST_PAUSE_S = 0.03


@dataclass
class Gateway:
    """One process."""

    process: subprocess.Popen[bytes]
    port: int

    def connect(self) -> Client:
        return connect(self.port, self.process)


@contextmanager
def gateways(backend: Backend, redis: RedisServer, limit: str, skews_s: list[float]) -> Iterator[list[Gateway]]:
    """Run a gateway for each skew of the clock."""
    started: list[Gateway] = []
    try:
        for skew_s in skews_s:
            port = free_port()
            words = [backend.url, str(port), redis.uri, limit, str(skew_s)]
            process = subprocess.Popen([sys.executable, "-m", "tests.gateway.serve_skewed", *words])
            started.append(Gateway(process, port))
        for gateway in started:
            gateway.connect().close()
        yield started
    finally:
        for gateway in started:
            gateway.process.kill()
            gateway.process.wait()


@dataclass
class Load:
    """Keeps asking each gateway over one connection until told to stop."""

    statuses: Counter[int] = field(default_factory=Counter)
    waits: set[int] = field(default_factory=set)
    answered_at: list[float] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, gateway: Gateway) -> None:
        statuses, waits, answered_at = Counter[int](), set[int](), []
        with gateway.connect() as client:
            while not self.done.is_set():
                answer = client.request("GET", "/")
                answered_at.append(time.monotonic())
                statuses[answer.status] += 1
                waits |= {int(value) for value in answer.values(b"retry-after")}
        with self._lock:
            self.statuses += statuses
            self.waits |= waits
            self.answered_at += answered_at

    def idle_s(self) -> float:
        """How long the machine let nobody ask, in all: pauses of which each is longer than saturation has any."""
        times = sorted(self.answered_at)
        return sum(gap for gap in (b - a for a, b in pairwise(times)) if gap > LONGEST_PAUSE_S)


def entries(admin: Any, seen: set[tuple[float, float]]) -> None:
    """Add what the one moving window holds now: when each was admitted, and how many before it."""
    for key in admin.keys("*"):
        seen |= {struct.unpack(">ddd", raw)[:2] for raw in admin.lrange(key, 0, -1)}


def test_r12_four_gateways_admit_the_number_and_never_one_more(redis_server: RedisServer) -> None:
    amount, window_us = 100, 4_000_000
    load, seen = Load(), set[tuple[float, float]]()
    skews_s = [0.0, 10.0, -10.0, 3600.0]
    with ExitStack() as stack:
        backend = stack.enter_context(Backend(answering(plain())))
        started = stack.enter_context(gateways(backend, redis_server, f"{amount}/4 second", skews_s))
        admin = stack.enter_context(redis_server.connect())
        threads = [threading.Thread(target=load.run, args=(gateway,)) for gateway in started for _ in range(2)]
        for thread in threads:
            thread.start()
        for turn in range(20):
            time.sleep(0.4)  # a part of the window, so that no entry is trimmed unseen
            entries(admin, seen)
            if turn == 10:
                started[1].process.send_signal(signal.SIGUSR1)
        load.done.set()
        for thread in threads:
            thread.join()
        entries(admin, seen)
    times = sorted(at for at, _ in seen)
    assert len(times) == load.statuses[200], "what was admitted is what was counted"
    assert set(load.statuses) == {200, 429}
    assert load.statuses[429] > 2 * load.statuses[200], "this was saturation"
    for first, next_one in zip(times, times[amount:], strict=False):
        assert next_one - first >= window_us, "one more than the number within a window"
    windows = int((times[-1] - times[0]) / window_us)
    admitted = sum(at - times[0] < windows * window_us for at in times)
    print(f"{admitted} admitted in {windows} whole windows of {amount}: {admitted / (amount * windows):.1%}")
    assert admitted >= 0.95 * amount * (windows - load.idle_s() * 1e6 / window_us)
    assert load.waits <= {1, 2, 3, 4}


def test_r12_two_gateways_ten_seconds_apart_share_one_window(redis_server: RedisServer) -> None:
    with ExitStack() as stack:
        backend = stack.enter_context(Backend(answering(plain())))
        one, other = stack.enter_context(gateways(backend, redis_server, "20/30 second", [0.0, 10.0]))
        first, second = stack.enter_context(one.connect()), stack.enter_context(other.connect())
        began = time.monotonic()
        answers = [client.request("GET", "/") for _ in range(20) for client in (first, second)]
        other.process.send_signal(signal.SIGUSR1)
        answers += [client.request("GET", "/") for _ in range(10) for client in (first, second)]
        assert time.monotonic() - began < 29, "too slow for one window"
    assert [answer.status for answer in answers] == [200] * 20 + [429] * 40
    waits = [int(value) for answer in answers for value in answer.values(b"retry-after")]
    assert all(1 <= wait <= 30 for wait in waits)
    resets = [int(answer.values(b"ratelimit")[0].rpartition(b"t=")[2]) for answer in answers]
    assert all(0 <= reset <= 30 for reset in resets)
