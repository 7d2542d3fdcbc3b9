"""Where the store's tests keep things: both databases, and a bucket behind a real HTTP endpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shadow.store.postgres_server import PostgresServer
from tests.shadow.store.shelf import Shelf


@pytest.fixture(params=["sqlite", "postgresql"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    """A place for a store, in either database."""
    if request.param == "sqlite":
        return Shelf.in_folder(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    return Shelf.in_folder(tmp_path, url=server.new_database())
