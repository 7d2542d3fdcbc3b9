"""The job on routes that do not keep all bodies: what is dropped, what is judged, and what is never judged anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from compare.job import RouteResult, run
from compare.measurement import OutputClass
from compare.policy import Kind, Policy
from compare.results import class_name
from shadow.account import RouteAccount
from shadow.exchange import Exchange
from shadow.keeping import Bodies, KeepRule
from shadow.store.reader import Reader
from shadow.store.store import Store
from tests.compare.examples import answer, exchange, labels, policy

NOW = datetime(2026, 5, 5, tzinfo=UTC)
JSON = "application/json"
CLASSIFY = replace(policy(Kind.CLASSIFICATION, route="classify"), bodies=Bodies.MISMATCHES, kept_matches_percent=10.0)


def pairs(count: int, different: Sequence[int]) -> list[Exchange]:
    """Return pairs of which those named differ."""
    made = []
    for n in range(count):
        cat = labels(("cat", 0.9), ("dog", 0.05 + n / 10_000))
        sides = [answer("cloud", cat, JSON), answer("onprem", labels(("dog", 0.9)) if n in different else cat, JSON)]
        made.append(exchange(n, *sides, route="classify"))
    return made


def store_all(folder: Path, exchanges: list[Exchange], rule: KeepRule) -> None:
    async def save() -> None:
        store = Store.open(f"sqlite:///{folder}/record.db", folder / "bodies")
        store.configure({"classify": rule})
        for made in exchanges:
            await store.save(made)
        await store.save_accounts("run", {"classify": RouteAccount(len(exchanges), len(exchanges))})
        await store.aclose()

    asyncio.run(save())


def judge(folder: Path, chosen: Policy) -> tuple[RouteResult, dict[str, bool]]:
    """Run the job; return its result and whether each exchange still has its bodies."""
    reader = Reader.open(f"sqlite:///{folder}/record.db", folder / "bodies")
    (result,) = run(reader, [chosen], workers=0, now=lambda: NOW)
    kept = {e.id: e.primary.body is not None and reader.load(e.primary.body) is not None for e in reader.exchanges()}
    reader.close()
    return result, kept


def test_the_bodies_of_matches_go_once_judged_but_for_a_sample(tmp_path: Path) -> None:
    different = (3, 20)
    made = pairs(60, different)
    store_all(tmp_path, made, KeepRule(Bodies.MISMATCHES, 10.0))
    result, kept = judge(tmp_path, CLASSIFY)
    assert result.measured_now == 60
    assert [m.judgement.output_class is OutputClass.DIFFERENT for m in result.worst].count(True) == 2
    assert all(kept[made[n].id] for n in different)
    sample = [made[n].id for n in range(60) if n not in different and kept[made[n].id]]
    assert 0 < len(sample) < 20
    again, still = judge(tmp_path, CLASSIFY)
    assert (again.measured_now, still) == (0, kept)
    assert len(again.worst) == 60


def test_what_is_left_is_not_judged_anew_under_other_tolerances(tmp_path: Path) -> None:
    """Only the mismatches and a sample still have bodies: as evidence they would all speak against the candidate."""
    store_all(tmp_path, pairs(30, (1, 2, 3)), KeepRule(Bodies.MISMATCHES, 0.0))
    judge(tmp_path, CLASSIFY)
    other = replace(CLASSIFY, score_tolerance=0.5)
    result, _ = judge(tmp_path, other)
    assert (result.measured_now, result.worst) == (0, ())


def test_with_hashes_outputs_are_equal_or_different_and_the_report_says_so(tmp_path: Path) -> None:
    store_all(tmp_path, pairs(20, (4,)), KeepRule(Bodies.HASHES))
    hashes = replace(policy(Kind.BYTES, route="classify"), bodies=Bodies.HASHES)
    result, kept = judge(tmp_path, hashes)
    assert not any(kept.values())
    classes = [class_name(m) for m in result.worst]
    assert (classes.count("identical"), classes.count("different")) == (19, 1)
    (odd,) = [m for m in result.worst if m.judgement.output_class is OutputClass.DIFFERENT]
    assert [found.code for found in odd.judgement.diagnoses] == ["bytes_differ"]
    assert any("only hashes are kept" in gate.note for gate in result.verdict.gates)
