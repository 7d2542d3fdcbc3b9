"""What every test shares: the async backend, a PostgreSQL, where the model files are, and what to do when a tool is
missing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.gateway.redis_server import RedisServer, redis_running
from tests.shadow.store.postgres_server import PostgresServer, postgres_server
from tests.workers import GroupScheduling, rank_of

# Each run draws the same examples, and none fails for its time; `--hypothesis-profile=default` draws others each time.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_configure() -> None:
    """Take up SIGINT again: a shell that runs the tests in the background hands it down ignored, also to children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the long groups first."""
    items.sort(key=lambda item: rank_of(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> GroupScheduling:
    """Deal the tests out by groups, whatever `--dist` says."""
    return GroupScheduling(config, log)


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


@pytest.fixture(params=[("own", "httptools"), ("httpx", "h11")], ids="-".join)
def each_wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a wire-level test on both transports and both parsers. One has the backend's side, the other the client's, so
    that each has to meet every test, but not each together with each."""
    transport, parser = request.param
    monkeypatch.setenv("CROSSFADE_TEST_TRANSPORT", transport)
    monkeypatch.setenv("CROSSFADE_TEST_PARSER", parser)


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own, which it may kill, stop and start again."""
    with redis_running(tmp_path) as server:
        yield server


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """The folder of model files; `make models` fills it."""
    folder = Path(os.environ.get("CROSSFADE_MODELS", "models")).resolve()
    assert folder.is_dir(), f"{folder} is missing: run `make models`, or set CROSSFADE_MODELS"
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests; each has a database of its own in it."""
    with postgres_server() as server:
        yield server
