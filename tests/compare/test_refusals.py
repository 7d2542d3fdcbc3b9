"""Pairs that one side or both refused: no output, no wait for one, and no evidence where both did."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from compare.gates import State
from compare.measurement import Measurement, OutputClass
from compare.policy import Policy
from compare.verdict import Decision, Verdict, judge
from tests.compare.examples import measured, policy

NOW = datetime(2026, 5, 5, tzinfo=UTC)
SAME, OTHER = OutputClass.IDENTICAL, OutputClass.DIFFERENT
POLICY = policy()


def verdict(measurements: list[Measurement], rules: Policy = POLICY, previous: Verdict | None = None) -> Verdict:
    return judge(measurements, rules, None, now=NOW, previous=previous)


def clean(count: int) -> list[Measurement]:
    return [measured(n, control=SAME if n % 2 else None) for n in range(count)]


def refused(number: int, baseline: int, candidate: int) -> Measurement:
    """Return a pair that both sides refused."""
    made = measured(number, None)
    assert made.baseline is not None
    assert made.candidate is not None
    return replace(
        made,
        baseline=replace(made.baseline, status=baseline, build=None),
        candidate=replace(made.candidate, status=candidate, build=None),
    )


@pytest.mark.parametrize("statuses", [(404, 404), (401, 401), (302, 302), (404, 410)])
def test_two_dead_endpoints_promote_nothing(statuses: tuple[int, int]) -> None:
    found = verdict([refused(n, *statuses) for n in range(850)])
    assert found.decision is Decision.HOLD
    assert found.both_refused == 850
    assert found.pairs == 0
    assert found.gate("G1").n == 0
    assert all(gate.state is State.NODATA for gate in found.gates)
    assert "both sides refused: 850 pairs" in found.reason
    assert str(statuses[0]) in found.reason


def test_refused_pairs_beside_good_ones_count_for_nothing_and_are_named() -> None:
    mixed = [*clean(850), *(refused(n, 404, 404) for n in range(850, 950))]
    found = verdict(mixed)
    assert found.decision is Decision.PROMOTE
    assert found.gate("G7").n == 850
    assert found.gate("G1").n == 850
    assert found.refused == {"404": 100}
    assert found.coverage.both_refused == 100
    assert found.coverage.compared == 950
    few = verdict([*clean(50), *(refused(n, 404, 404) for n in range(50, 950))])
    assert "50 of 60 pairs that both sides answered" in few.gate("P0").note


def test_a_candidate_that_refuses_everything_is_rejected() -> None:
    pairs = [replace(measured(n, OTHER, codes=["status"])) for n in range(60)]
    gone = [replace(m, candidate=replace(m.candidate, status=404)) for m in pairs if m.candidate]
    found = verdict(gone)
    assert found.decision is Decision.REJECT
    assert found.gate("G1").state is State.NODATA
