"""Erasing: what a mask marks is filled from its surroundings. Every pixel outside the mask keeps its value, to the
bit."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from onprem_backend.images import Picture, Pixels
from onprem_backend.problems import Problem
from onprem_backend.runtime import Runtime, check_finite
from onprem_backend.sessions import Job, MakeSession, Result

Fill = Callable[[Pixels, NDArray[np.bool_]], Pixels]
"""From ``(H, W, 3)`` sRGB and ``(H, W)`` mask to a picture of the same shape; only its masked pixels are used."""

_RADIUS_PX = 3
_MARGIN_PX = 32
_LAMA_ALIGN_PX = 8


def load_telea(runtime: Runtime) -> MakeSession:
    """Return sessions that fill with OpenCV's fast marching method (Telea, 2004). Needs no file."""
    return lambda: lambda job: erase(job, fill_telea)


def load_lama(runtime: Runtime) -> MakeSession:
    """Load big-lama as TorchScript (Suvorov et al., 2022)."""
    path = str(runtime.models_dir / "big-lama.pt")
    module = torch.jit.load(path, map_location=runtime.device).eval()  # type: ignore[no-untyped-call]
    return lambda: lambda job: erase(job, lambda rgb, mask: fill_lama(rgb, mask, module, runtime.device))


def erase(job: Job, fill: Fill) -> Result:
    """Fill what the mask marks; alpha stays. Raises ``Problem("mask_covers_everything")``: there is nothing to fill
    from."""
    picture, mask = job.picture, job.mask
    if mask is None:
        raise ValueError("erase needs a mask")
    if mask.all():
        raise Problem("mask_covers_everything", "the mask marks every pixel, so nothing is left to fill from")
    rgb = picture.rgb
    if mask.any():
        rgb = rgb.copy()
        rgb[mask] = fill(picture.visible(), mask)[mask]
    return Result(Picture(rgb, picture.alpha, picture.format, picture.frames), unchanged=not mask.any())


def fill_telea(rgb: Pixels, mask: NDArray[np.bool_]) -> Pixels:
    """Fill with Telea's method, looking only at the mask's surroundings."""
    rows, columns = np.nonzero(mask.any(axis=1))[0], np.nonzero(mask.any(axis=0))[0]
    window = (
        slice(max(0, int(rows[0]) - _MARGIN_PX), int(rows[-1]) + 1 + _MARGIN_PX),
        slice(max(0, int(columns[0]) - _MARGIN_PX), int(columns[-1]) + 1 + _MARGIN_PX),
    )
    result = rgb.copy()
    part = np.ascontiguousarray(rgb[window])
    result[window] = cv2.inpaint(part, mask[window].astype(np.uint8), _RADIUS_PX, cv2.INPAINT_TELEA)
    return result


def fill_lama(
    rgb: Pixels, mask: NDArray[np.bool_], module: Callable[..., torch.Tensor], device: torch.device
) -> Pixels:
    """Fill with LaMa: picture ``(1, 3, H, W)`` and mask ``(1, 1, H, W)`` in 0..1, both sides padded to multiples of
    8."""
    height, width = mask.shape
    pad = ((0, -height % _LAMA_ALIGN_PX), (0, -width % _LAMA_ALIGN_PX))
    image = np.pad(rgb, (*pad, (0, 0)), mode="symmetric").astype(np.float32).transpose(2, 0, 1)[None] / 255
    marked = np.pad(mask, pad, mode="symmetric").astype(np.float32)[None, None]
    with torch.inference_mode():
        filled = module(torch.from_numpy(image).to(device), torch.from_numpy(marked).to(device))
        pixels = check_finite(filled)[0, :, :height, :width].permute(1, 2, 0).mul(255).round().clamp(0, 255)
        return np.asarray(pixels.to(torch.uint8).cpu().numpy())
