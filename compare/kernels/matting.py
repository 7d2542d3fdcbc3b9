"""The measures of a cut-out's soft edge: MSE, Grad and Conn over the unknown band (Rhemann et al., CVPR 2009).

Nobody draws a trimap in production, so the unknown band is made from the two mattes themselves: wherever either is
neither clear nor solid or changes from one to the other, widened by ``BAND`` pixels. Beyond it both mattes are flat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation, gaussian_filter, label

from compare.kernels.pixels import Pixels

BAND = 5
GRAD_SIGMA = 1.4
CONN_THETA, CONN_STEP = 0.15, 0.1
Plane = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class EdgeScores:
    """``mse`` is a mean over the band; ``grad`` and ``conn`` are sums over it (papers print them in thousands)."""

    mse: float
    grad: float
    conn: float
    band_pixels: int


def unknown_band(a: Pixels, b: Pixels) -> NDArray[np.bool_]:
    """Return the band of two mattes ``(H, W)`` uint8."""
    unsure = np.zeros(a.shape, dtype=np.bool_)
    for side in (a, b):
        unsure |= (side > 0) & (side < 255)
        solid = side > 127
        unsure[1:] |= solid[1:] != solid[:-1]
        unsure[:, 1:] |= solid[:, 1:] != solid[:, :-1]
    band: NDArray[np.bool_] = binary_dilation(unsure, iterations=BAND) if unsure.any() else unsure
    return band


def edge_scores(a: Pixels, b: Pixels) -> EdgeScores:
    """Return the three measures of two mattes ``(H, W)`` uint8 of one size. Symmetric; all zero for equal mattes."""
    band = unknown_band(a, b)
    one, other = (side.astype(np.float64) / 255 for side in (a, b))
    if not band.any():
        return EdgeScores(0.0, 0.0, 0.0, 0)
    return EdgeScores(
        mse=float(np.square(one - other)[band].mean()),
        grad=float(np.square(_slope(one) - _slope(other))[band].sum()),
        conn=conn_error(one, other, band),
        band_pixels=int(band.sum()),
    )


def _slope(alpha: Plane) -> Plane:
    """Return the magnitude of the gradient by first derivatives of a Gaussian."""
    rows, columns = (gaussian_filter(alpha, GRAD_SIGMA, order=order) for order in ((1, 0), (0, 1)))
    slope: Plane = np.hypot(rows, columns)
    return slope


def conn_error(a: Plane, b: Plane, band: NDArray[np.bool_]) -> float:
    """Return the connectivity error: how far each pixel is from being connected to what is solid on both sides.

    For each level the source is the largest 4-connected region where both mattes reach it; ``l`` is the highest level
    at which a pixel still belongs to it, and ``phi = 1 - d [d >= theta]`` with ``d = alpha - l``.
    """
    reached = np.ones(a.shape, dtype=np.float64)
    open_still = np.ones(a.shape, dtype=np.bool_)
    for step in range(1, round(1 / CONN_STEP) + 1):
        level = step * CONN_STEP
        lost = open_still & ~_largest((a >= level - 1e-9) & (b >= level - 1e-9))
        reached[lost] = level - CONN_STEP
        open_still &= ~lost
    phi = [1 - np.where((d := side - reached) >= CONN_THETA, d, 0.0) for side in (a, b)]
    return float(np.abs(phi[0] - phi[1])[band].sum())


def _largest(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    parts, count = label(mask)
    if count == 0:
        return mask
    sizes = np.bincount(parts.ravel())
    sizes[0] = 0
    found: NDArray[np.bool_] = parts == sizes.argmax()
    return found
