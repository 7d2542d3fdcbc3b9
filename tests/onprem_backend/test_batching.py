"""Which tensors meet in a run, and that nobody's answer depends on whom they met."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from onprem_backend.batching import Batcher
from onprem_backend.cutout import load_u2netp
from onprem_backend.faces import load_centerface
from onprem_backend.images import Picture
from onprem_backend.labels import classifier, load_efficientnet, normalise_imagenet
from onprem_backend.pool import SessionPool
from onprem_backend.problems import Problem
from onprem_backend.runtime import Runtime
from onprem_backend.sessions import BatchModel, Job
from onprem_backend.workers import Reclaimer
from tests.onprem_backend.pictures import SAMPLES, noise

pytestmark = pytest.mark.anyio

Tensor = NDArray[np.float32]
# By this much of the network's largest output an answer may differ between alone and in a batch, where sums are taken
# in another order. One step of an 8-bit alpha is forty times as much.
TOLERANCE = 1e-4


class Network:
    """Doubles its input; keeps the sizes of its batches; may wait at a gate, and fails on tensors that hold a -1."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()
        self.error: Callable[[int], Exception | None] = lambda size: None

    def __call__(self, tensors: Tensor) -> list[Tensor]:
        self.sizes.append(len(tensors))
        self.started.set()
        assert self.gate.wait(30)
        if tensors.min() < 0:
            error = self.error(len(tensors))
            if error is not None:
                raise error
        return [tensors * 2, tensors.sum(axis=(1, 2, 3))]


@asynccontextmanager
async def batching(network: Network, *, max_batch: int = 4, delay_s: float = 5.0) -> AsyncIterator[Batcher]:
    pool: SessionPool[Any] = SessionPool("p", lambda: network, size=1, max_waiting=8, wait_s=10, timeout_s=10)
    reclaim = Reclaimer()
    batcher = Batcher(pool, max_batch=max_batch, delay_s=delay_s, reclaim=reclaim)
    try:
        yield batcher
        assert pool.idle == 1
    finally:
        await batcher.aclose()
        pool.close()
        reclaim.close()
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "batch-p"]


def tensor(value: float, side: int = 2) -> Tensor:
    return np.full((3, side, side), value, dtype=np.float32)


async def answers(batcher: Batcher, *tensors: Tensor) -> list[Any]:
    return await asyncio.gather(*(batcher.run(one) for one in tensors), return_exceptions=True)


async def test_a_full_batch_runs_at_once_and_each_caller_gets_its_own_part() -> None:
    network = Network()
    async with batching(network, delay_s=60) as batcher:
        timed = await answers(batcher, *(tensor(value) for value in range(8)))
    assert network.sizes == [4, 4]
    for value, one in enumerate(timed):
        assert np.array_equal(one.value[0], tensor(value * 2))
        assert one.value[1] == value * 12


async def test_a_lonely_tensor_waits_until_the_deadline_and_no_longer() -> None:
    network = Network()
    async with batching(network, delay_s=0.05) as batcher:
        (timed,) = await answers(batcher, tensor(1))
    assert network.sizes == [1]
    assert 0.04 < timed.queue_s < 20


async def test_a_batch_grows_while_every_session_computes() -> None:
    network = Network()
    network.gate.clear()
    async with batching(network, max_batch=8, delay_s=0.0) as batcher:
        first = asyncio.create_task(batcher.run(tensor(0)))
        await asyncio.to_thread(network.started.wait, 30)
        rest = [asyncio.create_task(batcher.run(tensor(value))) for value in range(5)]
        await asyncio.sleep(0)
        network.gate.set()
        await asyncio.gather(first, *rest)
    assert network.sizes == [1, 5]


async def test_only_tensors_of_one_shape_meet() -> None:
    network = Network()
    async with batching(network, delay_s=0.01) as batcher:
        timed = await answers(batcher, tensor(1, 2), tensor(2, 3), tensor(3, 2), tensor(4, 3))
    assert sorted(network.sizes) == [2, 2]
    assert [one.value[0].shape[1] for one in timed] == [2, 3, 2, 3]


