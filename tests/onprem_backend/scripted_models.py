"""A model whose behaviour the first pixel of the picture commands: a fake that runs inside the real server."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from numpy.typing import NDArray

from onprem_backend.catalog import ModelSpec
from onprem_backend.images import Picture, Pixels
from onprem_backend.problems import Problem, Stopped
from onprem_backend.runtime import Runtime
from onprem_backend.sessions import BatchModel, Job, MakeSession, Prepared, Result

OBEY, OUT_OF_MEMORY, FAIL, HANG, NO_FACE, BREAK_DEVICE, NEED_FRUGALITY, OVERFLOW, SURPRISE = range(0, 90, 10)
FRUGAL_SPEC = ModelSpec("scripted", "face-blur", (), "tests.onprem_backend.scripted_models:load_scripted", frugal=True)
BATCH_SPEC = ModelSpec("scripted", "face-blur", (), "tests.onprem_backend.scripted_models:load_batch", cpu_batch=4)
SPEC = ModelSpec("scripted", "face-blur", (), "tests.onprem_backend.scripted_models:load_scripted")
PARTICULAR_SPEC = ModelSpec("particular", "restore", (), "tests.onprem_backend.scripted_models:load_particular")
BROKEN_SPEC = ModelSpec("broken", "erase", (), "tests.onprem_backend.scripted_models:load_broken")


def command_picture(command: int) -> Pixels:
    """A picture that gives a command."""
    return np.full((8, 8, 3), command, dtype=np.uint8)


def load_scripted(runtime: Runtime) -> MakeSession:
    """Sessions that number themselves in ``X-Session``; the first one is used up by the warm-up."""
    numbers = itertools.count()
    return lambda: _Scripted(next(numbers))


def load_particular(runtime: Runtime) -> MakeSession:
    """Sessions that find no face in any picture, the warm-up's included."""

    def refuse(job: Job) -> Result:
        raise Problem("no_face_found", "none")

    return lambda: refuse


def load_broken(runtime: Runtime) -> MakeSession:
    raise OSError("weights are unreadable")


def load_batch(runtime: Runtime) -> BatchModel:
    """A network that answers with each picture's first value, and obeys the worst command in its batch."""

    def run(tensors: NDArray[np.float32]) -> list[NDArray[np.float32]]:
        commands = {int(value) for value in tensors[:, 0, 0, 0]}
        if FAIL in commands:
            raise RuntimeError("sizes of tensors must match")
        if OUT_OF_MEMORY in commands and len(tensors) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if BREAK_DEVICE in commands:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        return [np.where(tensors[:, 0, 0, 0] == OVERFLOW, np.float32(np.nan), tensors[:, 0, 0, 0])]

    def prepare(job: Job) -> Prepared:
        tensor = job.picture.rgb.transpose(2, 0, 1).astype(np.float32)
        result = Result(Picture(job.picture.rgb))
        return Prepared(tensor, lambda outputs: result)

    return BatchModel(run, prepare)


class _Scripted:
    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, job: Job) -> Result:
        command = int(job.picture.rgb[0, 0, 0])
        if command == OUT_OF_MEMORY:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        if command == FAIL:
            raise RuntimeError("sizes of tensors must match")
        if command == NO_FACE:
            raise Problem("no_face_found", "none")
        if command == NEED_FRUGALITY and not job.frugal:
            # What the allocator of the CPU raises, word for word.
            raise RuntimeError(
                "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory: you tried "
                "to allocate 4000000000000 bytes. Error code 12 (Cannot allocate memory)"
            )
        if command == BREAK_DEVICE:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        if command == SURPRISE:
            return Result(Picture(np.empty((0, 0, 3), dtype=np.uint8)))
        if command == HANG:
            assert job.stop.wait(30)
            raise Stopped
        return Result(Picture(job.picture.rgb), headers={"X-Session": str(self._number)})
