"""Let large copies give way to production: what takes milliseconds of a core for each megabyte waits for a moment in
which nobody is being served.

A core that production needs, and the interpreter's lock, cannot be taken back from a thread that hashes, encrypts or
writes ten megabytes. So whoever is about to begin such a piece of work waits first: until no request is under way, and
at most ``PATIENCE_S`` since the work came up. Under traffic without a gap everything is therefore late by that much,
and the rate at which it is done is the same.

Small copies would pay more for the waiting than they cost. What they cost, most of it the same for one as for a
hundred, is paid by a batch of them (``GATHER_S``), in small steps between which whoever serves goes first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

PATIENCE_S = 0.25
STEP_S = 0.002

GATHER_S = 0.1
"""How long small work may wait for more of its kind."""

ASIDE_S = 0.00005
"""Long enough to be taken off the core, which a wait of nothing is not."""

LARGE_BYTES = 64 * 1024
"""What is smaller takes less time than the waiting would."""


def _nobody() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Courtesy:
    """Waits as long as ``busy``, which any thread may call, says that production is served. The clock is monotonic;
    small work is gathered for up to ``gather_s`` and steps aside for ``aside_s`` at a time."""

    busy: Callable[[], bool] = _nobody
    clock: Callable[[], float] = time.monotonic
    gather_s: float = GATHER_S
    aside_s: float = ASIDE_S

    @property
    def is_owed(self) -> bool:
        """Whether there is anybody to give way to."""
        return self.busy is not _nobody

    def step_aside(self) -> None:
        """Block for a moment, for whoever waits for this core or for the interpreter."""
        if self.is_owed:
            time.sleep(self.aside_s)

    def wait(self, since_s: float) -> None:
        """Block for a gap, for work that came up at this moment of the clock."""
        while self._must_wait(since_s):
            time.sleep(STEP_S)

    async def pause(self, since_s: float) -> None:
        """Wait for a gap without blocking the loop."""
        while self._must_wait(since_s):  # noqa: ASYNC110 - an event for every request would cost production more
            await asyncio.sleep(STEP_S)

    def unless(self, urgent: Callable[[], bool]) -> Courtesy:
        """Return a courtesy that ends when something is urgent."""
        return replace(self, busy=lambda: self.busy() and not urgent())

    def _must_wait(self, since_s: float) -> bool:
        return self.clock() - since_s < PATIENCE_S and self.busy()


NO_COURTESY = Courtesy()
"""For a process that serves nobody."""
