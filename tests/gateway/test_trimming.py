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
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

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


def test_a_body_reuses_the_memory_of_the_last_one_and_many_bodies_memory_goes_back() -> None:
    told = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True, timeout=60)
    words = told.stdout.split()
    faults, gone_mib = int(words[1]), int(words[3])

    assert faults < 500  # 2,560 pages
    assert gone_mib >= 80
