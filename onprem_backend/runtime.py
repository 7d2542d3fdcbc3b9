"""Where and how models run: device, precision, memory layout."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from onprem_backend.problems import Stopped

Network = Callable[[NDArray[np.float32]], Sequence[NDArray[np.float32]]]
"""From ``(N, 3, H, W) float32`` to the network's outputs, each with the batch first. Safe to call from several
threads."""

M = TypeVar("M", bound=torch.nn.Module)

_log = logging.getLogger("onprem_backend")
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class Runtime:
    """Where and how models run. ``engine`` is ``torch`` or ``onnxruntime``, for the models that are ONNX;
    ``precision`` is what a model that can do with less than ``fp32`` computes in."""

    models_dir: Path
    device: torch.device
    engine: str
    threads: int
    detect_side_px: int
    precision: str = "fp32"
    channels_last: bool = True
    compile: str = ""

    @property
    def dtype(self) -> torch.dtype:
        """The type that weights and activations have."""
        return _DTYPES[self.precision]

    def place(self, module: M) -> M:
        """Return ``module`` ready for inference on this device, in this precision and layout."""
        placed: Any = module.eval().to(self.device, self.dtype)
        return placed.to(memory_format=self._layout) if self.channels_last else placed  # type: ignore[no-any-return]

    def compiled(self, module: torch.nn.Module) -> Any:
        """Return ``module``, through ``torch.compile`` when a backend of it is asked for."""
        return torch.compile(module, backend=self.compile) if self.compile else module

    def network(self, module: torch.nn.Module) -> Network:
        """Return a placed module as a function on arrays; compiled when that is asked for."""
        called = self.compiled(module)

        def run(array: NDArray[np.float32]) -> Sequence[NDArray[np.float32]]:
            with torch.inference_mode():
                outputs = called(self.tensor(array))
                outputs = outputs if isinstance(outputs, tuple | list) else (outputs,)
                return [output.float().cpu().numpy() for output in outputs]

        return run

    def tensor(self, array: NDArray[np.float32]) -> torch.Tensor:
        """Move ``(N, C, H, W)`` values to the device."""
        return torch.from_numpy(array).to(self.device, self.dtype, memory_format=self._layout)

    def arranged(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor in this runtime's memory layout."""
        return tensor.contiguous(memory_format=self._layout)

    @property
    def _layout(self) -> torch.memory_format:
        return torch.channels_last if self.channels_last else torch.contiguous_format


def check_finite(output: torch.Tensor) -> torch.Tensor:
    """Return a network's output. Raises ``FloatingPointError`` when it is not finite (see ``sessions.Prepared``)."""
    if not torch.isfinite(output).all():
        raise FloatingPointError("the network's output is not finite")
    return output


class Interruptible:
    """A network that gives up between two layers once nobody waits: on a CPU one run of a large one takes seconds.

    The layers are shared by all sessions, so each thread has its own event. Layers of a traced or compiled network are
    not looked at.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._running = threading.local()
        for layer in module.modules():
            if isinstance(layer, torch.nn.Conv2d):
                layer.register_forward_pre_hook(self._check)

    @contextmanager
    def until(self, stop: threading.Event) -> Iterator[None]:
        """Let what this thread runs within the ``with`` block raise ``Stopped`` once ``stop`` is set."""
        self._running.stop = stop
        try:
            yield
        finally:
            self._running.stop = None

    def _check(self, layer: torch.nn.Module, inputs: object) -> None:
        stop: threading.Event | None = getattr(self._running, "stop", None)
        if stop is not None and stop.is_set():
            raise Stopped


def resolve_device(name: str, *, allow_cpu_fallback: bool = False) -> torch.device:
    """Return the device to compute on.

    ``auto`` prefers CUDA and says in the log when there is none. Any other name has to exist: a CUDA device that is
    not there raises ``RuntimeError``, or, where the fallback is allowed, is replaced by the CPU with an error in the
    log.
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        _log.warning("no CUDA device: models run on the CPU")
        return torch.device("cpu")
    device = torch.device(name)
    if device.type != "cuda" or (device.index or 0) < torch.cuda.device_count():
        return device
    missing = f"device {name!r} was asked for, but torch {torch.__version__} sees no CUDA device of that number"
    if not allow_cpu_fallback:
        raise RuntimeError(missing)
    _log.error("%s: FALLING BACK TO THE CPU, as allow_cpu_fallback permits", missing)
    return torch.device("cpu")
