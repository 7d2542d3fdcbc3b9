"""The model server on a local Ray, as ``serve run`` starts it from the config of the Kubernetes manifest, beside the
plain one: the same answers. Two replicas share one GPU that Ray is told to have; they compute on the CPU."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import yaml

from onprem_backend.ray_app import build, device_for, most_ongoing
from onprem_backend.settings import Settings
from tests.deploy.description import KUBERNETES, read_yaml
from tests.onprem_backend.pictures import SAMPLES, half_red, jpeg, noise, png, save, with_orientation
from tests.ports import free_port

START_S, STOP_S = 180.0, 60.0
MASK = np.zeros((64, 64), dtype=np.uint8)
MASK[10:20, 10:30] = 255
FORM = {"Content-Type": "multipart/form-data; boundary=XX"}


def serve_config(models: Path, port: int) -> dict[str, Any]:
    """The manifest's config, with only what this machine lacks changed: its address, its models, its device."""
    config: dict[str, Any] = yaml.safe_load(read_yaml(KUBERNETES / "ray" / "rayservice.yaml")["spec"]["serveConfigV2"])
    config["http_options"] = {"host": "127.0.0.1", "port": port}
    [application] = config["applications"]
    application["args"] |= {"CROSSFADE_MODELS": str(models.resolve()), "ONPREM_DEVICE": "cpu"}
    application["args"] |= {"ENABLE_RESTORE": "0", "ENABLE_REMOVER": "0", "ONPREM_MAX_WAITING": "1"}
    [deployment] = application["deployments"]
    deployment["autoscaling_config"] |= {"min_replicas": 2, "max_replicas": 2}
    return config


@contextmanager
def running_ray(config: dict[str, Any]) -> Iterator[str]:
    """Run Ray and Serve until the block ends, then see that nothing is left of them."""
    folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # a short name: sockets lie in it
    (folder / "serve.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    environ = os.environ | {
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_OVERRIDE_RESOURCES": json.dumps({"CPU": 2, "GPU": 1}),
        "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")]),
    }
    command = [str(Path(sys.executable).with_name("serve")), "run", str(folder / "serve.yaml")]
    address = f"http://127.0.0.1:{config['http_options']['port']}"
    with (folder / "log").open("wb") as log, subprocess.Popen(command, env=environ, stdout=log, stderr=log) as process:
        try:
            wait_until_ready(address, process, folder / "log")
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(STOP_S)
            finally:
                process.kill()
                for pid in of_session(folder):
                    os.kill(pid, signal.SIGKILL)
    shutil.rmtree(folder)


