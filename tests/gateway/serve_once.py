"""Run the gateway as a process of its own, for tests of its life and end: ``python -m … URL PORT``."""

from __future__ import annotations

import sys

from gateway.server import serve
from tests.gateway.harness import MemorySource, one_route

if __name__ == "__main__":
    sys.exit(serve(MemorySource(one_route(sys.argv[1])), "127.0.0.1", int(sys.argv[2])))
