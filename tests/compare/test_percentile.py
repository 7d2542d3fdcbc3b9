"""Percentiles of what was seen."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compare.stats import percentile


def test_c06_percentiles_of_few_values_are_values_that_were_seen() -> None:
    assert percentile([1.0], 0.99).value == 1.0
    assert percentile([1.0, 2.0], 0.5).value == 1.0
    assert percentile([10.0, 20.0, 30.0], 0.99).value == 30.0
    many = [1.0] * 100 + [1000.0]
    assert percentile(many, 0.5).value == 1.0
    assert percentile(many, 0.99).value == 1.0
    assert percentile([], 0.5).value is None


def test_c06_the_number_of_values_is_shown_and_a_thin_tail_is_marked() -> None:
    assert percentile([1.0] * 99, 0.99).reliable is False
    assert percentile([1.0] * 100, 0.99).reliable is True
    assert percentile([1.0] * 99, 0.99).n == 99


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.001, 1.0))
def test_c06_percentiles_lie_between_minimum_and_maximum(values: list[float], p: float) -> None:
    found = percentile(sorted(values), p).value
    assert found is not None
    assert min(values) <= found <= max(values)


def test_c07_a_percentile_comes_from_all_raw_values_and_not_from_percentiles() -> None:
    first, second = [0.010] * 990, [1.0] * 10
    everything = sorted(first + second)
    assert percentile(everything, 0.99).value == 0.010
    assert percentile(everything, 0.995).value == 1.0
    shuffled = np.random.default_rng(0).permutation(everything)
    workers = np.split(shuffled, [17, 600])
    assert percentile(sorted(np.concatenate(workers).tolist()), 0.99).value == 0.010
