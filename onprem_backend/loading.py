"""From a model's description to a model that can serve: its files checked, its weights loaded, warmed up.

Everything here blocks and runs in the loading thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

from onprem_backend.batching import Batcher
from onprem_backend.catalog import ModelSpec
from onprem_backend.failures import free_memory
from onprem_backend.images import Picture
from onprem_backend.manifest import ModelFile, model_status
from onprem_backend.metrics import Metrics
from onprem_backend.pool import SessionPool
from onprem_backend.problems import Problem
from onprem_backend.runtime import Runtime, resolve_device
from onprem_backend.sessions import BatchModel, Job, MakeSession, Session
from onprem_backend.settings import Settings
from onprem_backend.torchvision_mend import mend
from onprem_backend.turnstile import Turnstile
from onprem_backend.workers import Reclaimer

_log = logging.getLogger("onprem_backend")
_WARM_UP_PX = 16
_WARM_UP_RUNS = 2


@dataclass(frozen=True, slots=True)
class Loaded:
    """A ready model. ``pictures`` limits how many decoded pictures wait for it or come from it at the same time.
    ``batch`` and ``batcher`` belong to a batch model; ``pool`` then holds its network. ``memory_bytes`` is what the
    device (on a CPU the process) held more after loading than before."""

    label: str
    pool: SessionPool[Any]
    pictures: Turnstile[int]
    load_s: float
    precision: str = "fp32"
    memory_bytes: int = 0
    batch: BatchModel | None = None
    batcher: Batcher | None = None

    async def aclose(self) -> None:
        """Lend no more sessions; threads end as their work ends."""
        if self.batcher is not None:
            await self.batcher.aclose()
        self.pool.close()


class Unavailable(Exception):
    """A model that cannot be loaded. ``state`` is ``missing`` (no weight file) or ``unusable`` (the wrong file)."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state = state


def prepare_runtime(settings: Settings) -> Runtime:
    """Find the device and set torch up. Raises ``RuntimeError`` when the device is not there, ``ValueError`` for a
    precision that it cannot compute in."""
    device = resolve_device(settings.device, allow_cpu_fallback=settings.allow_cpu_fallback)
    if device.type == "cpu" and settings.precision == "fp16":
        raise ValueError("fp16 is far slower than fp32 on a CPU; use fp32 or bf16 there")
    torch.set_num_threads(settings.threads)
    cv2.setNumThreads(settings.threads)
    mend()
    return Runtime(
        settings.models_dir,
        device,
        settings.engine,
        settings.threads,
        settings.detect_side_px,
        settings.precision,
        settings.channels_last,
        settings.compile,
    )


