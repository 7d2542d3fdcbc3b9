"""Epochs: a build never seen before begins one, a known build does not, and rejects live as long as their epoch."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime

from compare.epochs import MANY_BUILDS
from compare.gates import State
from compare.measurement import Measurement, OutputClass
from compare.verdict import Decision, Verdict, judge
from tests.compare.examples import measured, policy, split_epochs

NOW = datetime(2026, 5, 5, tzinfo=UTC)
POLICY = policy()


def verdict(measurements: list[Measurement], previous: Verdict | None = None) -> Verdict:
    return judge(measurements, POLICY, None, now=NOW, previous=previous)


def with_builds(count: int, builds: list[str], seed: int = 0, **changes: object) -> list[Measurement]:
    """Return pairs whose candidate names one of the builds, at random; a failed one names none."""
    choose = random.Random(seed).choice
    drawn = [measured(n, build=choose(builds), **changes) for n in range(count)]  # type: ignore[arg-type]
    legs = [
        m.candidate and replace(m.candidate, build=None if m.candidate.failure else m.candidate.build) for m in drawn
    ]
    return [replace(m, candidate=leg) for m, leg in zip(drawn, legs, strict=True)]


def alternating_baseline(pairs: list[Measurement], builds: list[str]) -> list[Measurement]:
    choose = random.Random(1).choice
    return [replace(m, baseline=replace(m.baseline, build=choose(builds))) for m in pairs if m.baseline]


def test_two_builds_at_random_are_one_epoch_and_keep_all_evidence() -> None:
    failing = with_builds(1000, ["net-1"], output=None, failure="status 500")
    found = verdict(alternating_baseline(failing, ["photo-2", "anime-2"]))
    assert found.decision is Decision.REJECT
    assert found.epoch.number == 2
    assert found.pairs > 990
    assert found.epoch.baseline_build in ("photo-2 | anime-2", "anime-2 | photo-2")


def test_two_servers_with_different_builds_promote_together() -> None:
    found = verdict(with_builds(900, ["net-1 · host-a", "net-1 · host-b"]))
    assert found.decision is Decision.PROMOTE


def test_a_reject_survives_builds_that_only_repeat_and_ends_with_a_new_one() -> None:
    wrong = with_builds(100, ["a", "b"], output=OutputClass.DIFFERENT, codes=["scores"])
    rejected = verdict(wrong)
    assert rejected.decision is Decision.REJECT
    more = [replace(m, sequence=m.sequence + 100) for m in with_builds(20_000, ["b", "a"], seed=3)]
    assert verdict([*wrong, *more]).decision is not Decision.REJECT
    assert verdict([*wrong, *more], rejected).decision is Decision.REJECT
    fresh = [replace(m, sequence=m.sequence + 100) for m in with_builds(100, ["c"])]
    assert verdict([*wrong, *fresh], rejected).decision is Decision.HOLD
    assert verdict([*wrong, *fresh]).pairs == 100


def test_going_back_to_a_known_build_begins_no_epoch() -> None:
    stretches = [("a", 10), ("b", 10), ("a", 10)]
    pairs = [
        measured(n, build=name) for n, name in enumerate([name for name, count in stretches for _ in range(count)])
    ]
    assert [(epoch.number, count) for epoch, count in split_epochs(pairs)] == [(1, 10), (2, 20)]
    assert split_epochs(pairs)[-1][0].candidate_build == "b | a"


def test_a_build_named_anew_with_every_answer_stops_counting() -> None:
    pairs = [measured(n, build=f"net-1 request {n}") for n in range(1000)]
    epochs = split_epochs(pairs)
    assert len(epochs) == MANY_BUILDS
    assert epochs[-1][1] > 980
    assert "too many names" in epochs[-1][0].candidate_build
    assert verdict(pairs).decision is Decision.PROMOTE


def test_many_builds_over_a_long_time_are_epochs_each() -> None:
    pairs = [measured(n, build=f"release {n // 100}") for n in range(3000)]
    assert len(split_epochs(pairs)) == 30


def test_a_split_of_more_measurements_keeps_where_earlier_epochs_began() -> None:
    pairs = with_builds(60, ["a", "b", "c", "d"], seed=5)
    begun = [epoch.first_sequence for epoch, _ in split_epochs(pairs)]
    for length in range(1, 60):
        part = [epoch.first_sequence for epoch, _ in split_epochs(pairs[:length])]
        assert part == begun[: len(part)]


def test_a_throttling_baseline_does_not_reject_the_candidate() -> None:
    pairs = [
        measured(n, None, baseline_failure="status 429") if n % 5 < 3 else measured(n, control=OutputClass.IDENTICAL)
        for n in range(900)
    ]
    found = verdict(pairs)
    assert found.decision is not Decision.REJECT
    assert found.gate("G5").state is State.PASS
    assert found.gate("G6").n == 360
