"""The memory of bodies, seen from outside in a process of its own: the heap of the tests has its own history."""

import subprocess
import sys

CHILD = """
import asyncio, resource
from pathlib import Path
from gateway.trimming import MANY_BYTES, keep_trimming
from shadow.tee import ByteBudget

CHUNK = 256 * 1024

def faults():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

async def main():
    budget = ByteBudget(1 << 30)
    trimming = asyncio.create_task(keep_trimming(budget, 0.01))
    await asyncio.sleep(0)
    for _ in range(3):  # a body of 10 MiB comes and goes
        before = faults()
        body = [b"x" * CHUNK for _ in range(40)]
        del body
    print("faults", faults() - before)

    held, before = [], faults()
    for _ in range(20):  # bodies of 1 MiB pile up, for the looks to keep ahead of
        budget.try_reserve(1 << 20)
        held.append([b"x" * CHUNK for _ in range(4)])
        await asyncio.sleep(0.05)
    print("piling", faults() - before)
    held.clear()
    budget.release(20 << 20)

    budget.try_reserve(MANY_BYTES + 1)
    bodies, between = [], []
    for _ in range(400):
        bodies.append(b"x" * CHUNK)
        between.append(b"x" * 1000)
    await asyncio.sleep(0.1)  # it looks
    full = resident()
    bodies.clear()
    budget.release(MANY_BYTES + 1)
    for _ in range(1000):
        await asyncio.sleep(0.01)
        if resident() < full - 80 * 1024 * 1024:
            break
    print("gone", (full - resident()) >> 20)
    trimming.cancel()

asyncio.run(main())
"""


def test_the_memory_of_bodies_is_at_hand_and_goes_back_once_they_are_few() -> None:
    told = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, timeout=60)
    seen = {name: int(number) for name, number in (line.split() for line in told.stdout.splitlines())}

    assert seen["faults"] < 500  # of 2,560 pages
    assert seen["piling"] < 3000  # of 5,120
    assert seen["gone"] >= 80