class Loader:
    """Loads the models of one server."""

    def __init__(
        self, settings: Settings, manifest: Mapping[str, ModelFile], metrics: Metrics, reclaim: Reclaimer
    ) -> None:
        self._settings = settings
        self._manifest = manifest
        self._metrics = metrics
        self._reclaim = reclaim

    def load(self, spec: ModelSpec, engine: str, runtime: Runtime) -> Loaded:
        """Load one model and run it. Raises ``Unavailable``, and whatever loading raises."""
        began = time.perf_counter()
        before = used_memory_bytes(runtime.device)
        for name in spec.weights:
            status = model_status(self._manifest[name], self._settings.models_dir)
            if status.state == "missing":
                raise Unavailable("missing", f"{status.path.name} is not in the models folder")
            if status.state != "installed":
                raise Unavailable("unusable", f"{status.path.name} is not the pinned file")
        may_half = spec.half and engine == "torch"
        runtime = runtime if may_half else replace(runtime, precision="fp32")
        model = spec.load(runtime)
        max_batch = self._settings.max_batch_for(spec.feature, self._usual_batch(spec, runtime))
        if isinstance(model, BatchModel):
            pool = self._network_pool(spec, model, max_batch)
        else:
            pool, max_batch = self._session_pool(spec, model), 1
        batcher = self._batcher(spec, pool, max_batch) if isinstance(model, BatchModel) else None
        label = f"{spec.name}@{self._version(spec)} {engine}"
        if runtime.precision != "fp32":
            label += f" {runtime.precision}"  # another build: its answers differ
        load_s = time.perf_counter() - began
        _log.info("%s on %s, ready after %.2f s", label, runtime.device, load_s)
        free_memory()
        grown = max(0, used_memory_bytes(runtime.device) - before)
        batch = model if isinstance(model, BatchModel) else None
        places = self._pictures(spec, max_batch)
        return Loaded(label, pool, places, load_s, runtime.precision, grown, batch, batcher)

    @staticmethod
    def _usual_batch(spec: ModelSpec, runtime: Runtime) -> int:
        return spec.cuda_batch if runtime.device.type == "cuda" else spec.cpu_batch

    def _session_pool(self, spec: ModelSpec, make: MakeSession) -> SessionPool[Session]:
        pool = SessionPool(spec.name, make, **self._pool_settings(spec))
        pool.warm_up(_run_warm_up, times=1)
        return pool

    def _network_pool(self, spec: ModelSpec, model: BatchModel, max_batch: int) -> SessionPool[Any]:
        """The network runs alone and in a full batch, since each has its own plan on a GPU; twice, since TorchScript
        optimises in its second run."""
        pool = SessionPool(spec.name, lambda: model.network, **self._pool_settings(spec))
        prepared = model.prepare(_warm_up_job(threading.Event()))
        for size in sorted({1, max_batch}):
            tensors = np.stack([prepared.tensor] * size)
            for _ in range(_WARM_UP_RUNS):
                outputs = model.network(tensors)
        prepared.result([output[0] for output in outputs])
        return pool

    def _batcher(self, spec: ModelSpec, pool: SessionPool[Any], max_batch: int) -> Batcher:
        return Batcher(
            pool,
            max_batch=max_batch,
            delay_s=self._settings.batch_delay_s,
            reclaim=self._reclaim,
            on_batch=self._metrics.batch_size.labels(spec.name).observe,
            on_retry=lambda reason: self._metrics.retries.labels(spec.name, reason).inc(),
        )

    def _pool_settings(self, spec: ModelSpec) -> dict[str, Any]:
        settings = self._settings
        return {
            "size": settings.pool_size_for(spec.feature),
            "max_waiting": settings.max_waiting,
            "wait_s": settings.wait_s,
            "timeout_s": settings.inference_timeout_s,
        }

    def _pictures(self, spec: ModelSpec, max_batch: int) -> Turnstile[int]:
        """Enough to fill a batch per session, and one more, so that the next picture is decoded while all compute."""
        settings = self._settings
        places = range(settings.pool_size_for(spec.feature) * max_batch + 1)
        return Turnstile(
            spec.name, places, max_waiting=settings.max_waiting, wait_s=settings.wait_s, clock=time.perf_counter
        )

    def _version(self, spec: ModelSpec) -> str:
        return self._manifest[spec.weights[0]].sha256[:8] if spec.weights else str(cv2.__version__)


def used_memory_bytes(device: torch.device) -> int:
    """Return what torch holds on a CUDA device, or the process in all."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def _run_warm_up(session: Session, stop: threading.Event) -> None:
    with suppress(Problem):  # a verdict about the picture, such as that it has no face, is not a failure
        session(_warm_up_job(stop))


def _warm_up_job(stop: threading.Event) -> Job:
    ramp = np.linspace(0, 255, _WARM_UP_PX * _WARM_UP_PX * 3).reshape(_WARM_UP_PX, _WARM_UP_PX, 3).astype(np.uint8)
    mask = np.zeros((_WARM_UP_PX, _WARM_UP_PX), dtype=np.bool_)
    mask[4:8, 4:8] = True
    return Job(Picture(ramp), mask, {"mode": "blur"}, stop)
