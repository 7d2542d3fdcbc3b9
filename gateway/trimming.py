"""Keep the memory of bodies at hand while bodies come, and give it back to the system once they have been few.

Memory that is new to a process costs a page fault for each 4 KiB at its first use: 3 ms for a body of ten megabytes, a
third of what all else costs at the gateway. Left alone, the C library gives whatever is free at the end of its heap
back with each ``free``; a copy that the mirror has let go of is then paid for again by the next request.
"""

from __future__ import annotations

import asyncio
import ctypes

from shadow.tee import ByteBudget

MANY_BYTES = 16 * 1024 * 1024
CALM_LOOKS = 10
LOOK_EVERY_S = 0.5
AT_HAND_BYTES = 64 * 1024 * 1024
"""What may be free at the end of the heap; the library's own bound can grow to as much."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_HEAP_BYTES = 32 * 1024 * 1024
"""What is larger is no part of the heap; glibc knows no higher bound."""


async def keep_trimming(budget: ByteBudget, look_every_s: float = LOOK_EVERY_S) -> None:
    """Return free pages, on a thread, when the bodies held have been many and then few for ``CALM_LOOKS``. Never ends;
    does nothing where the C library has no ``malloc_trim`` (glibc has)."""
    library = ctypes.CDLL(None)
    trim = getattr(library, "malloc_trim", None)
    if trim is None:
        return
    library.mallopt(_M_MMAP_THRESHOLD, _HEAP_BYTES)  # both are set: setting one of them stops glibc adapting either
    library.mallopt(_M_TRIM_THRESHOLD, AT_HAND_BYTES)
    looks_left = 0
    while True:
        await asyncio.sleep(look_every_s)
        if budget.used_bytes > MANY_BYTES:
            looks_left = CALM_LOOKS
        elif looks_left:
            looks_left -= 1
            if not looks_left:
                await asyncio.to_thread(trim, 0)
