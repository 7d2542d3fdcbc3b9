"""Run a limited gateway whose clocks are wrong: ``python -m … BACKEND_URL PORT REDIS_URI LIMIT SKEW_S``. SIGUSR1 steps
its clocks back by five seconds."""

from __future__ import annotations

import signal
import sys
import time
from datetime import UTC, datetime, timedelta

import uvicorn

from gateway.app import Parts, create_app
from gateway.server import server_config
from tests.gateway.harness import MemorySource, one_route, with_limits

STEP_S = 5.0


class SkewedClock:
    """Monotonic and wall time that are off by ``skew_s``."""

    def __init__(self, skew_s: float) -> None:
        self.skew_s = skew_s

    def __call__(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic() + self.skew_s

    def now(self) -> datetime:
        """Return the wall time."""
        return datetime.now(UTC) + timedelta(seconds=self.skew_s)


def main(backend: str, port: str, redis: str, limit: str, skew_s: str) -> None:
    """Serve until told to end."""
    clock = SkewedClock(float(skew_s))

    def step_back(number: int, frame: object) -> None:
        clock.skew_s -= STEP_S

    signal.signal(signal.SIGUSR1, step_back)
    settings = with_limits(one_route(backend), limit, storage=redis, on_failure="closed", timeout_s=2.0)
    app = create_app(MemorySource(settings), Parts(clock=clock, now=clock.now, tap=lambda exchange: None))
    uvicorn.Server(server_config(app, host="127.0.0.1", port=int(port))).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
