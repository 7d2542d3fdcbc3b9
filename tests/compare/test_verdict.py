"""Gates and verdicts: what promotes, what rejects, what is honest enough to wait."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compare.gates import State, difference_log_e
from compare.measurement import Critical, Measurement, NotComparable, OutputClass
from compare.policy import Margins, Policy
from compare.verdict import Decision, Verdict, bad_routes, exit_code, judge, verdict_from_json
from shadow.account import RouteAccount
from shadow.exchange import SkipReason
from tests.compare.examples import START, measured, policy, split_epochs

NOW = datetime(2026, 5, 5, tzinfo=UTC)
SAME, OTHER, BROKEN = OutputClass.IDENTICAL, OutputClass.DIFFERENT, OutputClass.BROKEN
POLICY = policy()


def verdict(measurements: list[Measurement], rules: Policy = POLICY, previous: Verdict | None = None) -> Verdict:
    return judge(measurements, rules, None, now=NOW, previous=previous)


def clean(count: int, controls: bool = True) -> list[Measurement]:
    return [measured(n, control=SAME if controls and n % 2 else None) for n in range(count)]


def test_all_of_sixty_pairs_wrong_and_thirty_controls_reject_by_the_output_gate() -> None:
    found = verdict(
        [measured(n, OTHER, codes=["red_blue_swapped"], control=SAME if n % 2 else None) for n in range(60)]
    )
    assert found.decision is Decision.REJECT
    assert found.exit_code == 20
    assert [gate.id for gate in found.gates if gate.rejects] == ["G6"]
    assert found.reason.startswith("onprem swaps red and blue in 60 of 60 pairs")


def every_fifth_ignores_the_tag(count: int) -> list[Measurement]:
    return [
        measured(n, BROKEN, critical=Critical.WRONG_SIZE, codes=["size", "orientation_ignored"], orientation=6)
        if n % 5 == 0
        else measured(n, orientation=1)
        for n in range(count)
    ]


def test_one_in_five_wrong_rejects_through_the_critical_gate_at_forty() -> None:
    found = verdict(every_fifth_ignores_the_tag(40))
    assert found.decision is Decision.REJECT
    assert found.gate("G7").rejects
    assert found.reason.startswith("onprem ignores the EXIF orientation tag: 8 of 8 such pictures")
    assert verdict(every_fifth_ignores_the_tag(60)).reason.startswith(
        "onprem ignores the EXIF orientation tag: 12 of 12 such pictures"
    )


def test_eight_hundred_and_fifty_clean_pairs_promote() -> None:
    found = verdict(clean(850))
    assert found.decision is Decision.PROMOTE
    assert found.exit_code == 0
    assert found.gate("G7").high is not None
    assert found.gate("G7").high < 0.005  # type: ignore[operator]
    assert "850 pairs" in found.reason


def test_sixty_clean_pairs_hold_and_say_how_many_more_settle_it() -> None:
    found = verdict(clean(60))
    assert found.decision is Decision.HOLD
    assert found.exit_code == 10
    assert found.more_pairs == 720
    assert found.reason.startswith("Not enough evidence yet: about 720 more pairs settle it")
    assert "critical outputs" in found.reason


@pytest.mark.parametrize("count", [1, 2, 5, 20, 60, 300])
def test_one_bad_pair_never_rejects_by_itself(count: int) -> None:
    worst = measured(0, BROKEN, critical=Critical.MISSED_FACE, codes=["missed_face"], failure=None)
    assert verdict([worst, *clean(count + 1)[1:]]).decision is Decision.HOLD


def test_thirty_six_of_forty_four_agreeing_against_noise_of_the_same_size_holds() -> None:
    pairs = [measured(n, SAME if n < 36 else OTHER, control=SAME if n < 37 else OTHER) for n in range(44)]
    found = verdict(pairs)
    assert found.decision is Decision.HOLD
    assert found.gate("G6").state is State.OPEN


def test_without_control_calls_the_raw_rate_is_judged_and_it_is_said() -> None:
    found = verdict([measured(n, OTHER, codes=["scores"]) for n in range(60)])
    assert found.decision is Decision.REJECT
    assert "no noise floor" in found.gate("G6").note


def test_too_few_control_calls_to_reject_name_how_many_would_do() -> None:
    pairs = [measured(n, OTHER, codes=["scores"], control=SAME if n in (3, 30) else None) for n in range(60)]
    found = verdict(pairs)
    assert found.gate("G6").state is not State.PASS
    assert not found.gate("G6").rejects
    wanted = int(found.gate("G6").note.split("; ")[1].split()[0])
    enough = [measured(n, OTHER, codes=["scores"], control=SAME if n < wanted else None) for n in range(60)]
    assert 2 < wanted < 60
    assert verdict(enough).gate("G6").rejects


def test_candidate_errors_reject_and_are_counted_by_kind() -> None:
    pairs = [measured(n, None, failure="status 500") if n % 5 < 2 else measured(n, control=SAME) for n in range(60)]
    found = verdict(pairs)
    assert found.decision is Decision.REJECT
    assert found.reason.startswith("onprem answered 500 in 24 of 60 pairs")
    assert found.candidate_failed == 24


def test_timeouts_stay_in_the_denominator_of_every_latency() -> None:
    rules = policy(latency_slo_s=1.0)
    pairs = [measured(n, None, failure="timeout") if n % 2 else measured(n) for n in range(100)]
    found = verdict(pairs, rules)
    assert found.gate("G1").n == 100
    assert found.gate("G1").high is None
    assert found.gate("G2").estimate == 0.5
    assert found.latency.candidate_p95.value is None
    assert found.latency.candidate_p95.n == 100


def test_a_baseline_failure_speaks_for_the_candidate_and_a_double_failure_for_nobody() -> None:
    pairs = [measured(n, None, baseline_failure="timeout") for n in range(40)]
    pairs += [measured(n, None, baseline_failure="timeout", failure="timeout") for n in range(40, 50)]
    found = verdict(pairs)
    assert found.gate("G1").n == 40
    assert found.gate("G1").state is State.PASS
    assert "10 pairs without any answer" in found.gate("G1").note
    assert found.gate("G5").estimate == 0
    assert found.gate("G5").n == 50
    assert found.both_failed == 10
    assert found.gate("G7").state is State.NODATA
    assert found.decision is Decision.HOLD


def slow(count: int, factor: float) -> list[Measurement]:
    rng = np.random.default_rng(1)
    waits = rng.lognormal(-1, 0.3, (count, 2))
    return [measured(n, baseline_s=float(b), candidate_s=float(c * factor)) for n, (b, c) in enumerate(waits)]


def test_a_slow_tail_rejects_once_there_are_enough_pairs_and_names_the_factor() -> None:
    found = verdict(slow(850, 3.0))
    assert found.decision is Decision.REJECT
    assert found.gate("G3-p95").rejects
    assert "times slower at the 95th percentile" in found.reason


def test_few_pairs_never_fire_the_tail_gate_and_the_report_says_how_many_would() -> None:
    found = verdict(slow(60, 30.0))
    assert found.decision is Decision.HOLD
    tail = found.gate("G3-p95")
    assert tail.note == f"cannot reject below {tail.settle} pairs"
    assert tail.settle is not None
    assert tail.settle > 162
    assert found.gate("G1").state is State.FAIL
    assert "times slower at the median" in found.reason


def test_coverage_below_the_policy_never_promotes_and_names_the_losses() -> None:
    account = RouteAccount(1000, 850, 0, {SkipReason.QUEUE_FULL: 50, SkipReason.NOT_SAMPLED: 100})
    found = judge(clean(850), POLICY, account, now=NOW)
    assert found.coverage.sampled == 900
    assert found.coverage.balanced
    assert found.decision is Decision.HOLD
    assert "50 queue full" in found.gate("P0").note
    healthy = RouteAccount(950, 850, 0, {SkipReason.NOT_SAMPLED: 100})
    assert judge(clean(850), POLICY, healthy, now=NOW).decision is Decision.PROMOTE


def test_what_is_not_comparable_is_counted_as_lost_and_still_has_a_latency() -> None:
    lost = [replace(m, not_comparable=NotComparable.BODIES_NOT_KEPT) for m in clean(40)]
    lost = [replace(m, judgement=replace(m.judgement, output_class=None)) for m in lost]
    found = verdict([*lost, *(replace(m, sequence=m.sequence + 40) for m in clean(60))])
    assert found.coverage.not_comparable == {"bodies_not_kept": 40}
    assert found.coverage.recorded == found.coverage.compared + 40
    assert found.gate("G1").n == 100
    assert found.gate("G7").n == 60


def test_too_short_a_span_never_promotes() -> None:
    found = verdict(clean(850), policy(min_span_s=86_400.0))
    assert found.decision is Decision.HOLD
    assert "observed" in found.gate("P0").note


def test_a_reject_sticks_within_its_epoch_and_ends_with_it() -> None:
    rejected = verdict(every_fifth_ignores_the_tag(60))
    later = [*every_fifth_ignores_the_tag(60), *(measured(n, orientation=1) for n in range(60, 30_000))]
    assert verdict(later).decision is not Decision.REJECT
    stuck = verdict(later, previous=rejected)
    assert stuck.decision is Decision.REJECT
    assert stuck.reason == rejected.reason
    assert stuck.rejected_at == rejected.rejected_at
    changed = [*every_fifth_ignores_the_tag(60), *(measured(n, build="net-2") for n in range(60, 120))]
    assert verdict(changed, previous=rejected).decision is Decision.HOLD
    other = policy(margins=Margins(critical=0.01))
    assert judge(clean(60), other, None, now=NOW, previous=rejected).decision is Decision.HOLD


def test_a_change_of_build_starts_an_epoch_and_only_the_newest_is_judged() -> None:
    pairs = [measured(n, OTHER, codes=["scores"], build="net-1") for n in range(60)]
    pairs += [measured(n, build=None if n == 70 else "net-2") for n in range(60, 120)]
    epochs = split_epochs(pairs)
    assert [(epoch.number, epoch.candidate_build, count) for epoch, count in epochs] == [
        (1, "net-1", 60),
        (2, "net-2", 60),
    ]
    found = verdict(pairs)
    assert found.pairs == 60
    assert found.epoch.number == 2
    assert found.classes == {SAME: 60}
    assert found.coverage.compared == 120


def test_evidence_in_bursts_is_held() -> None:
    calm = [measured(n, every_s=60.0) for n in range(3000)]
    wrong = [measured(3000 + n, BROKEN, critical=Critical.WRONG_SIZE) for n in range(60)]
    burst = [replace(m, received_at=START + timedelta(seconds=3000 * 60)) for m in wrong]
    found = verdict([*calm, *burst])
    assert found.gate("G7").rejects
    assert found.decision is Decision.HOLD
    assert "bursts" in found.reason


def test_the_same_bytes_from_a_random_model_are_suspicious() -> None:
    pairs = [replace(m, same_bytes=True) for m in clean(850)]
    found = verdict(pairs, policy(random_outputs=True))
    assert found.decision is Decision.HOLD
    assert "Suspiciously good" in found.findings[0]


def test_no_data_is_never_good() -> None:
    found = verdict([])
    assert found.decision is Decision.HOLD
    assert all(gate.state is State.NODATA for gate in found.gates)
    assert exit_code([]) == 10


def test_c09_wall_clock_steps_change_neither_latencies_nor_order() -> None:
    steady = clean(300)
    jumps = [timedelta(seconds=-5 if n % 7 else 3600) for n in range(300)]
    stepped = [replace(m, received_at=m.received_at + jump) for m, jump in zip(steady, jumps, strict=True)]
    assert verdict(stepped).gates[1:] == verdict(steady).gates[1:]
    assert verdict(stepped).latency == verdict(steady).latency


def test_the_worst_verdict_is_the_exit_code_and_e_bh_names_the_bad_routes() -> None:
    good, bad = verdict(clean(850)), replace(verdict(every_fifth_ignores_the_tag(60)), route="bad")
    assert exit_code([good]) == 0
    assert exit_code([good, bad]) == 20
    assert bad_routes([good, bad], 0.05) == ("bad",)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.builds(
            measured,
            st.integers(0, 1000),
            st.sampled_from([None, *OutputClass]),
            critical=st.sampled_from([None, *Critical]),
            codes=st.lists(st.text(max_size=8), max_size=2),
            control=st.sampled_from([None, *OutputClass]),
            baseline_s=st.floats(0, 100),
            candidate_s=st.floats(0, 100),
            baseline_failure=st.sampled_from([None, "timeout"]),
            failure=st.sampled_from([None, "status 500", "reset"]),
        ),
        max_size=30,
    )
)
def test_any_verdict_survives_json_and_adds_up(measurements: list[Measurement]) -> None:
    found = verdict(measurements)
    assert verdict_from_json(found.to_json()) == found
    assert found.coverage.recorded == found.coverage.compared + sum(found.coverage.not_comparable.values())
    assert found.reason.endswith(".")
    for gate in found.gates:
        numbers = [x for x in (gate.low, gate.estimate, gate.high) if x is not None]
        assert all(math.isfinite(x) for x in numbers)
        assert numbers == sorted(numbers) or gate.id.startswith("G3")


def test_one_endless_wait_in_a_hundred_holds_where_the_objective_is_a_99th_percentile() -> None:
    pairs = [measured(n, baseline_s=0.3, candidate_s=60.0 if n % 100 == 99 else 0.25) for n in range(2000)]
    assert verdict(pairs).decision is Decision.PROMOTE  # behind every percentile that a gate looks at
    assert verdict(pairs, policy(latency_slo_s=2.0, slo_percentile=99)).decision is Decision.HOLD


def test_a_failing_tail_blocks_a_promote_though_it_is_not_required() -> None:
    rng = np.random.default_rng(4)
    tails = np.where(rng.random(900) < 0.1, 1.6, 0.2)
    pairs = [measured(n, baseline_s=0.3, candidate_s=float(t)) for n, t in enumerate(tails)]
    found = verdict(pairs, policy(routes=40, margins=Margins(tail_ratio=3.0)))
    assert found.gate("G3-p95").state is State.FAIL
    assert not found.gate("G3-p95").required
    assert all(gate.state is State.PASS for gate in found.gates if gate.required)
    assert found.decision is not Decision.PROMOTE


def test_latency_that_only_bursts_make_good_is_held() -> None:
    slow = [measured(n, every_s=60.0, candidate_s=0.9) for n in range(400)]
    at = START + timedelta(seconds=400 * 60)
    burst = [replace(measured(400 + n, candidate_s=0.1), received_at=at) for n in range(1200)]
    found = verdict([*slow, *burst], policy(margins=Margins(tail_ratio=10.0)))
    assert found.gate("G1").state is State.PASS
    assert found.decision is Decision.HOLD
    assert "G1" in found.reason


def test_e_bh_sees_the_output_gate_with_control_calls_and_is_not_fooled_by_noise() -> None:
    wrong = verdict([measured(n, OTHER, control=SAME if n % 2 else None) for n in range(100)])
    noisy = verdict([measured(n, OTHER if n % 2 else SAME, control=OTHER if n % 3 else SAME) for n in range(100)])
    assert (wrong.gate("G6").log_e or 0) > 10
    assert (noisy.gate("G6").log_e or 0) < 0
    assert bad_routes([replace(wrong, route="wrong"), replace(noisy, route="noisy")], 0.05) == ("wrong",)


def test_the_e_value_of_a_difference_is_one_on_average_at_most_where_there_is_none() -> None:
    rng, found = np.random.default_rng(9), []
    for floor in (0.0, 0.05, 0.3):
        runs = [(rng.binomial(150, floor + 0.02), rng.binomial(60, floor)) for _ in range(300)]
        found = [math.exp(difference_log_e(k, 150, c, 60, 0.02, POLICY)) for k, c in runs]
        assert float(np.mean(found)) < 1.05
