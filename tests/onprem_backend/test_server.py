"""The server as a process of its own: its command line, its second engine, and its memory."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2
import httpx
from PIL import Image

from onprem_backend.settings import SWITCHES
from tests.onprem_backend.pictures import SAMPLES, jpeg, noise, png, save
from tests.onprem_backend.processes import wait_until_started
from tests.ports import free_port

ONE_MEGAPIXEL = jpeg(cv2.resize(SAMPLES.astronaut(), (1250, 800), interpolation=cv2.INTER_LINEAR), quality=85)
# 200 uploads of 0.15 MB, three decoded pictures of 3 MB with their intermediates, 200 connections.
PEAK_GROWTH_MB = 150
ONLY_CLASSIFY = {"ENABLE_REMOVER": "0", "ENABLE_FACEBLUR": "0", "ENABLE_RESTORE": "0", "ENABLE_ERASER": "0"}


@contextmanager
def running_process(models_dir: Path, *arguments: str, **environ: str) -> Iterator[tuple[str, int]]:
    """Run ``python -m onprem_backend`` and yield its address and process id."""
    port = free_port()
    command = [sys.executable, "-m", "onprem_backend", "--port", str(port), "--models", str(models_dir), *arguments]
    process = subprocess.Popen(command, env={**os.environ, **environ}, stderr=subprocess.DEVNULL)
    try:
        wait_until_started(f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}", process.pid
    finally:
        process.terminate()
        process.wait(30)


def memory_mb(pid: int, field: str) -> float:
    """Return ``VmRSS`` (now), ``VmHWM`` (peak) or ``VmSize`` (addresses) of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise ValueError(field)


def classify_in_turn(address: str, count: int) -> set[str]:
    with httpx.Client(base_url=address, timeout=60) as http:
        return {http.post("/v1/classify", content=ONE_MEGAPIXEL).text for _ in range(count)}


async def classify_at_once(address: str, count: int) -> list[httpx.Response]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=address, timeout=120, limits=limits) as http:
        return await asyncio.gather(*(http.post("/v1/classify", content=ONE_MEGAPIXEL) for _ in range(count)))


def test_i16_memory_does_not_grow_and_parallel_work_is_bounded(models_dir: Path) -> None:
    with running_process(models_dir, "--device", "cpu", **ONLY_CLASSIFY) as (address, pid):
        answers = classify_in_turn(address, 40)
        warm = memory_mb(pid, "VmRSS")
        answers |= classify_in_turn(address, 160)
        assert len(answers) == 1
        assert memory_mb(pid, "VmRSS") - warm < 20
        responses = asyncio.run(classify_at_once(address, 200))
        assert {r.status_code for r in responses} <= {200, 503}
        assert all(r.json()["code"] == "overloaded" and r.headers["retry-after"] for r in responses if r.is_error)
        assert sum(r.is_success for r in responses) >= 60
        assert memory_mb(pid, "VmHWM") - warm < PEAK_GROWTH_MB


def test_i15_memory_that_is_really_out_costs_the_request_that_needs_it(models_dir: Path) -> None:
    """The process may grow by 16 MB, which a tile of the large network does not fit into, not even a small one."""
    only_restore = {**dict.fromkeys(SWITCHES, "0"), "ENABLE_RESTORE": "1"}
    with (
        running_process(models_dir, "--device", "cpu", ONPREM_POOL_SIZE="1", **only_restore) as (address, pid),
        httpx.Client(base_url=address, timeout=60) as http,
    ):
        small, large = png(noise(12, 12)), png(noise(300, 300))
        before = http.post("/v1/restore?model=x4plus", content=small)
        limit_bytes = round(memory_mb(pid, "VmSize") * 1024 * 1024) + 16 * 1024 * 1024
        resource.prlimit(pid, resource.RLIMIT_AS, (limit_bytes, limit_bytes))
        refused = http.post("/v1/restore?model=x4plus", content=large)
        assert (refused.status_code, refused.json()["code"]) == (503, "out_of_memory")
        assert int(refused.headers["retry-after"]) >= 1
        undecoded = http.post("/v1/restore", content=save(Image.new("1", (2000, 2000))))
        assert (undecoded.status_code, undecoded.json()["code"]) == (503, "out_of_memory")
        after = http.post("/v1/restore?model=x4plus", content=small)
        assert (after.status_code, after.content) == (200, before.content)
        models = {model["name"]: model for model in http.get("/v1/models").json()["models"]}
        assert models["realesrgan-x4plus"]["sessions"] == {"size": 1, "idle": 1, "waiting": 0}
        assert http.get("/v2/health/live").status_code == 200


def test_the_second_engine_runs_the_onnx_models_and_the_others_say_torch(models_dir: Path) -> None:
    with running_process(models_dir, "--engine", "onnxruntime", "--device", "cpu", ENABLE_RESTORE="0") as (address, _):
        models = httpx.get(f"{address}/v1/models").json()["models"]
        labels = {model["name"]: model["label"] for model in models if model["loaded"]}
        assert labels["u2netp"] == "u2netp@309c8469 onnxruntime"
        assert labels["centerface"] == "centerface@09189dea onnxruntime"
        assert labels["efficientnet-lite0"] == "efficientnet-lite0@57934424 torch"
        for path in ("remove-background", "face-blur", "classify"):
            assert httpx.post(f"{address}/v1/{path}", content=jpeg(noise())).status_code == 200


def run_to_its_end(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "onprem_backend", "--port", "0", *arguments]
    return subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=False)


def test_a_bad_environment_ends_the_process_with_a_reason() -> None:
    done = run_to_its_end(ENABLE_RESTORE="maybe")
    assert done.returncode == 2
    assert "ENABLE_RESTORE" in done.stderr


def test_asking_for_a_device_that_is_not_there_ends_the_process() -> None:
    done = run_to_its_end("--device", "cuda:99", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3
    assert "sees no CUDA device" in done.stderr
    assert "ONPREM_ALLOW_CPU_FALLBACK=1" in done.stderr
    assert "Traceback" not in done.stderr
