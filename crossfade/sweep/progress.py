"""The progress bar of a sweep: which load runs, and how long all of it still takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

_PERIOD_S = 0.25


class StageBar:
    """A bar over the planned seconds of all loads. A stage counts as its time runs, at most with its own length; one
    that was not planned makes the whole longer."""

    def __init__(self, console: Console, total_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        columns = (TextColumn("{task.description:34}"), BarColumn(), TextColumn("about {task.fields[left]} left"))
        self._bar = Progress(*columns, console=console)
        self._clock, self._total_s = clock, max(total_s, 1e-9)
        self._before_s, self._stage_s, self._began = 0.0, 0.0, clock()
        self._task = self._bar.add_task("starting", total=self._total_s, left=self._left())

    @property
    def done_s(self) -> float:
        """Planned seconds that are over."""
        return min(self._total_s, self._before_s + min(self._clock() - self._began, self._stage_s))

    def stage(self, text: str, seconds: float) -> None:
        """Begin a stage; the one before is over, however long it took."""
        self._before_s += self._stage_s
        self._stage_s, self._began = seconds, self._clock()
        self._total_s = max(self._total_s, self._before_s + seconds)
        self._bar.update(self._task, description=text, total=self._total_s)
        self._tick()

    @asynccontextmanager
    async def shown(self) -> AsyncIterator[None]:
        """Show the bar until the block ends."""
        with self._bar:
            ticking = asyncio.create_task(self._keep_ticking(), name="sweep-progress")
            try:
                yield
            finally:
                ticking.cancel()
                await asyncio.wait([ticking])

    async def _keep_ticking(self) -> None:
        while True:
            self._tick()
            await asyncio.sleep(_PERIOD_S)

    def _tick(self) -> None:
        self._bar.update(self._task, completed=self.done_s, left=self._left())

    def _left(self) -> str:
        return str(timedelta(seconds=round(self._total_s - self.done_s)))
