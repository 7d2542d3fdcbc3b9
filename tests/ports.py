"""Ports of loopback for servers in processes of their own, which cannot be given a socket that listens already."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path

LOWEST = 10_000
MOST_WORKERS = 8


def free_port() -> int:
    """Return a port that nobody uses and that nobody is given until its server listens, however long that takes.

    It lies below the ports that the kernel gives to whoever asks for any, each worker of pytest-xdist has a share of
    its own, and none is returned twice.
    """
    for port in _candidates():
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0 and _may_bind(port):
                return port
    raise RuntimeError("no port is free")


def _may_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@cache
def _candidates() -> Iterator[int]:
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % MOST_WORKERS
    given_by_the_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = list(range(LOWEST, max(given_by_the_kernel, LOWEST + 10_000)))[worker::MOST_WORKERS]
    random.shuffle(ports)
    return iter(ports)
