"""What a failed model means: memory that ran out, a device that is lost, or a fault of the model itself."""

from __future__ import annotations

import gc

import torch

_MEMORY_MARKS = (
    "can't allocate memory",
    "can't start new thread",
    "could not create a primitive",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
_DEVICE_MARKS = ("CUDA error:", "CUDNN_STATUS_EXECUTION_FAILED", "CUBLAS_STATUS_EXECUTION_FAILED")


def is_out_of_memory(error: BaseException) -> bool:
    """Tell memory exhaustion, of a device or of the machine, from every other failure.

    torch raises ``OutOfMemoryError`` from its CUDA allocator, a bare ``RuntimeError`` from the one of the CPU, and an
    ``AcceleratorError`` when the driver itself has no memory left; the latter does not break the context. oneDNN says
    only that it could not create a primitive: what it was to compute ran in the warm-up, so it is memory that lacks.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(mark in str(error) for mark in _MEMORY_MARKS)


def is_device_failure(error: BaseException) -> bool:
    """Tell a CUDA context that is lost: every later call fails too, until the process is restarted."""
    if is_out_of_memory(error):
        return False
    if isinstance(error, torch.AcceleratorError):
        return True
    return isinstance(error, RuntimeError) and any(mark in str(error) for mark in _DEVICE_MARKS)


def free_memory() -> None:
    """Give back what nobody uses. Call it where the failed work's exception is gone: its frames hold tensors."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
