"""Measure the same exchanges with local processes and on a local Ray cluster; print how many came out the same.

A process of its own: Ray starts threads and raises warnings that the tests' settings would turn into errors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from compare.cluster import RayWorkers
from compare.policy import Kind
from compare.workers import Workers
from shadow.exchange import Exchange, Failure, FailureKind, Observation
from tests.compare.examples import answer, encoded, exchange, labels, photo, policy

JSON = "application/json"


def made() -> Iterator[Exchange]:
    """Yield pictures that are the same, near and other, labels, a failure and nonsense."""
    for n in range(12):
        pixels = photo("chelsea")[n : n + 64, :96]
        other = encoded(pixels, "JPEG", quality=60 + 3 * n) if n % 3 else encoded(pixels[..., ::-1])
        yield exchange(n, answer("cloud", encoded(pixels)), answer("onprem", other), answer("cloud", encoded(pixels)))
    for n in range(12, 24):
        kept = [labels(("cat", 0.9 - off), ("dog", 0.1)) for off in (0, n / 1000)]
        yield exchange(n, *(answer(name, kept[at], JSON) for at, name in enumerate(("cloud", "onprem"))))
    yield exchange(24, answer("cloud", b"x"), Observation("onprem", "o", failure=Failure(FailureKind.TIMEOUT)))
    yield exchange(25, answer("cloud", b"\xff" * 50, "text/plain"), answer("onprem", b"\x00", "text/plain"))


def main() -> None:
    """Compare both engines."""
    exchanges, rules, folder = list(made()), policy(Kind.AUTO), Path(sys.argv[1])
    local, cluster = Workers(2), RayWorkers(2, folder)
    try:
        here, there = local.measure(exchanges, rules), cluster.measure(exchanges, rules)
    finally:
        local.close()
        cluster.close()
    same = sum(a.to_json() == b.to_json() for a, b in zip(here, there, strict=True))
    print(f"{same} of {len(exchanges)} the same, {len(list(folder.iterdir()))} files left")


if __name__ == "__main__":
    main()
