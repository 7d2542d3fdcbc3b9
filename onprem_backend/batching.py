"""Several requests in one run of a network.

Theory of operation. Tensors wait in ``_pending`` in the order they came. While any wait, exactly one task *fills*: it
waits for a session first, so that a batch grows while every session computes, then until the batch is full or its
oldest tensor has waited ``delay_s``; then it takes the tensors of the oldest one's shape, up to ``max_batch``, hands
filling on to a new task when some are left, and runs its batch. The number of tensors that wait is bounded by the
callers (one each), whom the model's turnstile admits.

A batch whose memory runs out is tried once more in halves; one that fails otherwise is tried once more one by one, so
that only the culprit fails. A lost device fails at once. Only the event loop's thread touches this state.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from onprem_backend.failures import is_device_failure, is_out_of_memory
from onprem_backend.pool import SessionPool, Slot, Timed
from onprem_backend.problems import Problem, Stopped
from onprem_backend.runtime import Network

Tensor = NDArray[np.float32]
Outputs = Sequence[Tensor]


@dataclass(slots=True, eq=False)
class _Entry:
    """One caller's tensor, since when it waits, and its answer."""

    tensor: Tensor
    asked: float
    done: asyncio.Future[Timed[Outputs]] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Batcher:
    """Gathers tensors into batches and runs them on a pool of networks. Closed with ``aclose``."""

    def __init__(
        self,
        pool: SessionPool[Network],
        *,
        max_batch: int,
        delay_s: float,
        reclaim: Callable[[], Awaitable[None]],
        on_batch: Callable[[int], None] = lambda size: None,
        on_retry: Callable[[str], None] = lambda reason: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``reclaim`` gives back memory before another try; ``on_batch`` learns the size of every batch that runs,
        ``on_retry`` why one is run again."""
        self.max_batch = max_batch
        self._pool = pool
        self._delay_s = delay_s
        self._reclaim = reclaim
        self._on_batch = on_batch
        self._on_retry = on_retry
        self._clock = clock
        self._pending: deque[_Entry] = deque()
        self._filling: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._full = asyncio.Event()

    async def run(self, tensor: Tensor) -> Timed[Outputs]:
        """Return this tensor's own part of each output. A caller that is cancelled leaves its batch.

        Raises ``Problem`` as a pool does, and what the network raises.
        """
        entry = _Entry(tensor, self._clock())
        self._pending.append(entry)
        if len(self._pending) >= self.max_batch:
            self._full.set()
        self._fill_on()
        try:
            return await entry.done
        finally:
            if entry in self._pending:
                self._pending.remove(entry)

    async def aclose(self) -> None:
        """End all tasks. Whoever still waits gets ``Problem("model_unloaded")``."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        _fail(list(self._pending), _gone())

    def _fill_on(self) -> None:
        if self._filling is None and self._pending:
            self._filling = asyncio.create_task(self._fill(), name=f"batch-{self._pool.name}")
            self._tasks.add(self._filling)
            self._filling.add_done_callback(self._tasks.discard)

    async def _fill(self) -> None:
        slot, problem = await self._slot()
        if slot is not None:
            try:
                await self._until_full()
            except asyncio.CancelledError:
                self._pool.give_back(slot)
                raise
        batch = self._take()
        self._filling = None
        self._fill_on()
        if slot is None:
            _fail(batch, problem)
        elif batch:
            try:
                await self._run(batch, slot)
            finally:  # after a cancellation nobody else would answer them
                _fail(batch, _gone())
        else:
            self._pool.give_back(slot)

    async def _slot(self) -> tuple[Slot[Network] | None, Exception]:
        try:
            return await self._pool.acquire(), Stopped()
        except Problem as problem:
            return None, problem

    async def _until_full(self) -> None:
        if not self._pending or len(self._pending) >= self.max_batch:
            return
        left_s = self._pending[0].asked + self._delay_s - self._clock()
        self._full.clear()
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                await self._full.wait()
        except TimeoutError:
            pass

    def _take(self) -> list[_Entry]:
        """Take the oldest tensor and what goes with it; other shapes stay, in their order."""
        batch: list[_Entry] = []
        rest: deque[_Entry] = deque()
        for entry in self._pending:
            fits = not batch or entry.tensor.shape == batch[0].tensor.shape
            (batch if fits and len(batch) < self.max_batch else rest).append(entry)
        self._pending = rest
        return batch

    async def _run(self, batch: list[_Entry], slot: Slot[Network]) -> None:
        began = self._clock()
        error = await self._try(batch, slot, began)
        if error is None:
            return
        parts = self._parts(batch, error)
        if parts:
            reason = "out_of_memory" if is_out_of_memory(error) else "batch_failed"
            del error
            await self._reclaim()
            self._on_retry(reason)
            for part in parts:
                later, problem = await self._slot()
                failed = problem if later is None else await self._try(part, later, began)
                if failed is not None:
                    _fail(part, failed)
        else:
            _fail(batch, error)

    @staticmethod
    def _parts(batch: list[_Entry], error: Exception) -> list[list[_Entry]]:
        """Return what is worth another try after ``error``; nothing after a verdict about all of them."""
        if len(batch) == 1 or isinstance(error, Problem | Stopped) or is_device_failure(error):
            return []
        if is_out_of_memory(error):
            middle = (len(batch) + 1) // 2
            return [batch[:middle], batch[middle:]]
        return [[entry] for entry in batch]

    async def _try(self, batch: list[_Entry], slot: Slot[Network], began: float) -> Exception | None:
        """Run a batch and answer its callers, or return why it failed. Its tensors are stacked in the worker."""
        tensors = [entry.tensor for entry in batch]
        self._on_batch(len(batch))

        def work(network: Network, stop: threading.Event) -> Outputs:
            return network(np.stack(tensors))

        try:
            timed = await self._pool.run_on(slot, work, began)
        except Exception as error:  # a value from here on: it decides about another try, and each caller gets it
            return error
        for index, entry in enumerate(batch):
            if not entry.done.done():
                own = [output[index] for output in timed.value]
                entry.done.set_result(Timed(own, began - entry.asked, timed.run_s))
        return None


def _fail(batch: list[_Entry], error: Exception) -> None:
    for entry in batch:
        if not entry.done.done():
            entry.done.set_exception(error)


def _gone() -> Problem:
    return Problem("model_unloaded", "the model was unloaded while this request waited", retry_after_s=1)
