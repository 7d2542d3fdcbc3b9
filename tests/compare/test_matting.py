"""The measures of a cut-out's edge, on mattes whose measures can be told by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as arrays

from compare.kernels.cutout import judge_cutout
from compare.kernels.matting import BAND, GRAD_SIGMA, edge_scores, unknown_band
from compare.kernels.pixels import Pixels
from compare.policy import ImageBands
from tests.compare.examples import encoded, photo


def square(isolated: bool = False, edge: int = 255) -> Pixels:
    alpha = np.zeros((60, 80), np.uint8)
    alpha[10:40, 10:40] = 255
    alpha[10:40, 40] = edge
    if isolated:
        alpha[20:23, 60:63] = 255
    return alpha


def test_equal_mattes_have_no_error_and_a_binary_one_has_its_outline_as_band() -> None:
    found = edge_scores(square(), square())
    assert (found.mse, found.grad, found.conn) == (0, 0, 0)
    band = unknown_band(square(), square())
    assert band[10 - BAND, 20]
    assert not band[25, 25]
    assert not band[50, 70]


def test_an_island_is_as_many_unconnected_pixels_as_it_has() -> None:
    assert edge_scores(square(), square(isolated=True)).conn == pytest.approx(9)


def test_the_mean_square_is_over_the_band_alone() -> None:
    found = edge_scores(square(), square(edge=0))
    assert found.mse == pytest.approx(30 / found.band_pixels)


def test_the_gradient_of_a_step_is_that_of_a_gaussian_derivative() -> None:
    step = np.zeros((60, 80), np.uint8)
    step[:, 40:] = 255
    found = edge_scores(step, np.zeros_like(step))
    columns = np.arange(-BAND - 1, BAND + 1) + 0.5
    density = np.exp(-0.5 * (columns / GRAD_SIGMA) ** 2) / (GRAD_SIGMA * math.sqrt(2 * math.pi))
    assert found.grad == pytest.approx(60 * float(np.square(density).sum()), rel=0.03)


@given(*[arrays.arrays(np.uint8, (9, 12))] * 2)
def test_edge_measures_are_symmetric_and_finite(a: Pixels, b: Pixels) -> None:
    there, back = edge_scores(a, b), edge_scores(b, a)
    assert there == back
    assert all(math.isfinite(x) and x >= 0 for x in (there.mse, there.grad, there.conn))


def test_the_cut_out_kernel_tells_them() -> None:
    rgb = photo()[:60, :80]
    one, other = (encoded(np.dstack([rgb, alpha])) for alpha in (square(), square(isolated=True)))
    numbers = judge_cutout(one, other, ImageBands()).numbers
    assert numbers["edge_conn"] == 9
    assert isinstance(numbers["edge_grad"], float)
    assert numbers["edge_grad"] > 0