def of_session(folder: Path) -> list[int]:
    """The processes that were started for this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if f"{folder}/session_".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    pause = threading.Event()
    with httpx.Client(base_url=address, timeout=10) as http:
        while time.monotonic() < deadline and process.poll() is None:
            try:
                answer = http.get("/v2/health/ready")
                if answer.status_code == 200 and answer.headers["content-type"] == "application/json":
                    return
            except httpx.TransportError:
                pass
            pause.wait(0.3)
    raise AssertionError(f"Ray did not come up:\n{log.read_text(errors='replace')[-4000:]}")


@pytest.fixture(scope="module")
def ray_client(models_dir: Path) -> Iterator[httpx.Client]:
    port = free_port()
    with running_ray(serve_config(models_dir, port)) as address, httpx.Client(base_url=address, timeout=60) as http:
        yield http


REQUESTS: dict[str, dict[str, Any]] = {
    "labels": {"url": "/v1/classify?k=3", "content": jpeg(SAMPLES.chelsea())},
    "faces": {"url": "/v1/face-blur", "content": png(SAMPLES.astronaut()), "headers": {"Accept": "image/webp"}},
    "boxes": {"url": "/v1/face-blur?output=boxes", "content": jpeg(SAMPLES.astronaut())},
    "a turned JPEG": {"url": "/v1/face-blur", "content": with_orientation(half_red(), 6)},
    "transparency": {"url": "/v1/face-blur", "content": png(noise(channels=4))},
    "an animation": {
        "url": "/v1/face-blur",
        "content": save(half_red(), "GIF", save_all=True, append_images=[half_red(40, 20).rotate(180)]),
    },
    "a mask": {"url": "/v1/erase", "files": {"file": png(noise()), "mask": png(MASK)}},
    "no picture": {"url": "/v1/classify", "content": b"hello"},
    "nothing": {"url": "/v1/classify", "content": b""},
    "a damaged form": {"url": "/v1/classify", "content": b"--XX\r\n", "headers": FORM},
    "too much": {"url": "/v1/classify", "content": bytes(32 * 1024 * 1024 + 1)},
    "an unknown option": {"url": "/v1/face-blur?mode=pixels", "content": png(noise())},
    "not acceptable": {"url": "/v1/face-blur", "content": png(noise()), "headers": {"Accept": "text/html"}},
    "nowhere": {"url": "/nowhere", "content": b""},
    "no admin": {"url": "/v2/repository/models/centerface/unload", "content": b""},
    "an album of nothing": {"url": "/v1/batch/classify", "content": b"hello"},
}
OWN_HEADERS = {"date", "server", "server-timing", "x-request-id"}


def told(response: httpx.Response) -> tuple[int, bytes, dict[str, str]]:
    """What an answer says, without what differs from one moment or server to the other."""
    headers = {name: value for name, value in response.headers.items() if name not in OWN_HEADERS}
    return response.status_code, response.content, headers


@pytest.mark.parametrize("kind", REQUESTS)
def test_ray_answers_what_the_plain_server_answers_to_the_byte(
    kind: str, ray_client: httpx.Client, client: httpx.Client
) -> None:
    on_ray, plain = (http.post(**REQUESTS[kind]) for http in (ray_client, client))
    assert told(on_ray) == told(plain)
    assert "crossfade-onprem" in on_ray.headers.get_list("server")
    assert ("server-timing" in on_ray.headers) == ("server-timing" in plain.headers)


def test_a_wrong_method_is_a_problem_on_ray_too(ray_client: httpx.Client, client: httpx.Client) -> None:
    assert told(ray_client.get("/v1/classify")) == told(client.get("/v1/classify"))


def without_times(line: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(line)
    document.get("headers", {}).pop("server-timing", None)
    return document


def test_an_album_streams_line_by_line_and_says_the_same(ray_client: httpx.Client, client: httpx.Client) -> None:
    files = [("file", (f"{n}.png", png(noise(300, 200, seed=n)), "image/png")) for n in range(16)]
    files.insert(3, ("file", ("broken.png", b"hello", "image/png")))
    lines, arrivals = [], []
    began = time.monotonic()
    with ray_client.stream("POST", "/v1/batch/face-blur", files=files) as response:
        assert response.headers["content-type"] == "application/x-ndjson"
        for line in response.iter_lines():
            lines.append(without_times(line))
            arrivals.append(time.monotonic() - began)
    plain = [without_times(line) for line in client.post("/v1/batch/face-blur", files=files).text.splitlines()]
    assert sorted(lines, key=str) == sorted(plain, key=str)
    assert lines[-1] == {"done": True, "pictures": 17, "failed": 1}
    assert base64.b64decode(next(line["body"] for line in lines if line.get("index") == 0))[:4] == b"\x89PNG"
    assert arrivals[0] < arrivals[-1] * 0.8, "kept back, they would all come within the last hundredth"


def test_two_replicas_share_the_gpu_and_the_work(ray_client: httpx.Client) -> None:
    started = set()
    for _ in range(60):
        text = ray_client.get("/metrics").text
        started.add(re.search(r"^process_start_time_seconds (\S+)$", text, re.MULTILINE)[1])  # type: ignore[index]
    assert len(started) == 2


def test_what_is_too_much_for_a_replica_is_a_problem_with_retry_after(ray_client: httpx.Client) -> None:
    content = png(SAMPLES.astronaut())
    with ThreadPoolExecutor(32) as callers:
        answers = list(callers.map(lambda _: ray_client.post("/v1/face-blur", content=content), range(32)))
    refused = [answer for answer in answers if answer.status_code != 200]
    assert 0 < len(refused) < len(answers)
    for answer in refused:
        assert (answer.status_code, answer.json()["code"]) == (503, "overloaded")
        assert answer.headers["content-type"] == "application/problem+json"
        assert int(answer.headers["retry-after"]) >= 1


def test_the_replica_computes_where_ray_put_it() -> None:
    assert device_for("auto", ["0"]) == "cuda"
    assert device_for("auto", []) == "cpu"
    assert device_for("cpu", ["0"]) == "cpu"
    assert device_for("cuda:0", ["3"]) == "cuda:0"
    with pytest.raises(RuntimeError, match="num_gpus"):
        device_for("cuda:0", [])


def test_what_the_plain_server_would_not_understand_is_refused_when_building() -> None:
    with pytest.raises(ValueError, match=r"'ONPREM_POOLSIZE'; did you mean ONPREM_POOL_SIZE"):
        build({"ONPREM_POOLSIZE": "2"})
    with pytest.raises(ValueError, match="ONPREM_POOL_SIZE='many'"):
        build({"ONPREM_POOL_SIZE": "many"})
    with pytest.raises(ValueError, match="one replica of several"):
        build({"ONPREM_ADMIN_TOKEN": "secret"})


def test_a_replica_admits_more_than_its_queues_hold() -> None:
    settings = Settings(max_waiting=10, pool_size=3, max_batches={"classify": 64})
    held = sum(3 * settings.max_batch_for(feature, 32) + 1 + 10 for feature in settings.features)
    assert most_ongoing(settings) > held
