"""Memory of the model server over 2,000 requests: flat within 2 %.

    python -m benchmarks.onprem_memory                  all functions, about four minutes
    python -m benchmarks.onprem_memory --only classify  one function, about one minute
    python -m benchmarks.onprem_memory --quick          100 requests, which say less

After a warm-up, which fills the allocators' pools, resident memory is taken ten times; the mean of the second half is
set against that of the first. Ends with status 1 when they differ by more than 2 %, one way or the other.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from pathlib import Path

import httpx

from benchmarks.onprem_servers import requests_for, running

WARM_UP = 100
TOLERANCE = 0.02
# Of twenty requests; the slow functions come seldom, but come.
MIX = ("classify", "face-blur", "erase", "classify", "restore") * 3 + (
    "classify",
    "face-blur",
    "erase",
    "erase",
    "remove-background",
)


def main() -> int:
    """Run, print the samples, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--only", choices=sorted(set(MIX)), help="this function alone")
    parser.add_argument("--quick", action="store_true", help="100 requests, which say less")
    arguments = parser.parse_args()
    count = 100 if arguments.quick else arguments.requests
    every = max(1, count // 10)
    mix = MIX if arguments.only is None else (arguments.only,)
    kinds = {function: itertools.cycle(requests_for(function)) for function in set(mix)}
    samples = []
    with running("ours", arguments.models) as server, httpx.Client(base_url=server.address, timeout=300) as http:
        for number in range(WARM_UP + count):
            http.post(**next(kinds[mix[number % len(mix)]])).raise_for_status()
            done = number + 1 - WARM_UP
            if done > 0 and done % every == 0:
                samples.append(server.resident_mb())
                print(f"after {done:4} requests: {samples[-1]:7.1f} MB", flush=True)
    half = len(samples) // 2
    growth = statistics.fmean(samples[half:]) / statistics.fmean(samples[:half]) - 1
    print(f"second half over first half: {growth:+.2%} (allowed {TOLERANCE:.0%})")
    return 0 if abs(growth) <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
