"""A genuine GFPGANv1.4.pth in the models folder needs no change of code: files of its size and layout do not."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import httpx
import torch

from onprem_backend.catalog import SPECS
from onprem_backend.manifest import MANIFEST
from onprem_backend.settings import Settings
from onprem_backend.torchvision_mend import mend
from tests.onprem_backend.pictures import array, noise, png
from tests.onprem_backend.processes import running_app
from tests.onprem_backend.weight_files import pin, write_state

NAMES = ("gfpgan", "retinaface", "parsenet")
# Where five landmarks lie around the middle of the one face, in pixels: eyes, nose, corners of the mouth.
LANDMARKS = ((-6, -5), (6, -5), (0, 0), (-5, 6), (5, 6))


def finds_one_face(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Make a RetinaFace's heads say: one face, in the middle, at the largest stride's first anchor (256 px)."""
    for name, values in state.items():
        if "conv1x1" in name and "Head" in name:
            values.zero_()
    for level in range(3):
        no_face = torch.tensor([10.0, -10.0, 10.0, -10.0])
        state[f"ClassHead.{level}.conv1x1.bias"].copy_(no_face)
    state["ClassHead.2.conv1x1.bias"][:2] = torch.tensor([-10.0, 10.0])
    offsets = torch.tensor(LANDMARKS).flatten() / (0.1 * 256)
    state["LandmarkHead.2.conv1x1.bias"][:10] = offsets
    return {f"module.{name}": values for name, values in state.items()}  # as the genuine file has them


def write_files(folder: Path) -> int:
    """Write the three files with random weights; return how many numbers GFPGAN's has."""
    mend()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arch: Any = importlib.import_module("gfpgan.archs.gfpganv1_clean_arch")
        retinaface: Any = importlib.import_module("facexlib.detection.retinaface")
        parsenet: Any = importlib.import_module("facexlib.parsing.parsenet")
        torch.manual_seed(0)
        gfpgan = arch.GFPGANv1Clean(512, 512, 2, None, False, 8, True, True, 1, True)
        write_state(folder, "gfpgan", {"params_ema": gfpgan.state_dict()})
        detector = retinaface.RetinaFace("resnet50", device=torch.device("cpu"))
        write_state(folder, "retinaface", finds_one_face(detector.state_dict()))
        write_state(folder, "parsenet", parsenet.ParseNet(in_size=512, out_size=512, parsing_ch=19).state_dict())
    return sum(parameter.numel() for parameter in gfpgan.parameters())


def test_a_file_of_gfpgans_size_and_layout_is_loaded_and_run(tmp_path: Path) -> None:
    try:
        numbers = write_files(tmp_path)
        assert 86e6 < numbers < 87e6
        face = [spec for spec in SPECS if spec.name == "gfpgan"]
        settings = Settings(models_dir=tmp_path, device="cpu", pool_size=1, threads=2, inference_timeout_s=280)
        with running_app(settings, face) as address:
            (unpinned,) = httpx.get(f"{address}/v1/models").json()["models"]
        assert (unpinned["state"], unpinned["reason"]) == ("unusable", "GFPGANv1.4.pth is not the pinned file")
        with running_app(settings, face, manifest=pin(tmp_path, *NAMES)) as address:
            answer = httpx.post(f"{address}/v1/restore?mode=face&seed=4", content=png(noise(32, 32)), timeout=300)
        assert answer.status_code == 200
        assert answer.headers["x-faces"] == "1"
        assert answer.headers["x-model"].startswith("gfpgan@")
        assert array(answer.content).shape == (64, 64, 3)
    finally:
        for name in NAMES:
            (tmp_path / MANIFEST[name].file).unlink(missing_ok=True)
