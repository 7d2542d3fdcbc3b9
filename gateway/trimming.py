"""Give memory back to the system after many bodies at once: the allocator keeps what lies between smaller things."""

from __future__ import annotations

import asyncio
import ctypes

from shadow.tee import ByteBudget

MANY_BYTES = 16 * 1024 * 1024
LOOK_EVERY_S = 0.5


async def keep_trimming(budget: ByteBudget) -> None:
    """Return free pages, on a thread, whenever the bodies held have been many and are few again. Never ends; does
    nothing where the C library has no ``malloc_trim`` (glibc has)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    were_many = False
    while trim is not None:
        await asyncio.sleep(LOOK_EVERY_S)
        many = budget.used_bytes > MANY_BYTES
        if were_many and not many:
            await asyncio.to_thread(trim, 0)
        were_many = many
