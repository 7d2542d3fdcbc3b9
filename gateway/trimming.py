"""Keep the memory of bodies at hand while bodies come, and give it back to the system once they have been few.

Memory that is new to a process costs a page fault for each 4 KiB at its first use: 3 ms for a body of ten megabytes, a
third of what all else costs at the gateway. Left alone, the C library gives whatever is free at the end of its heap
back with each ``free``; a copy that the mirror has let go of is then paid for again by the next request. And where
copies pile up, for a shadow that is slow, every body needs new memory: a thread fetches it ahead.
"""

from __future__ import annotations

import asyncio

from gateway.heap import Heap
from shadow.tee import ByteBudget

MANY_BYTES = 16 * 1024 * 1024
PILING_BYTES = 4 * 1024 * 1024
CALM_LOOKS = 50
LOOK_EVERY_S = 0.1


async def keep_trimming(budget: ByteBudget, look_every_s: float = LOOK_EVERY_S) -> None:
    """Fetch pages, on a thread, while the bodies held become more; return the free ones when they have been many and
    then few for ``CALM_LOOKS``. Never ends; does nothing where the C library is not glibc."""
    try:
        heap = Heap()
    except OSError:
        return
    looks_left = held_bytes = reached_bytes = 0
    while True:
        await asyncio.sleep(look_every_s)
        before_bytes, held_bytes = held_bytes, budget.used_bytes
        piling = held_bytes > max(before_bytes, reached_bytes) and before_bytes > PILING_BYTES
        if piling:
            reached_bytes = held_bytes
            await asyncio.to_thread(heap.fetch, heap.find_free())
        if piling or held_bytes > MANY_BYTES:
            looks_left = CALM_LOOKS
        elif looks_left:
            looks_left -= 1
            if not looks_left:
                reached_bytes = 0
                await asyncio.to_thread(heap.trim)
