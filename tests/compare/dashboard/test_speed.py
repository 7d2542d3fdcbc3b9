"""No page reads history again, however much is stored; the benchmark measures the same pages with a million rows."""

from __future__ import annotations

from pathlib import Path

import httpx
from sqlalchemy import event

from benchmarks.dashboard_pages import PAGES, fill, policies
from compare.dashboard.app import create_app
from compare.results import Results
from tests.compare.dashboard.serving import running

ROWS = 20_000
GROWS = ("exchanges", "observations", "pair_measurements", "pair_facets")


def test_no_page_scans_a_table_that_grows_with_the_traffic(tmp_path: Path) -> None:
    asked: set[tuple[str, tuple[object, ...]]] = set()
    reader, last_at = fill(tmp_path, policies(), ROWS)
    try:
        app = create_app(reader, Results(reader.engine), policies(), now=lambda: last_at)
        event.listen(reader.engine, "before_cursor_execute", lambda *call: asked.add((call[2], call[3])))
        with running(app) as url, httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
            for path in PAGES:
                assert client.get(path, headers={"accept": "text/html"}).status_code == 200, path
        queries = {each for each in asked if "SELECT" in each[0]}
        assert len(queries) > len(PAGES)
        with reader.engine.connect() as connection:
            for statement, parameters in queries:
                steps = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
                scanned = [step for step in steps for table in GROWS if step.startswith(f"SCAN {table}")]
                assert scanned == [], statement
    finally:
        reader.close()


def test_the_check_for_scans_can_fail(tmp_path: Path) -> None:
    reader, _ = fill(tmp_path, policies(), 1000)
    try:
        with reader.engine.connect() as connection:
            steps = connection.exec_driver_sql("EXPLAIN QUERY PLAN SELECT DISTINCT route FROM exchanges").all()
    finally:
        reader.close()
    assert any(step[3].startswith("SCAN exchanges") for step in steps)
