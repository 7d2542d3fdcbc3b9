"""Filters of the list of pairs, as they stand in an address: all pairs are searched, without reading their bodies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import event, inspect, select, text

from compare.dashboard.views.pairlist import PairFilter
from compare.facets import Wanted, facets
from compare.measurement import Measurement, OutputClass
from compare.results import Results
from shadow.store.reader import Reader
from tests.compare.dashboard.conftest import Site
from tests.compare.examples import measured
from tests.shadow.store.postgres_server import postgres_server

MANY = 20_000
RARE = measured(30, codes=["rotated", "scores"], candidate_s=0.7, build="net-2 · onprem")
BROKEN = measured(31, OutputClass.BROKEN, codes=["undecodable"], failure=None)
FAILED = measured(32, None, failure="timeout")


def found(results: Results, chosen: PairFilter, limit: int = 24) -> tuple[list[str], int]:
    pairs, total = results.find("route", "key", chosen.wanted(), 0, limit)
    return [m.exchange_id for m in pairs], total


@pytest.mark.parametrize(
    ("query", "taken"),
    [
        ({"diagnosis": "rotated"}, True),
        ({"diagnosis": "scores"}, True),
        ({"diagnosis": "rotate"}, False),
        ({"diagnosis": "rot_ted"}, False),
        ({"diagnosis": "%"}, False),
        ({"diagnosis": "mirrored"}, False),
        ({"since": "2026-05-04T12:00:30"}, True),
        ({"since": "2026-05-04T12:01"}, False),
        ({"until": "2026-05-04T12:01"}, True),
        ({"until": "2026-05-04T12:00:30"}, False),
        ({"slower": "0.7"}, True),
        ({"slower": "0.8"}, False),
        ({"model": "NET-2"}, True),
        ({"model": "net-3"}, False),
        ({"model": "net_2"}, False),
        ({"model": "net-2\0"}, True),
        ({"show": "identical", "model": "net-2"}, True),
        ({"show": "mismatch", "model": "net-2"}, False),
        ({"model": "net-2", "slower": "0.5", "diagnosis": "rotated"}, True),
    ],
)
def test_each_filter_takes_what_it_names(reader: Reader, query: dict[str, str], taken: bool) -> None:
    results = Results(reader.engine)
    results.add("key", [RARE])
    results.add("another key", [RARE])
    chosen = PairFilter.of(query)
    assert chosen.sifts
    assert found(results, chosen) == ((["x30"], 1) if taken else ([], 0))
    assert PairFilter.of(dict(httpx.QueryParams(chosen.query()[1:]))) == chosen


def test_a_failure_took_for_ever_and_the_worst_come_first(reader: Reader) -> None:
    results = Results(reader.engine)
    results.add("key", [RARE, FAILED, BROKEN])
    assert found(results, PairFilter(slower="0.1")) == (["x31", "x32", "x30"], 3)
    assert found(results, PairFilter(slower="100")) == (["x32"], 1)
    assert found(results, PairFilter(slower="0.1"), limit=1) == (["x31"], 3)


def test_a_pair_that_comes_again_is_found_once(reader: Reader) -> None:
    results = Results(reader.engine)
    results.add("key", [RARE])
    results.add("key", [RARE, FAILED])
    assert found(results, PairFilter(slower="0.1")) == (["x32", "x30"], 2)


def test_filters_find_the_same_in_postgresql(tmp_path: Path) -> None:
    with postgres_server() as server:
        reader = Reader.open(server.new_database(), tmp_path / "bodies", key=f"file:{tmp_path / 'key'}")
        try:
            results = Results(reader.engine)
            results.add("key", [RARE, FAILED, BROKEN])
            results.add("key", [FAILED])
            assert found(results, PairFilter(slower="100")) == (["x32"], 1)
            assert found(results, PairFilter(slower="0.1"), limit=2) == (["x31", "x32"], 3)
            assert found(results, PairFilter(model="NET-2\0", diagnosis="rotated")) == (["x30"], 1)
            assert found(results, PairFilter(diagnosis="rot_ted")) == ([], 0)
            assert reader.routes() == []
        finally:
            reader.close()


def many() -> Iterator[Measurement]:
    for n in range(MANY):
        yield measured(n, OutputClass.DIFFERENT if n % 4 == 0 else OutputClass.IDENTICAL, candidate_s=0.1 + n % 10)


def test_a_filter_finds_the_least_urgent_of_many_and_reads_no_body_for_it(reader: Reader) -> None:
    results = Results(reader.engine)
    results.add("key", list(many()))
    rare = measured(MANY, codes=["rotated"], build="net-9")
    results.add("key", [rare])
    asked: list[tuple[str, tuple[object, ...]]] = []
    event.listen(reader.engine, "before_cursor_execute", lambda *a: asked.append((a[2], a[3])))
    assert found(results, PairFilter(model="net-9")) == ([rare.exchange_id], 1)
    assert found(results, PairFilter(diagnosis="rotated")) == ([rare.exchange_id], 1)
    assert len(found(results, PairFilter(slower="9"))[0]) == 24
    with reader.engine.connect() as connection:
        for statement, parameters in [each for each in asked if "SELECT" in each[0]]:
            plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
            steps = [row[3] for row in plan]
            assert not [step for step in steps if step.startswith("SCAN pair_")], steps
            assert [step for step in steps if "pair_facets USING PRIMARY KEY (route=? AND key=?)" in step], steps


def test_a_database_from_before_the_filters_is_filled_up_and_resumes(reader: Reader) -> None:
    old = Results(reader.engine)
    old.add("key", list(many())[:2500])
    with reader.engine.begin() as connection:
        connection.execute(text("DROP TABLE pair_facets"))
        connection.execute(text("DROP TABLE pair_facets_backlog"))
    results = Results(reader.engine)
    assert found(results, PairFilter(slower="0.1"))[1] == 2500
    with reader.engine.begin() as connection:  # somebody stopped in the middle
        connection.execute(facets.delete().where(facets.c.sequence > 1500))
        connection.execute(text("INSERT INTO pair_facets_backlog VALUES ('route', 'key', 1500)"))
    results = Results(reader.engine)
    assert results.find("route", "key", Wanted(classes=("different",)), 0, 1)[1] == 625
    assert found(results, PairFilter(slower="0.1"))[1] == 2500
    with reader.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM pair_facets_backlog")).scalar_one() == 0
        assert inspect(connection).has_table(facets.name)
        assert connection.execute(select(facets.c.candidate_s).limit(1)).scalar_one() >= 0.1


@pytest.mark.parametrize("query", [{"since": "<script>"}, {"slower": "nan"}, {"slower": "-1"}, {"show": "everything"}])
def test_what_means_nothing_is_left_out(query: dict[str, str]) -> None:
    assert PairFilter.of(query) == PairFilter()


def test_the_page_says_how_many_it_found(site: Site) -> None:
    text = httpx.get(f"{site.url}/routes/restore?slower=0.3&show=mismatch", trust_env=False).text
    assert "39 found" in text
    assert 'value="0.3"' in text
