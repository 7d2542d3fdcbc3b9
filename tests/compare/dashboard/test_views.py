"""From what is known to what a page says: pure."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from compare.dashboard.views.ledger import add_ledgers, build_ledger
from compare.dashboard.views.overview import (
    RouteState,
    Serving,
    build_cards,
    headline,
    lead_of,
    next_step,
    who_serves,
)
from compare.dashboard.views.pairlist import PairFilter, count_shows
from compare.dashboard.views.timeline import lay_lanes, server_timing
from compare.dashboard.views.words import duration, number, size
from compare.gates import State
from compare.measurement import OutputClass
from compare.policy import Kind, Policy
from compare.verdict import Decision, Verdict, judge
from crossfade.replay.recorded import MARK
from shadow.account import RouteAccount
from shadow.exchange import Failure, FailureKind, Observation, SkipReason

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
POLICY = Policy("classify", "cloud", "onprem", Kind.JSON)
EMPTY = build_ledger(None, 0, 0, {})


def verdict(decision: Decision, failing: str = "", mismatches: int = 0, failed: int = 0) -> Verdict:
    """Return a verdict over a hundred pairs in which the gates but ``failing`` pass."""
    blank = judge([], POLICY, None, now=NOW)
    gates = tuple(
        replace(gate, state=State.FAIL if gate.id == failing else State.PASS, rejects=gate.id == failing)
        for gate in blank.gates
    )
    classes = {OutputClass.IDENTICAL: 100 - mismatches, OutputClass.DIFFERENT: mismatches}
    return replace(
        blank, decision=decision, pairs=100, gates=gates, classes=classes, candidate_failed=failed, reason="The reason."
    )


def state(found: Verdict | None, percent: float | None = None, route: str = "classify") -> RouteState:
    split = {} if percent is None else {"cloud": 100 - percent, "onprem": percent}
    return RouteState(route, POLICY, found, EMPTY, who_serves(POLICY, split) if split else Serving())


@pytest.mark.parametrize(
    ("decisions", "sentence"),
    [
        ([], "No route is configured yet."),
        ([None, None], "There is no verdict yet."),
        ([Decision.PROMOTE], "One feature is ready."),
        ([Decision.REJECT] * 2, "Two features must not be switched."),
        (
            [Decision.HOLD, Decision.REJECT, Decision.HOLD, Decision.PROMOTE, None],
            "One feature is ready, one must not be switched, two are on hold, one has no verdict yet.",
        ),
        ([Decision.HOLD] * 13, "13 features are on hold."),
    ],
)
def test_the_headline_counts_the_verdicts_in_words(decisions: list[Decision | None], sentence: str) -> None:
    assert headline([state(verdict(d) if d else None) for d in decisions]) == sentence


def test_cards_come_in_the_order_in_which_they_need_a_person() -> None:
    found = [
        (Decision.HOLD, "a"),
        (None, "b"),
        (Decision.PROMOTE, "c"),
        (Decision.REJECT, "d"),
        (Decision.REJECT, "a2"),
    ]
    cards = build_cards([state(verdict(d) if d else None, route=name) for d, name in found])
    assert [card.route for card in cards] == ["a2", "d", "c", "a", "b"]


@pytest.mark.parametrize(
    ("found", "percent", "text", "command"),
    [
        (verdict(Decision.PROMOTE), 0, "Give onprem 5 % of the traffic", "crossfade toggle classify onprem=5"),
        (verdict(Decision.PROMOTE), None, "Give onprem 5 % of the traffic", "crossfade toggle classify onprem=5"),
        (verdict(Decision.PROMOTE), 5, "Give onprem 25 % of the traffic", "crossfade toggle classify onprem=25"),
        (verdict(Decision.PROMOTE), 60, "Give onprem 100 % of the traffic", "crossfade toggle classify onprem=100"),
        (verdict(Decision.PROMOTE), 100, "onprem serves everything; keep watching", ""),
        (verdict(Decision.REJECT, "G6", mismatches=40), 0, "Look at the 40 pairs that differ", ""),
        (verdict(Decision.REJECT, "G5", mismatches=3, failed=1), 0, "Look at the 1 failure", ""),
        (verdict(Decision.REJECT, "G3-p95", mismatches=3), 0, "Look at the latencies", ""),
        (verdict(Decision.HOLD, "G1"), 0, "Look at the latencies", ""),
        (None, 0, "Send traffic for this route through the gateway", ""),
    ],
)
def test_each_route_has_one_next_thing_to_do(
    found: Verdict | None, percent: float | None, text: str, command: str
) -> None:
    step = next_step(state(found, percent))
    assert (step.text, step.command) == (text, command)


def test_a_replay_that_nobody_has_judged_is_told_from_a_route_that_has_left_the_config() -> None:
    replay, left = (replace(state(None, route=name), policy=None) for name in (f"classify{MARK}at-noon", "classify"))
    assert lead_of(replay) == "A replay of what classify recorded, not judged yet."
    assert next_step(replay).command == "crossfade compare --route 'classify~at-noon'"
    judged = next_step(replace(replay, verdict=verdict(Decision.PROMOTE), stale=True))
    assert (judged.text, judged.command) == ("See how the replay compares", "")
    assert headline([state(verdict(Decision.PROMOTE)), replay]) == "One feature is ready."
    assert lead_of(left) == "This route is recorded but not in the config any more."
    assert next_step(left).text == "Add it to the config, or ignore it"


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        (1, "Wait for about 100 more pairs, and until 24 hours of traffic are observed"),
        (23 * 60, "Wait for about 100 more pairs, about 23 hours at this traffic"),
    ],
)
def test_a_wait_lasts_until_there_are_pairs_enough_and_the_span_is_observed(minutes: int, text: str) -> None:
    found = verdict(Decision.HOLD)
    gates = tuple(replace(g, state=State.OPEN, n=0, settle=100) if g.id == "G5" else g for g in found.gates)
    first_at = NOW - timedelta(minutes=minutes)
    found = replace(found, gates=gates, pairs=101, first_at=first_at, last_at=NOW)
    assert next_step(state(found)).text == text


def test_a_hold_without_a_failing_gate_says_how_it_looks_so_far() -> None:
    assert lead_of(state(verdict(Decision.HOLD, mismatches=1))) == "Not timed and different in 1 of 100 pairs so far."


def test_a_hold_with_a_failing_gate_gives_the_reason() -> None:
    assert lead_of(state(verdict(Decision.HOLD, "G6", mismatches=30))) == "The reason."


def test_an_account_that_does_not_add_up_is_told() -> None:
    account = RouteAccount(100, 80, 5, {SkipReason.NOT_SAMPLED: 10})
    assert build_ledger(account, 80, 80, {}).unexplained == 5
    assert build_ledger(replace(account, received=95), 80, 80, {}).unexplained == 0


def test_ledgers_of_routes_sum_up_with_every_named_loss() -> None:
    one = build_ledger(
        RouteAccount(10, 7, 1, {SkipReason.NOT_SAMPLED: 2}, {"rate_limited": 4}), 7, 5, {"bodies_not_kept": 1}
    )
    lost = {SkipReason.NOT_SAMPLED: 1, SkipReason.LOST: 1}
    other = build_ledger(RouteAccount(5, 3, 0, lost, {"rate_limited": 1}), 3, 3, {})
    both = add_ledgers([one, other])
    assert (both.received, both.recorded, both.in_flight, both.waiting, both.unexplained) == (15, 10, 1, 1, 0)
    assert both.skipped == (("not sampled", 3), ("lost", 1))
    assert both.refused == (("rate limited", 5),)
    assert [step.name for step in both.steps()] == [
        "received",
        "not sampled",
        "lost",
        "in flight",
        "recorded",
        "bodies not kept",
        "waiting for the next comparison",
        "compared",
    ]


def test_the_steps_a_server_tells_of_itself_are_laid_in_the_lane_as_long_as_they_fit() -> None:
    told = ((b"Server-Timing", b'queue;dur=91, inference;dur=280.5;desc="x", total;dur=371.5, nonsense;dur=900'),)
    slow = Observation("cloud", "cloud-1", 200, (), None, 0.6, 0.8)
    quick = Observation("onprem", "onprem-1", 200, told, None, 0.3, 0.4)
    lanes = lay_lanes([("cloud", "baseline", slow), ("onprem", "candidate", quick)])
    assert lanes[1].text == "400 ms · queue 91 ms · inference 280 ms"
    assert [(round(s.x, 1), round(s.width, 1), s.tone) for s in lanes[1].segments] == [
        (0.0, 50.0, "candidate-rest"),
        (0.0, 11.4, "noise"),
        (11.4, 35.1, "candidate"),
    ]
    assert lanes[0].text == "800 ms · first byte after 600 ms"


def test_a_leg_without_an_answer_has_a_lane_that_says_so() -> None:
    dead = Observation("onprem", "onprem-1", failure=Failure(FailureKind.CONNECT, ""))
    (lane,) = lay_lanes([("onprem", "candidate", dead)])
    assert (lane.segments, lane.text) == ((), "no duration: connect")


@pytest.mark.parametrize(
    "field", [b"", b"a", b"a;dur", b"a;dur=x", b";dur=1", b"a;dur=-1", b"a;dur=inf", b"\xff" * 5000]
)
def test_a_server_timing_that_makes_no_sense_is_left_out(field: bytes) -> None:
    assert server_timing(((b"server-timing", field),)) == []


def test_the_filter_of_an_address_survives_the_way_back_into_it() -> None:
    chosen = PairFilter.of({"show": "mismatch", "diagnosis": "a&b=<c>"})
    assert chosen.query(page=2) == "?show=mismatch&diagnosis=a%26b%3D%3Cc%3E&page=2"
    assert PairFilter.of({"show": "<script>"}).query() == ""


def test_the_filters_count_every_pair_once() -> None:
    shows = count_shows({"different": 3, "broken": 2, "identical": 5, "failed": 1, "not_compared": 4})
    assert (shows["all"], shows["mismatch"], shows["equivalent"], shows["not_compared"]) == (15, 5, 0, 4)


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (duration(0.0042), "4.2 ms"),
        (duration(0.372), "372 ms"),
        (duration(0.9999), "1.00 s"),
        (duration(14.2), "14 s"),
        (duration(2400), "40 minutes"),
        (duration(7200), "2 hours"),
        (duration(3 * 86_400), "3 days"),
        (duration(None), "\N{EN DASH}"),
        (size(999), "999 bytes"),
        (size(1500), "1.5 KB"),
        (size(184_000), "184 KB"),
        (size(3_200_000), "3.2 MB"),
        (number(0.123456), "0.1235"),
        (number(12345), "12,345"),
        (number(True), "yes"),
        (number("lossless"), "lossless"),
    ],
)
def test_numbers_are_told_in_the_unit_that_a_person_would_use(shown: str, text: str) -> None:
    assert shown == text
