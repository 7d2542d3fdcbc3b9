"""Device, precision, layout and compilation: what was asked for is what runs, and it says so."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from onprem_backend.catalog import SPECS
from onprem_backend.images import Picture
from onprem_backend.labels import load_efficientnet
from onprem_backend.runtime import Runtime, resolve_device
from onprem_backend.sessions import Job
from onprem_backend.settings import Settings
from tests.onprem_backend.pictures import SAMPLES, png
from tests.onprem_backend.processes import running_app

COFFEE = Job(Picture(SAMPLES.coffee()), options={"k": "5"})
ABSENT = "cuda:99"


def document(result: Any) -> list[dict[str, Any]]:
    predictions: list[dict[str, Any]] = result.document["predictions"]
    return predictions


def test_a_cuda_device_that_is_not_there_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="sees no CUDA device of that number"):
        resolve_device(ABSENT)


def test_a_fallback_to_the_cpu_has_to_be_allowed_and_is_loud(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert resolve_device(ABSENT, allow_cpu_fallback=True) == torch.device("cpu")
    assert "FALLING BACK TO THE CPU" in caplog.text


def test_an_allowed_fallback_shows_the_device_that_is_used(models_dir: Path) -> None:
    settings = Settings(models_dir=models_dir, device=ABSENT, allow_cpu_fallback=True)
    with running_app(settings, [spec for spec in SPECS if spec.name == "efficientnet-lite0"]) as address:
        (model,) = httpx.get(f"{address}/v1/models").json()["models"]
    assert (model["state"], model["device"]) == ("ready", "cpu")


@pytest.mark.parametrize("changes", [{"precision": "fp8"}, {"precision": "fp16", "device": "cpu"}])
def test_a_precision_that_makes_no_sense_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="fp32"):
        Settings(**changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def plain(make_runtime: Any) -> Runtime:
    runtime: Runtime = make_runtime("torch")
    return runtime


def test_the_memory_layout_changes_nothing_but_speed(plain: Runtime) -> None:
    one, other = (load_efficientnet(replace(plain, channels_last=value)).run(COFFEE) for value in (True, False))
    for a, b in zip(document(one), document(other), strict=True):
        assert a["label"] == b["label"]
        assert a["prob"] == pytest.approx(b["prob"], abs=1e-4)


def test_half_precision_stays_near_and_is_told(plain: Runtime, models_dir: Path) -> None:
    exact, rough = (document(load_efficientnet(replace(plain, precision=p)).run(COFFEE)) for p in ("fp32", "bf16"))
    assert rough[0]["label"] == exact[0]["label"] == "espresso"
    assert 0 < abs(rough[0]["prob"] - exact[0]["prob"]) < 0.05
    settings = Settings(models_dir=models_dir, device="cpu", precision="bf16")
    wanted = [spec for spec in SPECS if spec.name in ("efficientnet-lite0", "opencv-telea")]
    with running_app(settings, wanted) as address:
        models = {m["name"]: m["precision"] for m in httpx.get(f"{address}/v1/models").json()["models"]}
        response = httpx.post(f"{address}/v1/classify", content=png(SAMPLES.coffee()))
    answer = response.json()
    assert response.headers["x-model"] == "efficientnet-lite0@57934424 torch bf16"
    assert models == {"efficientnet-lite0": "bf16", "opencv-telea": "fp32"}
    assert answer["predictions"] == rough


def test_a_compiled_network_answers_as_the_plain_one(plain: Runtime) -> None:
    """With the backend that needs no compiler: what is compiled is the network, not what surrounds it."""
    torch.manual_seed(2)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Conv2d(4, 2, 3))
    tensors = np.random.default_rng(1).random((2, 3, 16, 16), dtype=np.float32)
    eager = plain.network(plain.place(network))(tensors)[0]
    compiled = replace(plain, compile="eager").network(plain.place(network))(tensors)[0]
    assert np.abs(eager - compiled).max() < 1e-5
