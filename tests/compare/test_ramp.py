"""The ramp's policy: forward only on a passing verdict, back at once, and never without a reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.epochs import Epoch
from compare.measurement import Critical, Measurement, OutputClass
from compare.plan import Plan
from compare.ramp import Phase, Ramp, Seen, abort, begin, decide, give_up, pause, resume
from compare.ramp_watch import Served
from compare.verdict import Decision, Verdict, judge
from tests.compare.examples import START, measured, policy

PLAN = Plan(min_stay_s=60.0, min_requests=10)
POLICY = policy(latency_slo_s=2.0)
AFTER = START + timedelta(seconds=61)
FINE = Served(100)


@cache
def verdict(decision: Decision) -> Verdict:
    return replace(judge([measured(0)], POLICY, None, now=START), decision=decision, reason=f"it is {decision.value}")


def at(percent: int, phase: Phase = Phase.RUNNING) -> Ramp:
    return Ramp("route", phase, percent, START, "ada", "started")


def seen(percent: int, decision: Decision = Decision.PROMOTE, **changes: object) -> Seen:
    given = {"candidate": FINE, "baseline": FINE, "verdict": verdict(decision), **changes}
    return Seen(found=percent, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(("percent", "after"), [(0, 1), (1, 5), (5, 25), (25, 50), (50, 100)])
def test_a_step_that_has_passed_leads_to_the_next(percent: int, after: int) -> None:
    moved = decide(at(percent), PLAN, POLICY, seen(percent), AFTER)
    assert (moved.percent, moved.phase, moved.by, moved.settled) == (after, Phase.RUNNING, "verdict", False)
    assert moved.reason == "it is promote"
    assert (moved.entered_at, moved.candidate, moved.alarms) == (AFTER, Served(), {})


def test_the_last_step_that_has_passed_is_the_end() -> None:
    done = decide(at(100), PLAN, POLICY, seen(100), AFTER)
    assert (done.percent, done.phase, done.settled) == (100, Phase.DONE, True)
    assert decide(done, PLAN, POLICY, seen(100), AFTER).phase is Phase.DONE


@pytest.mark.parametrize(
    ("look", "seconds", "why"),
    [
        (seen(5, Decision.HOLD), 61, "the verdict is hold"),
        (seen(5, verdict=None), 61, "no pair of this step has been judged yet"),
        (seen(5), 59, "stays at 5 % for another 1 s"),
        (seen(5, candidate=Served(9)), 61, "served 9 of 10 requests"),
        (seen(5, candidate=None), 61, "counts cannot be read"),
    ],
)
def test_it_waits_and_says_why(look: Seen, seconds: float, why: str) -> None:
    ramp = decide(at(5), PLAN, POLICY, look, START + timedelta(seconds=seconds))
    assert (ramp.percent, ramp.phase) == (5, Phase.RUNNING)
    assert any(why in reason for reason in ramp.waiting)


def bad(n: int, **what: object) -> Sequence[Measurement]:
    return [measured(i, **what) for i in range(n)]  # type: ignore[arg-type]


ALL_THE_WAY = [
    seen(25, pairs=bad(8, output=None, failure="timeout")),
    seen(25, pairs=bad(8, output=OutputClass.BROKEN, critical=Critical.MISSED_FACE)),
    seen(25, Decision.REJECT),
    seen(25, candidate=Served(40, errors=12)),
]
ONE_STEP = [
    seen(25, pairs=bad(12, output=OutputClass.DIFFERENT)),
    seen(25, pairs=bad(40, baseline_s=0.1, candidate_s=0.3)),
    seen(25, pairs=bad(20, baseline_s=2.5, candidate_s=2.6)),
    seen(25, candidate=Served(40, slow=20)),
]


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.PAUSED, Phase.DONE])
@pytest.mark.parametrize("look", ALL_THE_WAY)
def test_what_harms_now_brings_it_all_the_way_back(look: Seen, phase: Phase) -> None:
    back = decide(at(25, phase), PLAN, POLICY, look, AFTER)
    assert (back.percent, back.phase, back.by, back.settled) == (0, Phase.ABORTED, "watch", False)
    assert back.reason.startswith(("alarm: ", "gate: ", "rejected: "))


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.PAUSED, Phase.DONE])
@pytest.mark.parametrize("look", ONE_STEP)
def test_what_is_merely_worse_brings_it_one_step_back(look: Seen, phase: Phase) -> None:
    back = decide(at(25, phase), PLAN, POLICY, look, START + timedelta(seconds=2))
    assert (back.percent, back.phase, back.by, back.settled) == (5, Phase.PAUSED, "watch", False)


def test_back_from_the_first_step_is_the_end() -> None:
    back = decide(at(1), PLAN, POLICY, replace(ONE_STEP[0], found=1), AFTER)
    assert (back.percent, back.phase) == (0, Phase.ABORTED)


def test_evidence_gathers_over_many_looks() -> None:
    ramp = at(25)
    for look in range(30):
        pairs = [measured(look, OutputClass.DIFFERENT)]
        ramp = decide(ramp, PLAN, POLICY, seen(ramp.percent, Decision.HOLD, pairs=pairs), START)
        if ramp.phase is Phase.PAUSED:
            break
    assert (ramp.percent, ramp.sequence) == (5, look + 1)
    assert 2 < look < 20


def test_errors_that_the_baseline_shows_as_well_are_no_alarm() -> None:
    look = seen(25, Decision.HOLD, candidate=Served(200, errors=40), baseline=Served(1000, errors=200))
    assert decide(at(25), PLAN, POLICY, look, AFTER).percent == 25
    alone = replace(look, baseline=Served(1000))
    assert decide(at(25), PLAN, POLICY, alone, AFTER).percent == 0


def test_outputs_as_noisy_as_the_baseline_itself_are_no_alarm() -> None:
    pairs = [measured(i, OutputClass.DIFFERENT if i % 3 == 0 else OutputClass.IDENTICAL) for i in range(90)]
    look = seen(25, Decision.HOLD, pairs=pairs)
    assert decide(at(25), PLAN, POLICY, look, AFTER).percent == 5
    assert decide(at(25), PLAN, POLICY, replace(look, noise=0.34), AFTER).percent == 25


def test_a_toggle_that_somebody_else_moved_is_theirs() -> None:
    paused = decide(at(25), PLAN, POLICY, seen(50), AFTER)
    assert (paused.percent, paused.phase, paused.by, paused.settled) == (50, Phase.PAUSED, "toggle", True)
    ended = decide(at(25), PLAN, POLICY, seen(0), AFTER)
    assert (ended.percent, ended.phase) == (0, Phase.ABORTED)


def test_a_person_pauses_goes_on_and_aborts() -> None:
    ramp = begin("route", 0, "ada", START)
    assert (ramp.phase, ramp.percent, ramp.by) == (Phase.RUNNING, 0, "ada")
    stopped = pause(at(25), "bob", AFTER)
    assert decide(stopped, PLAN, POLICY, seen(25), AFTER + timedelta(hours=9)).percent == 25
    assert (resume(stopped, "eve", AFTER).phase, resume(stopped, "eve", AFTER).by) == (Phase.RUNNING, "eve")
    back = abort(at(25), "bob", AFTER)
    assert (back.phase, back.percent, back.by, back.settled) == (Phase.ABORTED, 0, "bob", False)
    assert decide(back, PLAN, POLICY, seen(25), AFTER) == back


def test_a_pause_takes_back_a_step_that_is_not_made_yet() -> None:
    on_its_way = decide(at(5), PLAN, POLICY, seen(5), AFTER)
    assert (on_its_way.percent, on_its_way.settled) == (25, False)
    stopped = pause(on_its_way, "bob", AFTER)
    assert (stopped.percent, stopped.phase, stopped.settled) == (5, Phase.PAUSED, False)
    for found in (5, 25):  # the driver had not written it, or had just done so
        assert give_up(stopped, found, AFTER) is None, "5 % is to be written"


def test_a_step_back_that_is_not_written_yet_stays_one_when_a_person_goes_on() -> None:
    back = decide(at(25), PLAN, POLICY, ONE_STEP[0], AFTER)
    assert (back.percent, back.settled) == (5, False)
    assert give_up(resume(back, "ada", AFTER), 25, AFTER) is None, "5 % is to be written, 25 is nobody's word"


def test_a_clock_that_is_set_back_begins_the_step_anew() -> None:
    before = START - timedelta(hours=1)
    ramp = decide(at(25), PLAN, POLICY, seen(25), before)
    assert (ramp.percent, ramp.phase, ramp.entered_at) == (25, Phase.RUNNING, before)
    assert "the clock was set back by 3600 s" in ramp.reason
    assert decide(at(25), PLAN, POLICY, ALL_THE_WAY[3], before).percent == 0, "and is watched in the same look"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"last_at": START}, None),
        ({"last_at": START - timedelta(days=2)}, "older than ramp.verdict_max_age_s allows"),
        ({"last_at": None}, "the newest pair in its verdict is unknown"),
        ({"epoch": Epoch(2, "a", "b", 40)}, "another build has answered since"),
    ],
)
def test_a_first_step_needs_a_verdict_that_is_fresh_and_of_the_present_epoch(
    changes: dict[str, object], why: str | None
) -> None:
    standing = replace(verdict(Decision.PROMOTE), **{"epoch": Epoch(1, "a", "b", 0), **changes})  # type: ignore[arg-type]
    look = seen(0, verdict=standing, epoch=Epoch(1, "a", "b | c", 0))
    ramp = decide(begin("route", 0, "ada", START), PLAN, POLICY, look, AFTER)
    assert ramp.percent == (1 if why is None else 0)
    assert why is None or why in ramp.waiting[0]
    forced = begin("route", 0, "ada", START, forced_because="seen by hand")
    assert "seen by hand" in forced.reason
    assert decide(forced, PLAN, POLICY, look, AFTER).percent == 1
    held = replace(look, verdict=verdict(Decision.HOLD))
    assert decide(forced, PLAN, POLICY, held, AFTER).percent == 0, "force is about age and nothing else"


LOOKS = st.builds(
    lambda decision, n, errors, slow, known, output, failed, stored: seen(
        0,
        decision,
        candidate=Served(n, min(n, errors), min(n, slow)) if known else None,
        pairs=[measured(i, None if failed else output, failure="reset" if failed else None) for i in range(n % 9)],
        stored=stored,
    ),
    st.sampled_from(Decision),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(0, 60),
    st.booleans(),
    st.sampled_from(OutputClass),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(st.tuples(LOOKS, st.integers(0, 100)), max_size=12))
def test_no_way_leads_forward_without_a_promote_or_anywhere_without_a_reason(looks: list[tuple[Seen, int]]) -> None:
    ramp, now = begin("route", 0, "ada", START), START
    for look, seconds in looks:
        now += timedelta(seconds=seconds)
        after = decide(ramp, PLAN, POLICY, replace(look, found=ramp.percent), now)
        assert after.percent in (0, *PLAN.steps)
        if after.percent > ramp.percent:
            assert look.verdict is not None
            assert look.verdict.decision is Decision.PROMOTE
            assert look.stored
            assert look.candidate is not None or not ramp.percent
            assert after.percent == PLAN.after(ramp.percent)
            assert ramp.percent == 0 or (now - ramp.entered_at).total_seconds() >= PLAN.min_stay_s
        if (after.percent, after.phase) != (ramp.percent, ramp.phase):
            assert after.by in ("verdict", "watch")
            assert after.reason
        ramp = replace(after, settled=True)


@pytest.mark.parametrize("steps", [(), (5, 1), (1, 1), (0, 5), (50, 101)])
def test_steps_that_do_not_grow_are_refused(steps: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="must grow"):
        Plan(steps=steps)
