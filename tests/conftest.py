"""What every test shares: the async backend, where the model files are, and what to do when a tool is missing."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """Take up SIGINT again: a shell that runs the tests in the background hands it down ignored, also to children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["own", "httpx"])
def each_transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a wire-level test with both of the gateway's transports: what is seen must not depend on which one it is."""
    monkeypatch.setenv("CROSSFADE_TEST_TRANSPORT", request.param)
    return str(request.param)


@pytest.fixture(params=["httptools", "h11"])
def each_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a wire-level test on both of uvicorn's parsers: what is seen must not depend on which one it is."""
    monkeypatch.setenv("CROSSFADE_TEST_PARSER", request.param)
    return str(request.param)


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """The folder of model files; `make models` fills it."""
    folder = Path(os.environ.get("CROSSFADE_MODELS", "models")).resolve()
    assert folder.is_dir(), f"{folder} is missing: run `make models`, or set CROSSFADE_MODELS"
    return folder
