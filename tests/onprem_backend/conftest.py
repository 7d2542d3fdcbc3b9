"""A running server with the genuine models, and where the models are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import torch

from onprem_backend.manifest import models
from onprem_backend.runtime import Runtime
from onprem_backend.settings import Settings
from onprem_backend.torchvision_mend import mend
from tests.onprem_backend.processes import running_app


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """The folder with the five weight files that the package registry carries."""
    folder = Path(os.environ.get("CROSSFADE_MODELS", "models"))
    absent = [s.path.name for s in models(folder) if s.entry.by_default and s.state != "installed"]
    if absent:
        pytest.fail(f"not in {folder.resolve()}, or not the pinned files: {', '.join(absent)}; fetch the models first")
    return folder


@pytest.fixture(scope="session")
def make_runtime(models_dir: Path) -> Callable[[str], Runtime]:
    """Makes a runtime on the CPU for an engine."""
    mend()
    torch.set_num_threads(1)
    return lambda engine: Runtime(models_dir, torch.device("cpu"), engine, threads=1, detect_side_px=960)


@pytest.fixture(scope="session")
def client(models_dir: Path) -> Iterator[httpx.Client]:
    """A client of a server with every model, over a real socket. Its teardown checks that nothing is left in use."""
    settings = Settings(models_dir=models_dir, device="cpu")
    with running_app(settings) as address, httpx.Client(base_url=address, timeout=60) as http:
        yield http
        for model in http.get("/v1/models").json()["models"]:
            assert model["sessions"] in (None, {"size": 2, "idle": 2, "waiting": 0})
