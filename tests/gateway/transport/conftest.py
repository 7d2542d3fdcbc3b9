"""Every test of the transport that runs on an event loop runs on both: the standard library's and uvloop."""

from __future__ import annotations

import pytest


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}
