"""The mend of torchvision beside a CPU-only torch."""

from __future__ import annotations

import importlib
import importlib.metadata
import subprocess
import sys

import pytest
import torch

from onprem_backend.torchvision_mend import mend, nms


def test_torchvision_imports_in_a_fresh_process_and_its_nms_works() -> None:
    code = """
import logging, torch
logging.basicConfig(level=logging.INFO)
from onprem_backend.torchvision_mend import mend
needed = mend()
assert mend() is False
from torchvision.ops import nms
from torchvision.transforms.functional_tensor import rgb_to_grayscale
boxes = torch.tensor([[0.0, 0, 10, 10], [1, 1, 11, 11], [50, 50, 60, 60]])
assert nms(boxes, torch.tensor([0.5, 0.9, 0.1]), 0.3).tolist() == [1, 2]
print("needed", needed)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert ("needed True" in done.stdout) == ("no compiled operators" in done.stderr)


def reference_nms(boxes: list[list[float]], scores: list[float], limit: float) -> list[int]:
    """The definition, box by box."""
    kept: list[int] = []
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        for j in kept:
            a, b = boxes[i], boxes[j]
            shared = max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
            union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
            if shared / union > limit:
                break
        else:
            kept.append(i)
    return kept


@pytest.mark.parametrize("limit", [0.1, 0.4, 0.9])
def test_nms_follows_its_definition(limit: float) -> None:
    generator = torch.Generator().manual_seed(3)
    corners = torch.rand(120, 2, generator=generator, dtype=torch.float64) * 100
    sizes = torch.rand(120, 2, generator=generator, dtype=torch.float64) * 40 + 1
    boxes, scores = torch.cat([corners, corners + sizes], dim=1), torch.rand(120, generator=generator)
    assert nms(boxes, scores, limit).tolist() == reference_nms(boxes.tolist(), scores.tolist(), limit)


def test_nms_of_nothing_is_nothing() -> None:
    assert nms(torch.empty(0, 4), torch.empty(0), 0.5).tolist() == []


def test_basicsr_finds_the_module_that_torchvision_removed() -> None:
    mend()
    module = importlib.import_module("torchvision.transforms.functional_tensor")
    grey = module.rgb_to_grayscale(torch.ones(3, 2, 2))
    assert grey.shape == (1, 2, 2)
