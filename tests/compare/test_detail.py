"""What stands behind a verdict: the sentence on latency, what would change it, waits by size and hour, idle rules."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from compare.detail import coverage_steps, idle_rules, plain_words, wait_tables
from compare.gates import Unit
from compare.latency import span, tail_words, times
from compare.measurement import UNMATCHED, Judgement, Measurement, Number, OutputClass
from compare.policy import Policy
from compare.reasons import amount
from compare.state import fold
from compare.stats import Percentile
from compare.table import seconds, share
from compare.verdict import Verdict, judge
from shadow.account import RouteAccount
from shadow.exchange import SkipReason
from tests.compare.examples import measured, policy

NOW = datetime(2026, 5, 5, tzinfo=UTC)
POLICY = policy()


def verdict(pairs: list[Measurement], rules: Policy = POLICY, account: RouteAccount | None = None) -> Verdict:
    return judge(pairs, rules, account, now=NOW)


def waits(count: int, ratio: float) -> list[Measurement]:
    return [measured(n, baseline_s=0.3 + n % 7 / 100, candidate_s=ratio * (0.3 + n % 5 / 100)) for n in range(count)]


@pytest.mark.parametrize(
    ("count", "ratio", "words"),
    [
        (100, 0.5, "95th percentile not yet known, 74 more pairs"),
        (400, 0.5, "times faster at the 95th percentile"),
        (400, 2.0, "times slower at the 95th percentile"),
        (400, 1.03, "about as fast at the 95th percentile"),
        (0, 1.0, "nothing is known of the 95th percentile"),
    ],
)
def test_latency_is_told_in_one_sentence_with_what_is_not_known_yet(count: int, ratio: float, words: str) -> None:
    found = plain_words(verdict(waits(count, ratio)), POLICY)
    assert found.startswith("onprem is ")
    assert found.endswith(words), found


def test_what_would_change_a_hold_names_every_open_gate_and_its_pairs() -> None:
    found = verdict([measured(n, every_s=0.1) for n in range(60)])
    assert any(line.startswith("errors (G5): about 329 more pairs;") for line in found.changes)
    assert any(line.startswith("coverage (P0) is not enough") and "observed" in line for line in found.changes)
    slowest = max((gate for gate in found.gates if gate.required), key=lambda gate: gate.more or 0)
    assert found.reason.endswith(
        f"about {slowest.more:,} more pairs settle it, the most for {slowest.title} ({slowest.id})."
    )
    assert len(found.reason) < 120


def test_what_would_change_a_reject_and_a_promote() -> None:
    wrong = verdict([measured(n, OutputClass.BROKEN, codes=["size"]) for n in range(400)])
    said = wrong.changes
    assert "stays until a build" in said[0]
    assert any("More pairs do not mend it" in line for line in said)
    good = verdict([measured(n, control=OutputClass.IDENTICAL) for n in range(900)]).changes
    assert len(good) == 1
    assert "would change this to hold or reject" in good[0]


def test_waits_are_told_by_size_hour_part_and_pace() -> None:
    pairs = []
    for n in range(6):
        made = measured(n, every_s=1800.0)
        assert made.baseline is not None
        assert made.candidate is not None
        numbers: dict[str, Number] = {"baseline_ttft_s": 0.2, "candidate_ttft_s": 0.1}
        pairs.append(
            replace(
                made,
                request_bytes=10 ** (3 + n),
                baseline=replace(made.baseline, first_byte_s=0.2),
                candidate=replace(made.candidate, first_byte_s=0.05, queue_s=0.01, inference_s=0.03),
                judgement=Judgement(OutputClass.IDENTICAL, numbers),
            )
        )
    tables = {table.title: {row.name: row for row in table.rows} for table in wait_tables(fold(pairs, POLICY).tally)}
    assert list(tables["by size of the request"]) == [
        "up to 10 KB", "10 to 100 KB", "100 KB to 1 MB", "1 to 10 MB", "over 10 MB",
    ]  # fmt: skip
    assert [row.baseline_p50.n for row in tables["by size of the request"].values()] == [2, 1, 1, 1, 1]
    assert list(tables["by hour"]) == [f"2026-05-04 {hour}:00 UTC" for hour in (12, 13, 14)]
    assert tables["parts of the answer"]["first byte"].candidate_p50.value == 0.05
    queue = tables["parts of the answer"]["queue (the backend says)"]
    assert (queue.baseline_p50.n, queue.candidate_p50.value) == (0, 0.01)
    assert tables["event streams"]["time to first token"].candidate_p50.value == 0.1


def test_c04_a_rule_is_idle_only_if_no_document_had_its_path() -> None:
    def walked(n: int, unmatched: str) -> Measurement:
        numbers: dict[str, Number] = {"differences": 0, **({UNMATCHED: unmatched} if unmatched else {})}
        return replace(measured(n), judgement=Judgement(OutputClass.IDENTICAL, numbers))

    pairs = [walked(0, "a, b"), walked(1, "b"), walked(2, "a, b"), measured(3)]
    assert idle_rules(fold(pairs, POLICY).tally) == ("b",)
    assert idle_rules(fold([measured(1)], POLICY).tally) == ()


def test_the_funnel_leaves_out_what_was_never_to_be_mirrored() -> None:
    account = RouteAccount(100, 60, 0, {SkipReason.NOT_SAMPLED: 30, SkipReason.QUEUE_FULL: 10})
    found = verdict([measured(n) for n in range(60)], account=account)
    assert coverage_steps(found.coverage, 60) == (
        ("received", 100), ("to be mirrored", 70), ("recorded", 60), ("compared", 60), ("outputs judged", 60),
    )  # fmt: skip
    assert coverage_steps(verdict([measured(1)]).coverage, 1)[0] == ("recorded", 1)


def test_two_sides_that_are_known_to_take_as_long_are_said_to_be_as_fast() -> None:
    same = verdict([measured(n, baseline_s=0.2, candidate_s=0.2) for n in range(200)])
    assert plain_words(same, POLICY).startswith("onprem is about as fast at the median; ")


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (share(0.99996), "99.9 %"),
        (share(0.0003), "0.1 %"),
        (share(0.0), "0 %"),
        (amount(0.9996, Unit.SHARE), "99.9 %"),
        (amount(0.997, Unit.SHARE), "99.7 %"),
        (amount(1.0, Unit.SHARE), "100 %"),
        (amount(0.0996, Unit.SHARE), "10 %"),
        (amount(0.005, Unit.SHARE), "0.5 %"),
        (amount(1e-7, Unit.SHARE), "less than 0.01 %"),
        (amount(0.0, Unit.SHARE), "0 %"),
        (amount(-0.003, Unit.SHARE), "-0.3 %"),
        (amount(0.0012, Unit.RATIO), "0.0012"),
        (amount(90_000.4, Unit.RATIO), "90,000"),
        (times(154.0), "150 times slower"),
        (times(99.9), "100 times slower"),
        (times(1 / 12_345), "12,000 times faster"),
        (span(1.42, 1.44), "1.4"),
        (span(9.96, 340.0), "10 to 340"),
        (seconds(Percentile(0.00042, 5, reliable=True)), "0.4 ms"),
        (seconds(Percentile(0.9997, 5, reliable=True)), "1.00 s"),
    ],
)
def test_no_number_is_rounded_to_all_or_none_or_told_in_powers_of_ten(told: str, text: str) -> None:
    assert told == text


@pytest.mark.parametrize(("count", "told"), [(19, False), (20, True)])
def test_c06_a_95th_percentile_of_few_pairs_is_not_put_into_words(count: int, *, told: bool) -> None:
    words = tail_words(verdict(waits(count, 2.0)).latency)
    assert (words is not None) is told
