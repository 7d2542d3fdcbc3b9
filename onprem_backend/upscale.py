"""Pictures at four times their size with Real-ESRGAN (Wang et al., 2021), tile by tile, so that any size fits
memory."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import torch

from onprem_backend.edges import spread_colours
from onprem_backend.images import Picture, Pixels
from onprem_backend.ncnn import load_ncnn_weights
from onprem_backend.runtime import Interruptible, Runtime, check_finite
from onprem_backend.sessions import Job, MakeSession, Result

SCALE = 4


@dataclass(frozen=True, slots=True)
class Tiling:
    """``side_px`` of a tile's own pixels, with ``overlap_px`` of its neighbours around it as context."""

    side_px: int
    overlap_px: int


# 18 convolutions of 3x3 see 18 pixels far, so with 18 of context a tile comes out as it would within the whole picture.
SMALL_TILING = Tiling(side_px=192, overlap_px=18)
LARGE_TILING = Tiling(side_px=128, overlap_px=32)


Upscaler = Callable[[torch.Tensor], torch.Tensor]
"""From ``(1, 3, H, W)`` in 0..1 to ``(1, 3, 4H, 4W)``."""


def load_small(runtime: Runtime) -> MakeSession:
    """Load realesr-animevideov3-x4 into sessions."""
    return _sessions(small_network(runtime), SMALL_TILING, runtime)


def small_network(runtime: Runtime) -> torch.nn.Module:
    """Load realesr-animevideov3-x4: 16 convolutions of 64 features between a first and a last one."""
    network = _architecture("Compact").Compact(num_feat=64, num_conv=16, upscale=SCALE)
    load_ncnn_weights(runtime.models_dir / "realesr-animevideov3-x4.bin", network)
    placed: torch.nn.Module = runtime.place(network)
    return placed


def load_x4plus(runtime: Runtime) -> MakeSession:
    """Load realesrgan-x4plus, in half precision as ncnn files have it, into sessions: 23 residual-in-residual dense
    blocks, 16.7 million weights."""
    network = _architecture("ESRGAN").ESRGAN(num_filters=64, num_blocks=23, scale=SCALE)
    load_ncnn_weights(runtime.models_dir / "realesrgan-x4plus.bin", network)
    return _sessions(runtime.place(network), LARGE_TILING, runtime)


def load_x4plus_pth(runtime: Runtime) -> MakeSession:
    """Load RealESRGAN_x4plus.pth, the original in single precision, into sessions. Only a state dict is read."""
    weights = torch.load(runtime.models_dir / "RealESRGAN_x4plus.pth", map_location="cpu", weights_only=True)
    weights = weights["params_ema" if "params_ema" in weights else "params"]
    network = _architecture("ESRGAN").ESRGANArch().load(weights).model
    return _sessions(runtime.place(network), LARGE_TILING, runtime)


def _architecture(name: str) -> Any:
    """Import one of spandrel's network definitions; they carry no types."""
    return importlib.import_module(f"spandrel.architectures.{name}")


def _sessions(network: torch.nn.Module, tiling: Tiling, runtime: Runtime) -> MakeSession:
    called: Upscaler = runtime.compiled(network)
    if runtime.compile:
        return lambda: lambda job: upscale(job, called, tiling, runtime)
    interruptible = Interruptible(network)

    def session(job: Job) -> Result:
        with interruptible.until(job.stop):
            return upscale(job, called, tiling, runtime)

    return lambda: session


def upscale(job: Job, network: Upscaler, tiling: Tiling, runtime: Runtime) -> Result:
    """Return the picture at four times its width and height; alpha is enlarged with a cubic filter. A frugal job is
    done in tiles of half the side."""
    picture = job.picture
    source = spread_colours(picture)
    height, width = source.shape[:2]
    side_px = tiling.side_px // 2 if job.frugal else tiling.side_px
    target = np.empty((height * SCALE, width * SCALE, 3), dtype=np.uint8)
    for rows, columns in _tiles(height, width, side_px):
        job.check_stop()
        _fill_tile(source, target, (rows, columns), network, tiling.overlap_px, runtime)
    alpha = picture.alpha
    if alpha is not None:
        size = (width * SCALE, height * SCALE)
        alpha = np.asarray(cv2.resize(alpha, size, interpolation=cv2.INTER_CUBIC), dtype=np.uint8)
    return Result(Picture(target, alpha, picture.format, picture.frames))


def _tiles(height: int, width: int, side: int) -> Iterator[tuple[slice, slice]]:
    for top in range(0, height, side):
        for left in range(0, width, side):
            yield slice(top, min(top + side, height)), slice(left, min(left + side, width))


def _fill_tile(
    source: Pixels,
    target: Pixels,
    tile: tuple[slice, slice],
    network: Upscaler,
    overlap: int,
    runtime: Runtime,
) -> None:
    """Compute one tile with its context and write its own part into ``target``."""
    rows, columns = tile
    top, left = max(0, rows.start - overlap), max(0, columns.start - overlap)
    piece = np.ascontiguousarray(source[top : rows.stop + overlap, left : columns.stop + overlap])
    with torch.inference_mode():
        batch = torch.from_numpy(piece).to(runtime.device).permute(2, 0, 1)[None].to(runtime.dtype).div(255)
        output = check_finite(network(runtime.arranged(batch))[0].float())
        pixels = output.permute(1, 2, 0).mul(255).round().clamp(0, 255).to(torch.uint8).cpu().numpy()
    own_rows = slice((rows.start - top) * SCALE, (rows.stop - top) * SCALE)
    own_columns = slice((columns.start - left) * SCALE, (columns.stop - left) * SCALE)
    target[rows.start * SCALE : rows.stop * SCALE, columns.start * SCALE : columns.stop * SCALE] = pixels[
        own_rows, own_columns
    ]
