"""Named numbers of two pictures of one size. One SSIM map gives the global score and the tiles.

Global scores miss what matters (a blurred face leaves SSIM at .98), so the worst 32 x 32 tile is what bands look at.
Work goes in strips: besides the two pictures, memory is two planes of float32 (the error and the SSIM map), 8 bytes for
each pixel, and what a strip takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter
from skimage.metrics import structural_similarity

from compare.kernels.pixels import Pixels

TILE = 32
PATCH = 8
WINDOW = 11  # of a Gaussian with sigma 1.5 truncated at 3.5 sigma
_BORDER = (WINDOW - 1) // 2
_STRIP_PIXELS = 1_500_000
Plane = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Scores:
    """Decibels of PSNR, levels of error, SSIM. The SSIM numbers are ``None`` where a side is below the 11 pixel
    window, or where they were not asked for."""

    psnr_db: float
    tile_mae: float
    tile_bias: float
    patch_mae: float
    ssim: float | None
    tile_ssim: float | None
    worst_tile: tuple[int, int]


def psnr_db(a: Pixels, b: Pixels) -> float:
    """Return the peak signal-to-noise ratio over all channels, infinite for equal pictures."""
    error = sum(float(np.square(_gap(x, y), dtype=np.float64).sum()) for x, y in _strips(a, b)) / max(1, a.size)
    return math.inf if error == 0 else 10 * math.log10(255.0**2 / error)


def _gap(a: Pixels, b: Pixels) -> Plane:
    return a.astype(np.float32) - b


def _strips(a: Pixels, b: Pixels, margin: int = 0) -> Iterator[tuple[Pixels, Pixels]]:
    rows = max(TILE, _STRIP_PIXELS // max(1, a.shape[1]))
    for top in range(0, a.shape[0], rows):
        window = slice(max(0, top - margin), top + rows + margin)
        yield a[window], b[window]


def error_map(a: Pixels, b: Pixels) -> Plane:
    """Return the mean absolute difference over the channels, ``(H, W)`` float32 in levels."""
    return np.concatenate([np.abs(_gap(x, y)).mean(axis=-1) for x, y in _strips(a, b)])


def tile_means(plane: Plane, tile: int = TILE) -> tuple[Plane, list[int], list[int]]:
    """Return the mean of every tile with the tiles' top and left offsets.

    The last row and column of tiles end at the picture's edge, so that no sliver of a tile decides. Extra memory is a
    row of tiles, never a copy of the plane.
    """
    tops, lefts = _starts(plane.shape[0], tile), _starts(plane.shape[1], tile)
    x0 = np.array(lefts)
    x1 = np.minimum(x0 + tile, plane.shape[1])
    means = np.empty((len(tops), len(lefts)), dtype=np.float32)
    for row, top in enumerate(tops):
        band = plane[top : top + tile]
        total = np.concatenate([[0.0], np.cumsum(band.sum(axis=0, dtype=np.float64))])
        means[row] = (total[x1] - total[x0]) / ((x1 - x0) * band.shape[0])
    return means, tops, lefts


def _starts(length: int, tile: int) -> list[int]:
    starts = list(range(0, max(1, length - tile + 1), tile))
    if starts[-1] + tile < length:
        starts.append(length - tile)
    return starts


def ssim_map(a: Pixels, b: Pixels) -> Plane | None:
    """Return the Gaussian SSIM map, mean over channels, ``(H, W)``; ``None`` where a side is shorter than the
    window."""
    if min(a.shape[:2]) < WINDOW:
        return None
    rows = max(2 * TILE, _STRIP_PIXELS // a.shape[1])
    parts: list[Plane] = []
    for top in range(0, a.shape[0], rows):
        # A last strip below the window height borrows rows from above.
        low, high = max(0, min(top - _BORDER, a.shape[0] - WINDOW)), min(a.shape[0], top + rows + _BORDER)
        if np.array_equal(a[low:high], b[low:high]):  # a strip without a difference needs no windows
            parts.append(np.ones((min(top + rows, a.shape[0]) - top, a.shape[1]), dtype=np.float32))
            continue
        _, full = structural_similarity(  # type: ignore[no-untyped-call]
            a[low:high].astype(np.float32),
            b[low:high].astype(np.float32),
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=255,
            channel_axis=-1,
            full=True,
        )
        parts.append(full.mean(axis=-1)[top - low : min(top + rows, a.shape[0]) - low])
    return np.concatenate(parts)


def _tile_bias(a: Pixels, b: Pixels) -> float:
    """Return the largest mean signed difference of a tile in one channel: a colour cast, which SSIM hardly sees."""
    worst = 0.0
    for top in _starts(a.shape[0], TILE):
        gap = _gap(a[top : top + TILE], b[top : top + TILE])
        worst = max(worst, *(float(np.abs(tile_means(gap[..., c])[0]).max(initial=0.0)) for c in range(a.shape[2])))
    return worst


def _patch_mae(errors: Plane) -> float:
    """Return the largest mean error of an 8 x 8 patch at any place, in strips that overlap by a patch."""
    rows = max(TILE, _STRIP_PIXELS // max(1, errors.shape[1]))
    worst = 0.0
    for top in range(0, errors.shape[0], rows):
        low, high = max(0, top - PATCH), min(errors.shape[0], top + rows + PATCH)
        inner = uniform_filter(errors[low:high], PATCH)[top - low : top - low + rows]
        worst = max(worst, float(inner.max()))
    return worst


def score(a: Pixels, b: Pixels, *, structure: bool = True) -> Scores:
    """Return all numbers of two pictures of equal shape ``(H, W, C)`` uint8. Symmetric.

    Without ``structure`` the SSIM numbers, which take most of the time, are left out.
    """
    errors = error_map(a, b)
    tiles, tops, lefts = tile_means(errors)
    similar = ssim_map(a, b) if structure else None
    worst_y, worst_x = np.unravel_index(int(tiles.argmax()), tiles.shape)
    inner = None if similar is None else similar[_BORDER:-_BORDER, _BORDER:-_BORDER]
    return Scores(
        psnr_db=psnr_db(a, b),
        tile_mae=float(tiles.max()),
        tile_bias=_tile_bias(a, b),
        patch_mae=_patch_mae(errors),
        ssim=None if inner is None else float(inner.mean(dtype=np.float64)),
        tile_ssim=None if similar is None else float(tile_means(similar)[0].min()),
        worst_tile=(lefts[worst_x], tops[worst_y]),
    )
