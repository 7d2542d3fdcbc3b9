"""Worker threads that are there before they are needed: when memory has run out, none can be started any more, and that
is when work has to be refused in order and memory given back."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

_START_S = 30.0


def start_workers(count: int, name: str) -> ThreadPoolExecutor:
    """Return an executor whose ``count`` threads run already."""
    executor = ThreadPoolExecutor(count, thread_name_prefix=name)
    together = threading.Barrier(count + 1)
    for _ in range(count):
        executor.submit(together.wait, _START_S)
    together.wait(_START_S)
    return executor


class Reclaimer:
    """Gives back memory that nobody uses, in a thread of its own: collecting takes a while."""

    def __init__(self) -> None:
        self._thread = start_workers(1, "free-memory")

    async def __call__(self) -> None:
        """Free what can be freed. Call it where the failed work's exception is gone: its frames hold tensors."""
        await asyncio.get_running_loop().run_in_executor(self._thread, _free_memory)

    def close(self) -> None:
        """Free no more. Does not block."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def _free_memory() -> None:
    from onprem_backend.failures import free_memory

    free_memory()
