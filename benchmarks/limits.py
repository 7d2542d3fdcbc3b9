"""What a check of the limits costs, and what an outage of Redis costs the requests that meet it.

``python -m benchmarks.limits`` (about a minute; ``--quick`` about ten seconds). Three tables, each ends by itself:

* check: ours in memory beside the limits library's own memory storage, in alternating rounds, with many callers known;
  the ratio is what counts on a shared machine.
* window: the largest window that the tests configure, 70,000 a day, full: p50 and p99 of a check that is admitted, of
  one that is refused, and of one after the number was lowered to 10; and the memory it takes.
* outage: 16 requests at a time against a Redis that is up, killed, up again, and hanging.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from limits import parse
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import MovingWindowRateLimiter

from gateway.limiting.counting import MemoryCounters
from gateway.limiting.limiter import Limiter
from gateway.limiting.store import RedisCounters
from gateway.settings import LimitSettings
from tests.gateway.limits import charges
from tests.gateway.redis_server import RedisServer

DAY = 70_000


def main() -> None:
    """Run all and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and callers")
    scale = 1 if parser.parse_args().quick else 5
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder))
        server.start()
        try:
            asyncio.run(compare_memory(keys=1000 * scale, rounds=3 * scale, checks=200))
            asyncio.run(measure_window(server, checks=1000 * scale))
            asyncio.run(measure_outage(server, seconds=0.6 * scale))
        finally:
            server.kill()


async def compare_memory(*, keys: int, rounds: int, checks: int) -> None:
    """Print CPU per check of both, with so many callers known, in alternating rounds."""
    ours, storage = MemoryCounters(time.monotonic), MemoryStorage()
    library = MovingWindowRateLimiter(storage)
    item = parse("100000/hour")
    asked = [charges("100000/hour", key=f"caller {number}") for number in range(keys)]
    for number in range(keys):
        await ours.decide(asked[number], "", commit=True)
        await library.hit(item, f"caller {number}")

    async def round_of(check: Callable[[int], Awaitable[object]]) -> float:
        started = time.process_time()
        for number in range(checks):
            await check(number % keys)
        if storage.timer is not None:
            await asyncio.wait({storage.timer})  # the library sweeps all keys in a task: that belongs to its checks
        return (time.process_time() - started) / checks * 1e6

    pairs = [
        (
            await round_of(lambda number: ours.decide(asked[number], "", commit=True)),
            await round_of(lambda number: library.hit(item, f"caller {number}")),
        )
        for _ in range(rounds)
    ]
    mine, theirs = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(
        f"check, {keys} callers known: ours {mine:.1f} us of CPU, the library {theirs:.1f}, ratio {mine / theirs:.3f}"
    )
    if storage.timer is not None:
        storage.timer.cancel()
        await asyncio.wait({storage.timer})


async def measure_window(server: RedisServer, *, checks: int) -> None:
    """Fill a window of 70,000 a day, and measure checks of it in memory and on Redis."""
    asked, lowered = charges(f"{DAY}/day"), charges("10/day")
    redis = RedisCounters(server.uri, timeout_s=5.0)
    for name, counters in (("memory", MemoryCounters(time.monotonic)), ("redis", redis)):

        async def times_of(what: object, counters: object = counters) -> list[float]:
            times = []
            for _ in range(checks):
                started = time.perf_counter()
                await counters.decide(what, "", commit=True)  # type: ignore[attr-defined]
                times.append(time.perf_counter() - started)
            return times

        admitted = await times_of(asked)
        while (await counters.decide(asked, "", commit=True)).charged:
            pass
        refused, after = await times_of(asked), await times_of(lowered)
        for label, times in (("admitted", admitted), ("refused, full", refused), ("refused, lowered", after)):
            print(f"window of {DAY} a day, {name}, {label}: {_percentiles(times, 1e6, 'us')}")
    with server.connect() as admin:
        size = admin.memory_usage(asked[0].key, samples=0)
        print(f"window of {DAY} a day, full, on redis: {size / 1e6:.2f} MB, {size / DAY:.0f} bytes an entry")
    await redis.aclose()


async def measure_outage(server: RedisServer, *, seconds: float) -> None:
    """Print how long admission takes while Redis is up, killed, up again and hanging."""
    settings = LimitSettings(storage=server.uri, on_failure="local", timeout_s=0.05)
    limiter = Limiter(settings, clock=time.monotonic, count_failure=lambda: None)
    asked = charges("1000000/hour")

    async def phase(name: str) -> None:
        times: list[float] = []
        until = time.monotonic() + seconds

        async def ask() -> None:
            while time.monotonic() < until:
                started = time.perf_counter()
                await limiter.admit(asked, "lease")
                times.append(time.perf_counter() - started)
                await asyncio.sleep(0.005)

        await asyncio.gather(*(ask() for _ in range(16)))
        print(f"redis {name}: n={len(times)} {_percentiles(times, 1e3, 'ms')} max {max(times) * 1e3:.1f} ms")

    await phase("up")
    server.kill()
    await phase("killed")
    server.start()
    await asyncio.sleep(1.2)
    await phase("up again")
    server.pause()
    await phase("hanging")
    server.resume()
    await limiter.aclose()


def _percentiles(times: list[float], factor: float, unit: str) -> str:
    ordered = sorted(times)
    p50, p99 = (ordered[len(ordered) * percent // 100] * factor for percent in (50, 99))
    return f"p50 {p50:.1f} {unit}, p99 {p99:.1f} {unit}"


if __name__ == "__main__":
    main()
