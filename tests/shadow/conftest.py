"""Where the store's tests keep things: both databases, and a bucket behind a real HTTP endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shadow.store.postgres_server import PostgresServer, postgres_server
from tests.shadow.store.shelf import Shelf


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL for all tests; each has a database of its own in it."""
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> Shelf:
    """A place for a store, in either database."""
    if request.param == "sqlite":
        return Shelf.in_folder(tmp_path)
    server: PostgresServer = request.getfixturevalue("postgres")
    return Shelf.in_folder(tmp_path, url=server.new_database())
