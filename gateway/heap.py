"""The heap of the C library (glibc): what of it stays at hand, what is fetched ahead, and what goes back."""

from __future__ import annotations

import ctypes
import mmap
import time

from shadow.courtesy import ASIDE_S

AT_HAND_BYTES = 64 * 1024 * 1024
"""What may be free at the end of the heap; the library's own bound can grow to as much."""
AHEAD_BYTES = 24 * 1024 * 1024
"""Two bodies of ten megabytes."""
STEP_BYTES = 1024 * 1024

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_HEAP_BYTES = 32 * 1024 * 1024
"""What is larger is no part of the heap; glibc knows no higher bound."""
_MADV_POPULATE_WRITE = 23  # Linux 5.14; an older one refuses, and nothing is fetched


class Heap:
    """The heap of this thread. Raises ``OSError`` where the C library is another one."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        if not hasattr(library, "malloc_trim"):
            raise OSError("the C library is not glibc")
        library.mallopt(_M_MMAP_THRESHOLD, _HEAP_BYTES)  # both are set: setting one of them stops glibc adapting either
        library.mallopt(_M_TRIM_THRESHOLD, AT_HAND_BYTES)
        library.malloc.restype = ctypes.c_void_p
        library.malloc.argtypes = (ctypes.c_size_t,)
        library.free.argtypes = (ctypes.c_void_p,)
        library.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._library = library

    def find_free(self) -> int:
        """Return where the next ``AHEAD_BYTES`` would come from, as an address; 0 when there are none. Wants the
        heap's own thread."""
        at = int(self._library.malloc(AHEAD_BYTES) or 0)
        self._library.free(at)
        return at

    def fetch(self, at: int) -> None:
        """Let the system provide the pages from this address on, in steps, as long as they belong to the heap. What is
        in them stays as it is, so they may be in use meanwhile. Blocks for milliseconds; made for another thread."""
        first = -(-at // mmap.PAGESIZE) * mmap.PAGESIZE
        for offset in range(0, AHEAD_BYTES - STEP_BYTES, STEP_BYTES):
            if self._library.madvise(first + offset, STEP_BYTES, _MADV_POPULATE_WRITE):
                return
            time.sleep(ASIDE_S)  # whoever waits for this core goes first

    def trim(self) -> None:
        """Give all free pages back to the system. Blocks for milliseconds; may be called by another thread."""
        self._library.malloc_trim(0)
