"""Servers for tests: in a thread, on a port that the system picks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import httpx
import uvicorn

from onprem_backend.app import create_app
from onprem_backend.catalog import SPECS, ModelSpec
from onprem_backend.manifest import MANIFEST, ModelFile
from onprem_backend.settings import Settings
from onprem_backend.tracing import Tracer, no_tracer
from tests.prompt_server import PromptServer

START_S = 300.0


@contextmanager
def running_app(
    settings: Settings,
    specs: Sequence[ModelSpec] = SPECS,
    *,
    tracer: Tracer = no_tracer,
    manifest: Mapping[str, ModelFile] = MANIFEST,
) -> Iterator[str]:
    """Serve until the block ends and yield the address, once every model was tried."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        create_app(settings, specs=specs, tracer=tracer, manifest=manifest),
        log_level="warning",
        server_header=False,
        ws="none",
        lifespan="on",
    )
    server = PromptServer(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="test-server")
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        wait_until_started(address)
        yield address
    finally:
        server.should_exit = True
        thread.join(60)
        listener.close()
        assert not thread.is_alive()


def wait_until_started(address: str) -> None:
    """Wait until no model is being loaded any more."""
    deadline = time.monotonic() + START_S
    with httpx.Client(base_url=address, timeout=30) as http:
        while time.monotonic() < deadline:
            try:
                states = http.get("/v2/health/ready").json()["models"].values()
            except httpx.TransportError:
                states = ["loading"]
            if "loading" not in states:
                return
            threading.Event().wait(0.05)
    raise AssertionError(f"the server did not start within {START_S:g} s")
