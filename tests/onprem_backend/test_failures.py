"""What a client sees when a model fails, over real sockets: one request fails, and only that one."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import torch

from onprem_backend.failures import is_device_failure, is_out_of_memory
from onprem_backend.server import DEVICE_BROKEN_STATUS
from onprem_backend.settings import Settings
from tests.onprem_backend.pictures import png
from tests.onprem_backend.processes import running_app, wait_until_started
from tests.onprem_backend.scripted_models import (
    BREAK_DEVICE,
    BROKEN_SPEC,
    FAIL,
    FRUGAL_SPEC,
    HANG,
    NEED_FRUGALITY,
    NO_FACE,
    OBEY,
    OUT_OF_MEMORY,
    PARTICULAR_SPEC,
    SPEC,
    SURPRISE,
    command_picture,
)
from tests.ports import free_port


def settings(tmp_path: Path, **changes: object) -> Settings:
    values = {"models_dir": tmp_path, "device": "cpu", "pool_size": 1, "inference_timeout_s": 2.0, **changes}
    return Settings(**values)  # type: ignore[arg-type]


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_app(settings(tmp_path), [SPEC]) as address, asking(address) as http:
        yield http


def asking(address: str) -> httpx.Client:
    return httpx.Client(base_url=address, timeout=30)


def ask(http: httpx.Client, command: int) -> httpx.Response:
    return http.post("/v1/face-blur", content=png(command_picture(command)))


@pytest.mark.parametrize(
    ("command", "status", "code", "session"),
    [
        (OUT_OF_MEMORY, 503, "out_of_memory", "2"),
        (FAIL, 500, "inference_failed", "2"),
        (HANG, 503, "inference_timeout", "1"),
        (NO_FACE, 422, "no_face_found", "1"),
    ],
)
def test_i15_one_failure_in_twenty_costs_one_request(
    scripted: httpx.Client, command: int, status: int, code: str, session: str
) -> None:
    for number in range(1, 21):
        response = ask(scripted, command if number == 3 else OBEY)
        if number == 3:
            assert response.status_code == status
            assert response.headers["content-type"] == "application/problem+json"
            assert response.json()["code"] == code
            assert ("retry-after" in response.headers) == (status == 503)
        else:
            assert response.status_code == 200
            assert response.headers["x-session"] == ("1" if number < 3 else session)
    (model,) = scripted.get("/v1/models").json()["models"]
    assert model["sessions"] == {"size": 1, "idle": 1, "waiting": 0}
    assert model["failures"] == {code: 1}


def test_a_failure_that_nobody_expected_leaves_the_connection_to_the_next_request(scripted: httpx.Client) -> None:
    for _ in range(3):
        surprised = ask(scripted, SURPRISE)
        assert (surprised.status_code, surprised.json()["code"]) == (500, "internal_error")
        assert surprised.headers["content-type"] == "application/problem+json"
        assert surprised.headers["server"] == "crossfade-onprem"
        assert ask(scripted, OBEY).status_code == 200


def test_a_frugal_model_is_tried_once_more_with_less_memory(tmp_path: Path) -> None:
    with running_app(settings(tmp_path), [FRUGAL_SPEC]) as address, asking(address) as http:
        assert ask(http, NEED_FRUGALITY).status_code == 200
        refused = ask(http, OUT_OF_MEMORY)
        assert (refused.status_code, refused.json()["code"]) == (503, "out_of_memory")
        assert int(refused.headers["retry-after"]) > 0
        (model,) = http.get("/v1/models").json()["models"]
        assert model["sessions"] == {"size": 1, "idle": 1, "waiting": 0}
        assert 'onprem_retries_total{model="scripted",reason="out_of_memory"} 2.0' in http.get("/metrics").text


def test_the_genuine_errors_of_torch_are_told_apart() -> None:
    with pytest.raises(RuntimeError) as too_much:
        torch.empty(1 << 45)
    assert is_out_of_memory(too_much.value)
    assert not is_device_failure(too_much.value)
    driver = torch.AcceleratorError("CUDA error: out of memory")
    assert (is_out_of_memory(driver), is_device_failure(driver)) == (True, False)
    lost = torch.AcceleratorError("CUDA error: device-side assert triggered")
    assert (is_out_of_memory(lost), is_device_failure(lost)) == (False, True)
    shapes = RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")
    assert (is_out_of_memory(shapes), is_device_failure(shapes)) == (False, False)


def test_a_lost_device_ends_the_process_for_its_supervisor(tmp_path: Path) -> None:
    port = free_port()
    code = (
        "from pathlib import Path; from onprem_backend.server import serve; "
        "from onprem_backend.settings import Settings; from tests.onprem_backend.scripted_models import SPEC; "
        f"serve(Settings(models_dir=Path({str(tmp_path)!r}), device='cpu'), '127.0.0.1', {port}, specs=[SPEC])"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_until_started(address)
        with httpx.Client(base_url=address, timeout=30) as http:
            response = ask(http, BREAK_DEVICE)
        assert (response.status_code, response.json()["code"]) == (503, "device_broken")
        assert process.wait(30) == DEVICE_BROKEN_STATUS
    finally:
        process.kill()
        process.wait()


def test_a_broken_device_turns_liveness_off(scripted: httpx.Client) -> None:
    assert scripted.get("/v2/health/live").status_code == 200
    assert ask(scripted, BREAK_DEVICE).json()["code"] == "device_broken"
    assert scripted.get("/v2/health/live").status_code == 503
    assert scripted.get("/v2/health/ready").status_code == 503
    assert ask(scripted, OBEY).json()["code"] == "device_broken"


def test_a_model_that_does_not_load_holds_up_no_other_one(tmp_path: Path) -> None:
    with (
        running_app(settings(tmp_path), [BROKEN_SPEC, SPEC]) as address,
        httpx.Client(base_url=address, timeout=30) as http,
    ):
        assert http.get("/v2/health/ready").json() == {
            "ready": True,
            "models": {"broken": "unusable", "scripted": "ready"},
        }
        assert ask(http, OBEY).status_code == 200
        assert "weights are unreadable" in http.get("/v1/models").json()["models"][0]["reason"]


def test_a_model_that_finds_nothing_in_the_warm_up_picture_is_ready(tmp_path: Path) -> None:
    with (
        running_app(settings(tmp_path), [PARTICULAR_SPEC]) as address,
        httpx.Client(base_url=address, timeout=30) as http,
    ):
        assert http.get("/v2/models/particular/ready").status_code == 200
        assert http.post("/v1/restore", content=png(command_picture(OBEY))).json()["code"] == "no_face_found"


def test_a_feature_that_is_switched_off_says_so(tmp_path: Path) -> None:
    off = settings(tmp_path, features=frozenset({"classify"}))
    with running_app(off, [SPEC]) as address, asking(address) as http:
        response = ask(http, OBEY)
        assert (response.status_code, response.json()["code"]) == (404, "feature_disabled")


def test_missing_weight_files_answer_503_and_never_a_stand_in(tmp_path: Path) -> None:
    (tmp_path / "u2netp.onnx").write_bytes(b"another file")
    with running_app(settings(tmp_path)) as address, asking(address) as http:
        picture = png(command_picture(OBEY))
        for feature in ("classify", "face-blur", "restore", "restore?mode=face", "restore?model=x4plus"):
            response = http.post(f"/v1/{feature}", content=picture)
            assert (response.status_code, response.json()["code"]) == (503, "model_not_installed")
        assert http.post("/v1/remove-background", content=picture).json()["code"] == "model_unusable"
        erased = http.post("/v1/erase", files={"file": picture, "mask": png(command_picture(0))})
        assert erased.status_code == 200
        assert erased.headers["x-model"].startswith("opencv-telea@")
        assert http.get("/v2/health/ready").status_code == 200


@pytest.mark.anyio
async def test_the_event_loop_never_waits_for_a_model(tmp_path: Path) -> None:
    with running_app(settings(tmp_path, inference_timeout_s=20), [SPEC]) as address:
        async with httpx.AsyncClient(base_url=address, timeout=30) as http:
            hanging = asyncio.create_task(http.post("/v1/face-blur", content=png(command_picture(HANG))))
            with httpx.Client(base_url=address, timeout=30) as watcher:
                await asyncio.to_thread(wait_for_idle, watcher, 0, 30.0)
            began = asyncio.get_running_loop().time()
            assert (await http.get("/v2/health/live")).status_code == 200
            assert asyncio.get_running_loop().time() - began < 10
            hanging.cancel()
            await asyncio.gather(hanging, return_exceptions=True)


def test_a_client_that_leaves_stops_the_work(tmp_path: Path) -> None:
    with (
        running_app(settings(tmp_path, inference_timeout_s=20), [SPEC]) as address,
        httpx.Client(base_url=address, timeout=30) as http,
    ):
        host, _, port = address.removeprefix("http://").partition(":")
        body = png(command_picture(HANG))
        head = f"POST /v1/face-blur HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + body)
            wait_for_idle(http, 0, 30.0)
        wait_for_idle(http, 1, 10.0)


def wait_for_idle(http: httpx.Client, idle: int, within_s: float) -> None:
    """Poll until so many sessions are idle."""
    deadline = time.monotonic() + within_s
    while http.get("/v1/models").json()["models"][0]["sessions"]["idle"] != idle:
        assert time.monotonic() < deadline
