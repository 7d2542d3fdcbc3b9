"""The backends that most of the gateway's tests need, and a gateway in front of one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.backend import Backend, answering, plain
from tests.gateway.harness import Running, one_route, running


@pytest.fixture
def backend() -> Iterator[Backend]:
    with Backend(answering(plain())) as server:
        yield server


@pytest.fixture
def cloud() -> Iterator[Backend]:
    with Backend(answering(plain(b"cloud"))) as server:
        yield server


@pytest.fixture
def onprem() -> Iterator[Backend]:
    with Backend(answering(plain(b"onprem"))) as server:
        yield server


@pytest.fixture
def gateway(backend: Backend) -> Iterator[Running]:
    with running(one_route(backend.url)) as gateway:
        yield gateway
