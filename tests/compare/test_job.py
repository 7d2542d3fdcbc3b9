"""The job on a real store: it continues, never counts twice, and its accounts add up."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from compare.coverage import Mark
from compare.job import RouteResult, run
from compare.marks import Marks
from compare.measurement import Measurement, NotComparable, OutputClass
from compare.measuring import measure_safely
from compare.policy import Kind, Policy, measurement_key, policy_hash
from compare.results import Results, class_name
from compare.table import render, table_rows
from compare.verdict import Decision
from shadow.account import RouteAccount
from shadow.exchange import Exchange, Failure, FailureKind, Observation, SkipReason
from shadow.store.database import writing
from shadow.store.reader import Reader
from shadow.store.store import Store
from tests.compare.examples import START, answer, encoded, exchange, labels, photo, policy

NOW = datetime(2026, 5, 5, tzinfo=UTC)
JSON = "application/json"
Fill = Callable[[Iterable[Exchange]], None]
CLASSIFY = policy(Kind.CLASSIFICATION, route="classify")
RESTORE = policy(Kind.IMAGE, route="restore")


@pytest.fixture
def place(tmp_path: Path) -> tuple[str, Path]:
    return f"sqlite:///{tmp_path / 'record.db'}", tmp_path / "bodies"


@pytest.fixture
def fill(place: tuple[str, Path]) -> Fill:
    async def save(exchanges: list[Exchange], accounts: dict[str, RouteAccount]) -> None:
        store = Store.open(*place)
        await asyncio.gather(*(store.save(made) for made in exchanges))
        await store.save_accounts("run", accounts)
        await store.aclose()

    def fill_store(exchanges: Iterable[Exchange]) -> None:
        made = list(exchanges)
        skipped = {SkipReason.NOT_SAMPLED: 5}
        with reading(place) as reader:
            counts = {route: reader.count(route) for route in {e.route for e in made}}
        for route in counts:
            counts[route] += sum(e.route == route for e in made)
        asyncio.run(save(made, {route: RouteAccount(n + 5, n, 0, skipped) for route, n in counts.items()}))

    return fill_store


@contextmanager
def reading(place: tuple[str, Path]) -> Iterator[Reader]:
    reader = Reader.open(*place)
    try:
        yield reader
    finally:
        reader.close()


def compare(place: tuple[str, Path], *policies: Policy, workers: int = 0) -> list[RouteResult]:
    with reading(place) as reader:
        return run(reader, policies, workers=workers, now=lambda: NOW)


def classified(numbers: range) -> Iterator[Exchange]:
    for n in numbers:
        kept = labels(("cat", 0.5 + n / 10_000), ("dog", 0.1))
        waits = (("cloud", 0.3), ("onprem", 0.1))
        sides = [answer(name, kept, "application/json", total_s=wait) for name, wait in waits]
        yield exchange(n, *sides, route="classify")


def restored(numbers: range, swap: bool = True) -> Iterator[Exchange]:
    for n in numbers:
        pixels = photo("chelsea")[n : n + 64, :96]
        good, bad = encoded(pixels), encoded(pixels[..., ::-1] if swap else pixels, compress_level=1)
        control = answer("cloud", encoded(pixels, compress_level=9)) if n % 2 else None
        yield exchange(n, answer("cloud", good), answer("onprem", bad), control, sent=good, route="restore")


def test_a_healthy_route_promotes_a_wrong_one_is_rejected_and_named(place: tuple[str, Path], fill: Fill) -> None:
    fill([*classified(range(850)), *restored(range(60))])
    healthy, wrong = compare(place, CLASSIFY, RESTORE)
    assert healthy.verdict.decision is Decision.PROMOTE
    assert healthy.verdict.coverage.received == 855
    assert healthy.verdict.coverage.balanced
    assert wrong.verdict.decision is Decision.REJECT
    assert wrong.verdict.reason.startswith("onprem swaps red and blue in 60 of 60 pairs")
    assert wrong.verdict.controls == 30
    rows = table_rows([healthy, wrong])
    assert (rows[0].identical, rows[0].pairs) == (850, 850)
    assert (rows[1].different, rows[1].baseline, rows[1].candidate) == (60, "200 ms", "200 ms")
    assert len(render([healthy, wrong]).renderables) == 6


def test_a_restart_continues_and_counts_nothing_twice(place: tuple[str, Path], fill: Fill) -> None:
    fill(classified(range(50)))
    first = compare(place, CLASSIFY)[0]
    again = compare(place, CLASSIFY)[0]
    fill(classified(range(50, 80)))
    later = compare(place, CLASSIFY)[0]
    assert (first.measured_now, again.measured_now, later.measured_now) == (50, 0, 30)
    assert [r.verdict.pairs for r in (first, again, later)] == [50, 50, 80]
    with reading(place) as reader:
        assert later.verdict.coverage.recorded == reader.count("classify") == 80
        assert Results(reader.engine).latest_verdict("classify") == later.verdict
        with reader.engine.connect() as connection:
            kept = connection.execute(text("SELECT decision FROM route_verdicts")).scalars().all()
    assert kept == ["hold"], "of those that decide the same the last is kept"


def test_two_jobs_that_measure_the_same_do_not_double_count(place: tuple[str, Path], fill: Fill) -> None:
    fill(classified(range(40)))
    result = compare(place, CLASSIFY)[0]
    with reading(place) as reader:
        results = Results(reader.engine)
        assert result.verdict.pairs == 40
        known = results.measurements("classify", measurement_key(CLASSIFY))
        assert results.add(measurement_key(CLASSIFY), known) == 0
        assert len(results.measurements("classify", measurement_key(CLASSIFY))) == 40


def test_counts_are_kept_with_the_measurements_and_made_up_for_where_they_are_missing(
    place: tuple[str, Path], fill: Fill
) -> None:
    fill([*classified(range(40)), *everyday(range(40, 80))])
    compare(place, CLASSIFY)
    key = measurement_key(CLASSIFY)
    with reading(place) as reader:
        found = Results(reader.engine).measurements("classify", key)
        filed = Counter(class_name(m) for m in found)
        assert len(found) == 80
        assert Results(reader.engine).counts("classify", key) == filed
        with writing(reader.engine).begin() as connection:
            connection.execute(text("DROP TABLE pair_counts"))
        results = Results(reader.engine)
        assert results.counts("classify", key) == filed
        assert results.add("other", found[:20]) == 20
        assert results.add("other", found) == 60
        assert results.counts("classify", "other") == filed


def test_another_policy_measures_anew_and_keeps_the_old_results(place: tuple[str, Path], fill: Fill) -> None:
    fill(classified(range(20)))
    strict = replace(CLASSIFY, score_tolerance=0.001)
    assert compare(place, CLASSIFY)[0].measured_now == 20
    assert compare(place, strict)[0].measured_now == 20
    with reading(place) as reader:
        results = Results(reader.engine)
        newest = results.latest_verdict("classify")
        assert newest is not None
        assert newest.policy_hash == policy_hash(strict)
        older = results.latest_verdict("classify", policy_hash(CLASSIFY))
        assert older is not None
        assert older.policy_hash == policy_hash(CLASSIFY)


def test_a_pool_of_processes_gives_the_same_measurements(place: tuple[str, Path], fill: Fill) -> None:
    fill(restored(range(30)))
    pooled = compare(place, RESTORE, workers=2)[0]
    here = compare(place, replace(RESTORE, top_k=6))[0]
    assert here.measured_now == 30
    assert len(pooled.worst) == 30
    assert [m.judgement for m in pooled.worst] == [m.judgement for m in here.worst]
    assert pooled.faults == 0


def test_failures_losses_and_faults_are_all_accounted_for(place: tuple[str, Path], fill: Fill) -> None:
    made = list(restored(range(6), swap=False))
    timeout = Observation("onprem", "onprem-1", failure=Failure(FailureKind.TIMEOUT))
    made[0] = replace(made[0], shadow=timeout)
    made[1] = replace(made[1], shadow=None)
    made[2] = replace(made[2], shadow=answer("onprem", b"corrupt"))
    fill(made)
    found = compare(place, RESTORE)[0].verdict
    assert found.coverage.recorded == 6
    assert found.coverage.not_comparable == {NotComparable.NO_SHADOW_ANSWER.value: 1}
    assert found.coverage.compared == 5
    assert found.pairs == 5
    assert found.candidate_failed == 1
    assert found.classes == {OutputClass.BROKEN: 1, OutputClass.IDENTICAL: 3}


def test_a_damaged_body_on_disk_is_a_named_loss(place: tuple[str, Path], fill: Fill) -> None:
    pixels = photo("astronaut")
    made = exchange(0, answer("cloud", encoded(pixels)), answer("onprem", encoded(pixels[::-1])), route="restore")
    fill([made])
    files = [path for path in place[1].rglob("*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(b"damaged")
    found = compare(place, RESTORE)[0].verdict
    assert found.coverage.not_comparable == {"bodies_not_kept": 1}


def test_progress_tells_how_much_is_done(place: tuple[str, Path], fill: Fill) -> None:
    fill(classified(range(70)))
    told: list[tuple[str, int, int]] = []
    with reading(place) as reader:
        run(reader, [CLASSIFY], workers=0, now=lambda: NOW, progress=lambda *now: told.append(now))
    assert told[0] == ("classify", 0, 70)
    assert told[-1] == ("classify", 70, 70)
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)


def test_the_worst_pairs_come_first_and_by_class(place: tuple[str, Path], fill: Fill) -> None:
    fill([*restored(range(3)), *(replace(e, id=f"fine-{e.id}") for e in restored(range(3), swap=False))])
    compare(place, RESTORE)
    digest = measurement_key(RESTORE)
    with reading(place) as reader:
        results = Results(reader.engine)
        worst = results.worst("restore", digest, limit=4)
        assert [m.judgement.output_class for m in worst] == [OutputClass.DIFFERENT] * 3 + [OutputClass.IDENTICAL]
        assert len(results.worst("restore", digest, class_="identical")) == 3
        assert results.counts("restore", digest) == {"different": 3, "identical": 3}
        assert results.measurement(worst[0].exchange_id, digest) == worst[0]


def test_an_empty_route_is_held_with_no_data(place: tuple[str, Path], fill: Fill) -> None:
    fill(classified(range(1)))
    found = compare(place, RESTORE)[0]
    assert found.verdict.decision is Decision.HOLD
    assert found.verdict.pairs == 0


def everyday(numbers: range) -> Iterator[Exchange]:
    """Yield healthy traffic as it is: other bytes and slightly other scores on both sides, two servers with builds of
    their own, control calls, requests that both sides refuse, and a throttled baseline now and then."""
    for n in numbers:
        score = 0.5 + n / 10_000
        builds = ((b"X-Model", b"net-1"), (b"Server", b"host-a" if n % 3 else b"host-b"))
        old = answer("cloud", labels(("cat", score), ("dog", 0.1)), JSON, total_s=0.3 + n % 7 / 100, headers=builds)
        new = answer("onprem", labels(("cat", score + 0.004), ("dog", 0.1)), JSON, total_s=0.1, headers=builds)
        control = replace(old, total_s=0.35) if n % 10 == 0 else None
        if n % 50 == 7:
            old, new = (answer(name, b"no", "text/plain", status=415) for name in ("cloud", "onprem"))
        elif n % 50 == 8:
            old = answer("cloud", b"slow down", "text/plain", status=429)
        yield exchange(n, old, new, control, route="classify")


def test_everyday_traffic_promotes_end_to_end(place: tuple[str, Path], fill: Fill) -> None:
    fill(everyday(range(885)))
    found = compare(place, CLASSIFY, workers=2)[0]
    assert found.verdict.decision is Decision.PROMOTE, found.verdict.reason
    assert found.verdict.classes == {OutputClass.EQUIVALENT: 849 - 1}
    assert found.verdict.both_refused == 18
    assert found.verdict.epoch.number == 2
    assert found.verdict.coverage.balanced
    row = table_rows([found])[0]
    assert (row.equivalent, row.refused, row.failed) == (848, 18, 18)


def die_at_thirty(exchange: Exchange, policy: Policy) -> Measurement:
    if exchange.id == "classify-30":
        os._exit(9)
    return measure_safely(exchange, policy)


def test_a_killed_worker_costs_one_measurement_and_the_job_goes_on(place: tuple[str, Path], fill: Fill) -> None:
    fill(classified(range(70)))
    with reading(place) as reader:
        found = run(reader, [CLASSIFY], workers=2, now=lambda: NOW, measure=die_at_thirty)[0]
    assert (found.measured_now, found.faults) == (70, 1)
    assert found.verdict.coverage.not_comparable == {"kernel_fault": 1}
    assert compare(place, CLASSIFY)[0].measured_now == 0


def test_a_change_beside_the_measuring_measures_nothing_anew(place: tuple[str, Path], fill: Fill) -> None:
    fill(classified(range(60)))
    assert compare(place, CLASSIFY)[0].measured_now == 60
    raised = replace(CLASSIFY, mirror_percent=50.0, routes=7, deadline_s=9.0, min_pairs=70, alpha=0.01)
    found = compare(place, raised)[0]
    assert found.measured_now == 0
    assert found.verdict.pairs == 60


def test_purged_bodies_are_no_evidence_and_do_not_hold_what_comes_after(place: tuple[str, Path], fill: Fill) -> None:
    fill(classified(range(400)))
    with reading(place) as reader:
        reader.purge(NOW + timedelta(days=30))
    fill(classified(range(400, 1250)))
    found = compare(place, CLASSIFY)[0]
    assert found.verdict.coverage.not_comparable == {"bodies_not_kept": 400}
    assert found.verdict.classes == {OutputClass.IDENTICAL: 850}
    assert found.verdict.decision is Decision.PROMOTE, found.verdict.reason


def test_losses_of_a_run_that_is_over_are_placed_before_the_next(place: tuple[str, Path]) -> None:
    async def save() -> None:
        clock = iter(START + timedelta(hours=hours) for hours in (-9, -8, -1, 9))
        store = Store.open(*place, now=lambda: next(clock))
        await store.save_accounts("old", {"classify": RouteAccount(0, 0, 0, {})})
        await store.save_accounts("old", {"classify": RouteAccount(103, 0, 3, {SkipReason.BREAKER_OPEN: 100})})
        await store.save_accounts("new", {"classify": RouteAccount(0, 0, 0, {})})
        await asyncio.gather(*(store.save(made) for made in classified(range(900))))
        await store.save_accounts("new", {"classify": RouteAccount(905, 900, 0, {SkipReason.QUEUE_FULL: 5})})
        await store.aclose()

    asyncio.run(save())
    found = compare(place, CLASSIFY)[0]
    assert found.verdict.decision is Decision.PROMOTE, found.verdict.reason
    assert found.verdict.coverage.losses == {"queue_full": 5}
    assert found.verdict.coverage.skipped == {"breaker_open": 100, "lost": 3, "queue_full": 5}


def test_the_job_marks_what_was_lost_so_that_a_route_recovers(place: tuple[str, Path]) -> None:
    async def save(made: Iterable[Exchange], account: RouteAccount) -> None:
        store = Store.open(*place)
        await asyncio.gather(*(store.save(each) for each in made))
        await store.save_accounts("run", {"classify": account})
        await store.aclose()

    lost = {SkipReason.BREAKER_OPEN: 100}
    asyncio.run(save(classified(range(100)), RouteAccount(200, 100, 0, lost)))
    with reading(place) as reader:
        early = run(reader, [CLASSIFY], workers=0, now=lambda: START + timedelta(seconds=100))[0]
    assert early.verdict.coverage.share == 0.5
    asyncio.run(save(classified(range(100, 1000)), RouteAccount(1100, 1000, 0, lost)))
    later = compare(place, CLASSIFY)[0]
    assert later.verdict.coverage.share == 1
    assert later.verdict.decision is Decision.PROMOTE, later.verdict.reason
    with reading(place) as reader:
        marks = Marks(reader.engine)
        assert [mark.lost for mark in marks.of("classify") if mark.lost] == [{"breaker_open": 100}]
        assert marks.add("classify", Mark(NOW, {"breaker_open": 101}))
        assert not marks.add("classify", Mark(NOW + timedelta(seconds=30), {"breaker_open": 102}))
        assert not marks.add("classify", Mark(NOW + timedelta(hours=1), {"breaker_open": 101}))
