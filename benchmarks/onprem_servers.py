"""The two servers that the model server's benchmarks compare, as processes of their own, and the requests for both.

The plain way is what one writes first: every model once, behind one lock, torch's own number of threads, all steps in
the handler's thread. It decodes, computes and encodes with the very functions of ``onprem_backend``, so that outputs
are equal and only the way of serving differs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from starlette.responses import Response

START_S = 300.0
PLAIN_MODELS = ("efficientnet-lite0", "u2netp", "centerface", "realesr-animevideov3-x4", "opencv-telea")
FUNCTIONS = ("classify", "remove-background", "face-blur", "restore", "erase")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server."""

    name: str
    address: str
    pid: int

    def cpu_s(self) -> float:
        """CPU seconds that the process has used, user and system."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        """Resident memory now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def running(name: str, models: Path) -> Iterator[Server]:
    """Run the server ``ours`` or ``plain`` until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as picked:
        port = picked.getsockname()[1]
    module = "onprem_backend" if name == "ours" else "benchmarks.onprem_servers"
    command = [sys.executable, "-m", module, "--port", str(port), "--models", str(models)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait(address, process)
        yield Server(name, address, process.pid)
    finally:
        process.terminate()
        process.wait(30)


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{address}/v2/health/ready", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        threading.Event().wait(0.2)
    raise RuntimeError(f"the server at {address} did not start")


def requests_for(function: str) -> list[dict[str, Any]]:
    """Return a few different requests for a function, as arguments of ``httpx.Client.post``."""
    import cv2
    import numpy as np

    samples: Any = importlib.import_module("skimage.data")  # it carries no types
    small = function == "restore"
    size = (64, 48) if small else (512, 384)
    pictures = [cv2.resize(image, size) for image in (samples.astronaut(), samples.coffee(), samples.chelsea())]
    encoded = [cv2.imencode(".png", picture[:, :, ::-1])[1].tobytes() for picture in pictures]
    url = f"/v1/{function}"
    if function != "erase":
        return [{"url": url, "content": content} for content in encoded]
    mask = np.zeros((size[1], size[0]), dtype=np.uint8)
    mask[100:140, 200:260] = 255
    marked = cv2.imencode(".png", mask)[1].tobytes()
    return [{"url": url, "files": {"file": content, "mask": marked}} for content in encoded]


Work = Callable[[str, bytes, bytes | None], "Response"]
"""Answers one picture (function, picture, mask). Blocking."""


def plain_work(models: Path) -> Work:
    """Return the plain way's work, all of it behind one lock. Blocking: loads the models."""
    import torch
    from starlette.responses import JSONResponse, Response

    from onprem_backend.catalog import SPECS
    from onprem_backend.encoding import choose_media_type, encode
    from onprem_backend.images import Limits, decode
    from onprem_backend.masks import decode_mask
    from onprem_backend.options import check_options
    from onprem_backend.runtime import Runtime
    from onprem_backend.sessions import BatchModel, Job
    from onprem_backend.torchvision_mend import mend

    mend()
    runtime = Runtime(models, torch.device("cpu"), "torch", torch.get_num_threads(), 960)
    loaded = {spec.feature: (spec, spec.load(runtime)) for spec in SPECS if spec.name in PLAIN_MODELS}
    lock = threading.Lock()
    limits = Limits(50_000_000, 1000)

    def work(function: str, image: bytes, mask: bytes | None) -> Response:
        spec, model = loaded[function]
        with lock:
            picture = decode(image, limits)
            marked = None if mask is None else decode_mask(mask, limits, picture.size)
            job = Job(picture, marked, check_options(function, {}))
            result = model.run(job) if isinstance(model, BatchModel) else model()(job)
            if result.picture is None:
                return JSONResponse(result.document)
            transparent = spec.adds_alpha or picture.alpha is not None
            longest_px = max(picture.size) * spec.scale
            media_type = choose_media_type(
                None, source_format=picture.format, transparent=transparent, longest_px=longest_px
            )
            return Response(encode(result.picture, media_type), media_type=media_type)

    return work


def plain_app(work: Work) -> Any:
    """Return the plain way as an application."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def serve(request: Request) -> Response:
        function = request.path_params["function"]
        if function != "erase":
            return await run_in_threadpool(work, function, await request.body(), None)
        form = await request.form()
        image, mask = [await form[name].read() for name in ("file", "mask")]  # type: ignore[union-attr]
        return await run_in_threadpool(work, function, image, mask)

    async def ready(request: Request) -> Response:
        return JSONResponse({"ready": True})

    return Starlette(
        routes=[Route("/v1/{function}", serve, methods=["POST"]), Route("/v2/health/ready", ready, methods=["GET"])]
    )


def main() -> None:
    """Serve the plain way."""
    import uvicorn

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--models", type=Path, required=True)
    arguments = parser.parse_args()
    uvicorn.run(plain_app(plain_work(arguments.models)), port=arguments.port, log_level="warning", server_header=False)


if __name__ == "__main__":
    main()
