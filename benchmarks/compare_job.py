"""The whole comparison job over a growing store: ``python -m benchmarks.compare_job --pairs 1000000``.

Pairs of JSON answers of 2 KB are stored as a gateway stores them (redacted, encrypted, committed) and judged block by
block, as ``crossfade compare --follow`` does: read, decrypt, measure in worker processes, fold into the kept state,
judge. Every fifth has a control call and one in a thousand differs. The table shows whether a pair becomes dearer, or
memory grows, as the history does: the rate of judging alone, and the memory of the job and all its workers
after each tenth of the run. Needs about 8 KB of disk a pair; a million takes about an hour on two cores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.progress import track

from compare.job import Job
from compare.policy import Kind, Policy
from shadow.exchange import Exchange, Observation
from shadow.store.reader import Reader
from shadow.store.store import Store
from tests.shadow.bench import body_of, exchange_of

ROUTE = "classify"
BEGIN = datetime(2026, 5, 4, tzinfo=UTC)
BLOCK = 5_000
CONCURRENT = 64
DIFFERENT_IN = 1_000
CONTROL_IN = 5


@dataclass(frozen=True, slots=True)
class Row:
    """What one part of the run showed. Rates are pairs a second of the wall clock, memory is MiB."""

    pairs: int
    stored_per_s: float
    judged_per_s: float
    memory_mib: float


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=None, help="where the store goes, a temporary one by default")
    chosen = parser.parse_args()
    print("| pairs judged | stored/s | judged/s | memory of the job and its workers |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
        rows = follow(Path(folder), chosen.pairs, chosen.workers)
    print(f"\nfrom the first tenth to the last: rate x {rows[-1].judged_per_s / rows[0].judged_per_s:.2f}, "
          f"memory {rows[-1].memory_mib - rows[0].memory_mib:+.0f} MiB")  # fmt: skip


def follow(folder: Path, pairs: int, workers: int) -> list[Row]:
    """Store and judge ``pairs`` pairs in blocks; print and return a row for each tenth. Raises ``SystemExit`` where
    the job's count is not what was stored."""
    url, key, bodies = f"sqlite:///{folder}/store.db", f"file:{folder}/store.key", folder / "bodies"
    Store.open(url, bodies, key=key)  # makes the key and the tables
    reader = Reader.open(url, bodies, key=key)
    job = Job(reader, [Policy(ROUTE, "cloud", "onprem", kind=Kind.JSON)], workers=workers)
    rows: list[Row] = []
    blocks = [range(at, min(at + BLOCK, pairs)) for at in range(0, pairs, BLOCK)]
    storing = judging = 0.0
    since = 0
    try:
        for number, block in enumerate(track(blocks, description="judging", transient=True), 1):
            began = time.perf_counter()
            asyncio.run(store_all(url, bodies, key, block))
            stored = time.perf_counter()
            (result,) = job.step()
            storing, judging = storing + stored - began, judging + time.perf_counter() - stored
            if result.tally.judged != block.stop:
                raise SystemExit(f"{block.stop} pairs were stored, the job has compared {result.tally.judged}")
            if number * 10 // len(blocks) > (number - 1) * 10 // len(blocks):
                done = block.stop - since
                rows.append(Row(block.stop, done / storing, done / judging, memory_mib()))
                row = rows[-1]
                print(
                    f"| {row.pairs:,} | {row.stored_per_s:,.0f} | {row.judged_per_s:,.0f} | {row.memory_mib:,.0f} MiB |"
                )
                storing = judging = 0.0
                since = block.stop
    finally:
        job.close()
        reader.close()
    return rows


async def store_all(url: str, bodies: Path, key: str, numbers: Iterable[int]) -> None:
    """Store the pairs of these numbers, ``CONCURRENT`` under way at a time."""
    store = Store.open(url, bodies, key=key)
    left = iter(numbers)

    async def save_some() -> None:
        for number in left:
            await store.save(pair(number))

    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENT):
            group.create_task(save_some())
    await store.aclose()


def pair(number: int) -> Exchange:
    """Return the pair of this number; the same number always gives the same pair."""
    draw = random.Random(number)
    items = [{"id": number * 100 + i, "label": f"class {i}", "score": round(0.5 + i / 100, 4)} for i in range(38)]
    right = json.dumps({"model": "net-1", "items": items}).encode()
    if number % DIFFERENT_IN == 0:
        items[5]["score"] = 0.9
    other = json.dumps({"items": items, "model": "net-1"}).encode()
    exchange = exchange_of(f"{number:032x}", route=ROUTE)
    control = leg("cloud", right, draw) if number % CONTROL_IN == 0 else None
    return replace(
        exchange,
        received_at=BEGIN + timedelta(milliseconds=100 * number),
        primary=leg("cloud", right, draw),
        shadow=leg("onprem", other, draw),
        control=control,
    )


def leg(backend: str, content: bytes, draw: random.Random) -> Observation:
    """Return an answer with a latency of about 0.2 s."""
    total_s = draw.lognormvariate(-1.6, 0.2)
    answer = body_of(content, media_type="application/json")
    return Observation(backend, f"http://{backend}", 200, (), answer, total_s / 2, total_s)


def memory_mib() -> float:
    """Return the memory of this process and its descendants, a shared page counted once (Pss). Linux."""
    return sum(map(_own_mib, _with_descendants(os.getpid())))


def _with_descendants(pid: int) -> list[int]:
    children = [
        int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
    ]
    return [pid, *(each for child in children for each in _with_descendants(child))]


def _own_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    main()