async def test_memory_that_runs_out_is_tried_once_more_in_halves() -> None:
    network = Network()
    network.error = lambda size: torch.OutOfMemoryError("CUDA out of memory") if size > 2 else None
    async with batching(network, delay_s=60) as batcher:
        timed = await answers(batcher, *(tensor(-1) for _ in range(4)))
        assert network.sizes == [4, 2, 2]
        assert all(one.value[1] == -12 for one in timed)
        network.error = lambda size: torch.OutOfMemoryError("CUDA out of memory")
        failed = await answers(batcher, tensor(-1), tensor(1), tensor(2), tensor(3))
    assert network.sizes[3:] == [4, 2, 2]
    assert [isinstance(one, torch.OutOfMemoryError) for one in failed] == [True, True, False, False]


async def test_one_bad_picture_fails_alone() -> None:
    network = Network()
    network.error = lambda size: RuntimeError("sizes of tensors must match")
    async with batching(network, delay_s=60) as batcher:
        timed = await answers(batcher, tensor(1), tensor(2), tensor(-1), tensor(3))
    assert network.sizes == [4, 1, 1, 1, 1]
    assert isinstance(timed[2], RuntimeError)
    assert [one.value[1] for one in timed if not isinstance(one, Exception)] == [12, 24, 36]


async def test_a_lost_device_is_not_tried_again() -> None:
    network = Network()
    network.error = lambda size: torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    async with batching(network, delay_s=60) as batcher:
        failed = await answers(batcher, tensor(1), tensor(2), tensor(-1), tensor(3))
    assert network.sizes == [4]
    assert all(isinstance(one, torch.AcceleratorError) for one in failed)


async def test_a_cancelled_caller_leaves_its_batch() -> None:
    network = Network()
    network.gate.clear()
    async with batching(network, max_batch=2, delay_s=0.0) as batcher:
        first = asyncio.create_task(batcher.run(tensor(0)))
        await asyncio.to_thread(network.started.wait, 30)
        second, third = (asyncio.create_task(batcher.run(tensor(value))) for value in (1, 2))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        network.gate.set()
        await asyncio.gather(first, third)
    assert network.sizes == [1, 1]


async def test_nobody_is_left_waiting_when_a_batcher_is_closed() -> None:
    network = Network()
    network.gate.clear()
    pool: SessionPool[Any] = SessionPool("p", lambda: network, size=1, max_waiting=8, wait_s=10, timeout_s=10)
    reclaim = Reclaimer()
    batcher = Batcher(pool, max_batch=1, delay_s=0.0, reclaim=reclaim)
    callers = [asyncio.create_task(batcher.run(tensor(value))) for value in range(3)]
    await asyncio.to_thread(network.started.wait, 30)
    await batcher.aclose()
    failed = await asyncio.gather(*callers, return_exceptions=True)
    assert [one.code for one in failed if isinstance(one, Problem)] == ["model_unloaded"] * 3
    network.gate.set()
    pool.close()
    reclaim.close()


def resnet18(runtime: Runtime) -> BatchModel:
    """torchvision's network with random weights."""
    import torchvision

    torch.manual_seed(5)
    network = runtime.network(runtime.place(torchvision.models.resnet18(weights=None)))
    from PIL import Image

    return classifier(network, [str(n) for n in range(1000)], normalise_imagenet, Image.Resampling.BILINEAR)


@pytest.mark.parametrize("load", [load_efficientnet, resnet18, load_u2netp, load_centerface])
def test_a_batch_answers_as_single_runs_do(
    make_runtime: Callable[[str], Runtime], load: Callable[[Runtime], BatchModel]
) -> None:
    model = load(make_runtime("torch"))
    samples = (SAMPLES.astronaut()[:200, :200], SAMPLES.coffee()[:200, :200], noise(200, 200))
    tensors = [model.prepare(Job(Picture(pixels))).tensor for pixels in samples]
    together = model.network(np.stack(tensors))
    for index, one in enumerate(tensors):
        for output, alone in zip(together, model.network(one[None]), strict=True):
            assert np.abs(output[index] - alone[0]).max() <= TOLERANCE * max(1.0, np.abs(alone).max())
