"""What is asked again and again costs the same however long the history is. ``benchmarks/dashboard_pages.py`` times the
same pages with a million rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

import httpx
import pytest
from sqlalchemy import event

from benchmarks.dashboard_pages import PAGES, fill, policies
from compare.dashboard.app import create_app
from compare.job import measure_some
from compare.results import Results
from shadow.keeping import Bodies
from shadow.store.reader import Reader
from tests.compare.dashboard.serving import running

SHORT, LONG = 2_000, 20_000
GROWS = ("exchanges", "observations", "pair_measurements", "pair_facets")
Filled = tuple[Reader, datetime]


@pytest.fixture(scope="module")
def long_history(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return fill(tmp_path_factory.mktemp("long"), policies(), LONG)


@pytest.fixture(scope="module")
def short_history(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    return fill(tmp_path_factory.mktemp("short"), policies(), SHORT)


def test_no_page_scans_a_table_that_grows_with_the_traffic(long_history: Filled) -> None:
    asked: set[tuple[str, tuple[object, ...]]] = set()
    reader, last_at = long_history
    app = create_app(reader, Results(reader.engine), policies(), now=lambda: last_at)

    def note(*call: object) -> None:
        asked.add((str(call[2]), tuple(call[3])))  # type: ignore[arg-type]

    event.listen(reader.engine, "before_cursor_execute", note)
    with running(app) as url, httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        for path in PAGES:
            assert client.get(path, headers={"accept": "text/html"}).status_code == 200, path
    event.remove(reader.engine, "before_cursor_execute", note)
    queries = {each for each in asked if "SELECT" in each[0]}
    assert len(queries) > len(PAGES)
    for statement, parameters in queries:
        assert scanned(reader, statement, parameters) == [], statement


def test_the_check_for_scans_can_fail(short_history: Filled) -> None:
    assert scanned(short_history[0], "SELECT DISTINCT route FROM exchanges", ()) != []


def scanned(reader: Reader, statement: str, parameters: tuple[object, ...]) -> list[str]:
    with reader.engine.connect() as connection:
        steps = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
    return [step for step in steps for table in GROWS if step.startswith(f"SCAN {table}")]


def test_what_is_asked_repeatedly_costs_no_more_with_ten_times_the_history(
    short_history: Filled, long_history: Filled
) -> None:
    short, long = costs(*short_history), costs(*long_history)
    for name, cost in long.items():
        assert cost < 1.5 * short[name] + 500, f"{name}: {short[name]} steps, then {cost}"


def costs(reader: Reader, last_at: datetime) -> dict[str, int]:
    """Return how many steps of its machine SQLite takes for each: a measure that no other load can change."""
    policy = policies()[0]
    lean = replace(policy, bodies=Bodies.MISMATCHES)
    results, found = Results(reader.engine), dict[str, int]()
    app = create_app(reader, results, policies(), now=lambda: last_at)
    with running(app) as url, httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
        paths = ["/", f"/routes/{policy.route}", f"/pairs/{policy.route}-7", "/-/events"]
        for path in paths:
            found[path] = counted_steps(reader, partial(first_bytes, client, path))
    found["count"] = counted_steps(reader, reader.count)
    found["measure"] = counted_steps(reader, lambda: measure_some(reader, results, lean, 8))
    found["accounts"] = counted_steps(reader, reader.accounts)
    return found


def first_bytes(client: httpx.Client, path: str) -> None:
    with client.stream("GET", path, headers={"accept": "text/html"}) as answer:
        assert answer.status_code == 200
        assert next(answer.iter_bytes())


def counted_steps(reader: Reader, ask: Callable[[], object]) -> int:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    def watch(connection: sqlite3.Connection, *_: object) -> None:
        connection.set_progress_handler(count, 1)

    reader.engine.dispose()  # so that each connection is a new one
    event.listen(reader.engine, "connect", watch)
    try:
        ask()
    finally:
        event.remove(reader.engine, "connect", watch)
        reader.engine.dispose()
    assert steps
    return steps
