"""Named numbers of two pictures of one size. One SSIM map gives the global score and the tiles.

Global scores miss what matters (a blurred face leaves SSIM at .98), so the worst 32 x 32 tile is what bands look at.
Work goes in strips that fit a core's cache: besides the two pictures, memory is two planes of float32 (the error and
the SSIM map), 8 bytes for each pixel, and what a strip takes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from compare.kernels.pixels import Pixels

TILE = 32
PATCH = 8
WINDOW = 11  # of a Gaussian with sigma 1.5 truncated at 3.5 sigma
_SIGMA = 1.5
_BORDER = (WINDOW - 1) // 2
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
_STRIP_PIXELS = 65_536
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
    error = sum(cv2.norm(x, y, cv2.NORM_L2SQR) for x, y in _strips(a, b)) / max(1, a.size)
    return math.inf if error == 0 else 10 * math.log10(255.0**2 / error)


def _gap(a: Pixels, b: Pixels) -> Plane:
    """Return the signed difference in levels, ``(H, W, C)``."""
    return _shaped(cv2.subtract(a, b, dtype=cv2.CV_32F), a.shape)


def _shaped(result: object, shape: tuple[int, ...]) -> Plane:
    """Give back the axis of a single channel, which OpenCV drops."""
    return np.asarray(result, dtype=np.float32).reshape(shape)


def _strips(a: Pixels, b: Pixels) -> Iterator[tuple[Pixels, Pixels]]:
    rows = _strip_rows(a.shape[1])
    for top in range(0, a.shape[0], rows):
        yield a[top : top + rows], b[top : top + rows]


def _strip_rows(width: int) -> int:
    return max(2 * TILE, _STRIP_PIXELS // max(1, width))


def error_map(a: Pixels, b: Pixels) -> Plane:
    """Return the mean absolute difference over the channels, ``(H, W)`` float32 in levels."""
    return np.concatenate([channel_mean(np.abs(_gap(x, y))) for x, y in _strips(a, b)])


def channel_mean(planes: Plane) -> Plane:
    """Return the mean over the channels of ``(H, W, C)``, several times faster than numpy over so short an axis."""
    total: Plane = np.asarray(cv2.transform(planes, np.ones((1, planes.shape[2]), dtype=np.float32)))
    total /= planes.shape[2]  # after an exact sum: three equal values have that value as their mean
    return total


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
    """Return the Gaussian SSIM map, mean over channels, ``(H, W)``; ``None`` where a side is shorter than the window.

    The values are those of scikit-image (``gaussian_weights=True, sigma=1.5, use_sample_covariance=False,
    data_range=255``) at a fraction of its time.
    """
    if min(a.shape[:2]) < WINDOW:
        return None
    rows = _strip_rows(a.shape[1])
    parts: list[Plane] = []
    for top in range(0, a.shape[0], rows):
        # A last strip below the window height borrows rows from above.
        low, high = max(0, min(top - _BORDER, a.shape[0] - WINDOW)), min(a.shape[0], top + rows + _BORDER)
        bottom = min(top + rows, a.shape[0])
        if np.array_equal(a[low:high], b[low:high]):  # a strip without a difference needs no windows
            parts.append(np.ones((bottom - top, a.shape[1]), dtype=np.float32))
        else:
            parts.append(_ssim(a[low:high], b[low:high])[top - low : bottom - low])
    return np.concatenate(parts)


def _ssim(x: Pixels, y: Pixels) -> Plane:
    """Return the SSIM map of a strip (Wang et al. 2004, equation 13), mean over channels.

    From the sum s and the difference d of the two, because four filters do for five: E[s]^2 -+ E[d]^2 is 4 mx my and
    2 (mx^2 + my^2), and Var[s] -+ Var[d] is 4 cov(x, y) and 2 (Var[x] + Var[y]).
    """
    total = _shaped(cv2.add(x, y, dtype=cv2.CV_32F), x.shape)
    gap = _gap(x, y)
    mean_s, mean_d = _gaussian(total), _gaussian(gap)
    var_s, var_d = _gaussian(np.square(total, out=total)), _gaussian(np.square(gap, out=gap))
    for variance, mean in ((var_s, mean_s), (var_d, mean_d)):
        np.square(mean, out=mean)
        variance -= mean
    above = (mean_s - mean_d + 2 * _C1) * (var_s - var_d + 2 * _C2)
    mean_s += mean_d
    var_s += var_d
    mean_s += 2 * _C1
    var_s += 2 * _C2
    mean_s *= var_s
    above /= mean_s
    return channel_mean(above)


def _gaussian(plane: Plane) -> Plane:
    kernel = cv2.getGaussianKernel(WINDOW, _SIGMA, cv2.CV_32F)
    smooth = cv2.sepFilter2D(plane, cv2.CV_32F, kernel, kernel, borderType=cv2.BORDER_REFLECT)
    return _shaped(smooth, plane.shape)


def _tile_bias(a: Pixels, b: Pixels) -> float:
    """Return the largest mean signed difference of a tile in one channel: a colour cast, which SSIM hardly sees."""
    lefts = np.array(_starts(a.shape[1], TILE))
    rights = np.minimum(lefts + TILE, a.shape[1])
    worst = 0.0
    for top in _starts(a.shape[0], TILE):
        gap = _gap(a[top : top + TILE], b[top : top + TILE])
        sums = np.zeros((a.shape[1] + 1, a.shape[2]))
        np.cumsum(gap.sum(axis=0), axis=0, out=sums[1:])  # whole levels: exact in float32
        tiles = np.abs(sums[rights] - sums[lefts]) / ((rights - lefts)[:, None] * gap.shape[0])
        worst = max(worst, float(tiles.max()))
    return worst


def _patch_mae(errors: Plane) -> float:
    """Return the largest mean error of an 8 x 8 patch at any place, in strips that overlap by a patch."""
    rows = _strip_rows(errors.shape[1])
    worst = 0.0
    for top in range(0, errors.shape[0], rows):
        low, high = max(0, top - PATCH), min(errors.shape[0], top + rows + PATCH)
        means = cv2.blur(errors[low:high], (PATCH, PATCH), borderType=cv2.BORDER_REFLECT)
        inner = means[top - low : top - low + rows]
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
