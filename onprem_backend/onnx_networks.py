"""ONNX files as plain functions on numpy arrays, on torch or on onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from onprem_backend.runtime import Network, Runtime


def load_network(path: Path, runtime: Runtime, *, fixed_shape: tuple[int, int, int, int] | None) -> Network:
    """Load an ONNX file. ``fixed_shape`` is the only input shape it will see apart from the batch, which is free;
    ``None`` when height and width vary."""
    if runtime.engine == "onnxruntime":
        return _load_onnxruntime(path, runtime)
    return _load_torch(path, runtime, fixed_shape)


def _load_torch(path: Path, runtime: Runtime, fixed_shape: tuple[int, int, int, int] | None) -> Network:
    import onnx2torch

    module: Any = runtime.place(onnx2torch.convert(str(path)))
    if fixed_shape is None:
        return runtime.network(module)
    frozen = _freeze(module, runtime.tensor(np.zeros(fixed_shape, dtype=np.float32)))
    return replace(runtime, compile="").network(frozen)


def _freeze(module: torch.nn.Module, example: torch.Tensor) -> Any:
    """Trace for one shape, so that the shape arithmetic of the graph (half of u2netp's nodes) is done once and for
    all."""
    with warnings.catch_warnings(), torch.inference_mode():
        # That shapes become constants is the purpose here, and onnx2torch's slicing warns about its own index lists.
        warnings.simplefilter("ignore")
        traced: Any = torch.jit.trace(module, example, check_trace=False)  # type: ignore[no-untyped-call]
        return torch.jit.freeze(traced)


def _load_onnxruntime(path: Path, runtime: Runtime) -> Network:
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = runtime.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Spinning threads would take the cores that other sessions compute on.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    available = onnxruntime.get_available_providers()
    wanted = (
        ["CUDAExecutionProvider", "CPUExecutionProvider"] if runtime.device.type == "cuda" else ["CPUExecutionProvider"]
    )
    if wanted[0] not in available:
        raise RuntimeError(f"{wanted[0]} is not available in this onnxruntime, only {', '.join(available)}")
    model = onnx.load(str(path))
    _free_dimensions(model.graph)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=wanted)
    name = session.get_inputs()[0].name

    def run(array: NDArray[np.float32]) -> Sequence[NDArray[np.float32]]:
        outputs: Sequence[NDArray[np.float32]] = session.run(None, {name: array})
        return outputs

    return run


def _free_dimensions(graph: Any) -> None:
    """Let batch, height and width of inputs and outputs vary (both files were exported with fixed ones)."""
    for value in (*graph.input, *graph.output):
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            if axis != 1:
                dimension.dim_param = f"{value.name}_{axis}"
