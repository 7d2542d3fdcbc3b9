"""Coverage is judged for a window: old losses pass, present ones always count, each is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from compare.coverage import Mark, cover, losses_of
from compare.measurement import Judgement, Measurement, NotComparable
from compare.state import fold
from compare.verdict import Decision, Verdict, judge
from shadow.account import RouteAccount
from shadow.exchange import SkipReason
from tests.compare.examples import START, measured, policy

NOW = datetime(2026, 5, 5, tzinfo=UTC)
POLICY = policy()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def lost(m: Measurement) -> Measurement:
    return replace(m, not_comparable=NotComparable.BODIES_NOT_KEPT, judgement=Judgement(None))


def verdict(pairs: list[Measurement], skipped: Mapping[SkipReason, int], *marks: Mark) -> Verdict:
    account = RouteAccount(len(pairs) + sum(skipped.values()), len(pairs), 0, skipped)
    return judge(pairs, POLICY, account, now=NOW, marks=marks)


def test_losses_before_a_mark_do_not_hold_a_route_for_ever() -> None:
    pairs = [measured(n) for n in range(1900)]
    skipped = {SkipReason.BREAKER_OPEN: 100}
    blind = verdict(pairs, skipped)
    assert blind.decision is Decision.HOLD
    assert blind.coverage.share == 0.95
    known = verdict(pairs, skipped, Mark(at(0), {"breaker_open": 100}))
    assert known.decision is Decision.PROMOTE
    assert known.coverage.share == 1
    assert known.coverage.balanced


def test_a_mark_inside_of_the_epoch_lets_the_later_part_speak_and_says_since_when() -> None:
    pairs = [measured(n) for n in range(1900)]
    found = verdict(pairs, {SkipReason.BREAKER_OPEN: 100}, Mark(at(600.5), {"breaker_open": 100}))
    assert found.decision is Decision.PROMOTE
    assert found.coverage.window.first_sequence == pairs[601].sequence
    assert found.coverage.window.compared == 1299
    assert f"since {at(601):%Y-%m-%d %H:%M} UTC" in found.gate("P0").note
    assert found.gate("G7").n == 1900


def test_a_route_that_nothing_was_sampled_of_is_not_told_a_share_of_nothing() -> None:
    assert verdict([], {}).gate("P0").note.startswith("nothing was sampled yet; 0 of ")
    lost_all = verdict([], {SkipReason.BREAKER_OPEN: 3}).gate("P0").note
    assert lost_all.startswith("only 0.0 % compared (lost: 3 breaker open)")


def test_a_loss_after_the_last_mark_always_counts() -> None:
    pairs = [measured(n) for n in range(1900)]
    skipped = {SkipReason.BREAKER_OPEN: 100, SkipReason.QUEUE_FULL: 60}
    found = verdict(pairs, skipped, Mark(at(600), {"breaker_open": 100}), Mark(at(1800), {"breaker_open": 100}))
    assert found.decision is Decision.HOLD
    assert found.coverage.losses == {"queue_full": 60}
    assert "60 queue full" in found.gate("P0").note


def test_a_window_never_rests_on_less_than_half_of_the_answered_pairs() -> None:
    pairs = [measured(n) for n in range(1900)]
    found = verdict(pairs, {SkipReason.BREAKER_OPEN: 500}, Mark(at(1700), {"breaker_open": 500}))
    assert found.decision is Decision.HOLD
    assert found.coverage.window.first_sequence == pairs[0].sequence


def test_a_thousand_purged_pairs_do_not_hold_the_thousand_after_them() -> None:
    pairs = [lost(measured(n)) if n < 1000 else measured(n) for n in range(2000)]
    found = verdict(pairs, {})
    assert found.decision is Decision.PROMOTE
    assert found.coverage.window.sampled == 1000
    assert found.coverage.not_comparable == {"bodies_not_kept": 1000}
    assert found.coverage.balanced


def test_only_the_epoch_that_is_judged_is_covered() -> None:
    old = [lost(measured(n, build="net-1")) if n % 3 else measured(n, build="net-1") for n in range(900)]
    found = verdict([*old, *(measured(n, build="net-2") for n in range(900, 1800))], {})
    assert found.epoch.number == 2
    assert found.decision is Decision.PROMOTE
    assert found.coverage.share == 1
    assert found.coverage.recorded == 1800


def test_exchanges_that_vanished_from_the_store_are_missing() -> None:
    found = judge([measured(n) for n in range(900)], POLICY, RouteAccount(1000, 1000, 0, {}), now=NOW)
    assert found.decision is Decision.HOLD
    assert found.coverage.losses == {"missing": 100}


REASONS = st.dictionaries(st.sampled_from(SkipReason), st.integers(0, 50), max_size=4)


@given(
    st.lists(st.booleans(), min_size=1, max_size=80),
    REASONS,
    st.lists(st.tuples(st.floats(0, 80), st.floats(0, 1)), max_size=4),
)
def test_the_window_adds_up_and_never_counts_more_than_there_is(
    good: list[bool], skipped: dict[SkipReason, int], seen: list[tuple[float, float]]
) -> None:
    pairs = [measured(n) if fine else lost(measured(n)) for n, fine in enumerate(good)]
    account = RouteAccount(len(pairs) + sum(skipped.values()), len(pairs), 0, skipped)
    whole = losses_of(account, len(pairs))
    marks = [Mark(at(s), {name: int(n * part) for name, n in whole.items()}) for s, part in seen]
    rules = policy(min_pairs=5, min_span_s=3.0)
    found = cover(fold(pairs, rules), account, marks, rules)
    window = found.window
    assert window.sampled == window.compared + sum(window.losses.values())
    assert window.compared <= found.compared
    assert sum(window.losses.values()) <= sum(whole.values()) + sum(found.not_comparable.values())
    anything = policy(min_coverage=0.0)
    plain = cover(fold(pairs, anything), account, (), anything)
    assert (found.share or 0) >= (plain.share or 0) or window.part is False
