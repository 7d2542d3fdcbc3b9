"""The way across: when a route's traffic moves a step further, and when it comes back. Pure: values in, values out.

States of a ramp, and what changes them:

    running   at ``percent``. Forward one step when it has stayed there for the minimum time, the candidate has served
              enough requests there, and the verdict on the live pairs of this very step is promote. At 0 percent the
              verdict is the route's standing one, of its present epoch and with evidence that is not old.
    paused    keeps ``percent`` until a person goes on or gives up. A step back ends here, and so does a toggle that
              somebody else has moved.
    done      at the last step, which has passed, too. The roles have swapped; the watch goes on.
    aborted   the baseline serves everything: a person gave up, or something critical was found.

In running, paused and done everything is watched: the pairs, by e-CUSUMs and by the verdict on the step, and what has
no pair, by errors and latency of the requests that the candidate served (``compare.ramp_watch``). What harms now
(errors, critical outputs, a reject) brings the route all the way back; what is merely worse (slower, different) one
step. No move can happen without ``by`` and ``reason``, because a move *is* a new value with both.

What is not known (a gateway or a store that does not answer) never moves anything forward. Where it stays unknown for
``Plan.evidence_max_age_s``, ``Plan.back_unseen`` says whether the route keeps its place or comes all the way back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

from compare.epochs import Epoch
from compare.measurement import Measurement
from compare.phrases import Phrase, joined, mark, plain, say
from compare.plan import Plan
from compare.policy import Policy
from compare.ramp_watch import NOTHING, Served, failing, fold_alarms, ringing
from compare.verdict import Decision, Verdict

MOST_UNWRITTEN_S = 60.0
"""How long the evidence for a step holds while the toggle cannot be written."""
CLOCK_SLACK_S = 5.0
"""By how much a clock may go back without anything being made of it."""
BY_VERDICT, BY_WATCH, BY_TOGGLE = "verdict", "watch", "toggle"
NOBODY = (BY_VERDICT, BY_WATCH, BY_TOGGLE)
"""Who makes a move when no person does."""
NO_COUNTS, NO_STORE = say("the gateway's counts cannot be read"), say("the store does not answer")


class Phase(StrEnum):
    """Where a ramp is; the module says what changes it."""

    RUNNING = "running"
    PAUSED = "paused"
    DONE = "done"
    ABORTED = "aborted"

    @property
    def watched(self) -> bool:
        """Whether the candidate may be serving because of this ramp."""
        return self is not Phase.ABORTED


@dataclass(frozen=True, slots=True)
class Ramp:
    """One route's ramp. ``percent`` is what the candidate is to serve, ``settled`` whether the toggle is known to say
    so, ``before`` where a move that is not settled began. ``by`` is who or what made the last change: a person,
    ``verdict`` or ``watch``. ``alarms`` is log W by watch; ``sequence`` the place in the record up to which pairs were
    watched, ``first_sequence`` the one where this step began, ``lost_before`` what the gateway had lost by then
    (``None`` until the first look); ``candidate`` and ``baseline`` what each served since ``entered_at``; ``waiting``
    why it does not go on yet. ``unseen_since`` is since when evidence is lacking (``None`` where it is not),
    ``forced`` whether a person let it begin on old evidence."""

    route: str
    phase: Phase
    percent: int
    entered_at: datetime
    by: str
    reason: str
    settled: bool = True
    before: int | None = None
    alarms: Mapping[str, float] = field(default_factory=dict)
    sequence: int = 0
    first_sequence: int = 0
    lost_before: Mapping[str, int] | None = None
    candidate: Served = NOTHING
    baseline: Served = NOTHING
    waiting: tuple[str, ...] = ()
    unseen_since: datetime | None = None
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen since the last look. ``found`` is the candidate's percent in the toggle. ``pairs`` are new, in
    order of sequence. ``candidate`` and ``baseline`` are ``None`` while the gateway's counts cannot be read,
    ``stored`` is false while the store cannot. ``verdict`` is on the pairs since the step was entered; at 0 percent,
    the route's standing one, and then ``epoch`` is the present one. ``noise`` is how often the baseline differs from
    itself."""

    found: int
    pairs: Sequence[Measurement] = ()
    candidate: Served | None = None
    baseline: Served | None = None
    verdict: Verdict | None = None
    noise: float = 0.0
    stored: bool = True
    epoch: Epoch | None = None

    @property
    def lacking(self) -> Phrase:
        """What cannot be seen, in words; empty where nothing is lacking."""
        missing = [NO_COUNTS] if self.candidate is None else []
        return joined(", ", [*missing, NO_STORE] if not self.stored else missing)


def begin(
    route: str, percent: int, who: str, now: datetime, sequence: int = 0, *, forced_because: str | None = None
) -> Ramp:
    """Return a ramp that a person starts where the toggle is now; the next look makes the first move."""
    said = say("started") if forced_because is None else say("started, forced: {why}", why=forced_because)
    return Ramp(
        route, Phase.RUNNING, percent, now, who, said,
        sequence=sequence, first_sequence=sequence, forced=forced_because is not None,
    )  # fmt: skip


def resume(ramp: Ramp, who: str, now: datetime, *, forced_because: str | None = None) -> Ramp:
    """Go on after a pause: at the same step, whose time begins anew."""
    said = say("went on") if forced_because is None else say("went on, forced: {why}", why=forced_because)
    moved = _enter(ramp, Phase.RUNNING, ramp.percent, now, who, said)
    return replace(moved, forced=forced_because is not None)


def pause(ramp: Ramp, who: str, now: datetime) -> Ramp:
    """Stay where it is until a person goes on. A step forward that the toggle does not show yet is taken back."""
    if not ramp.settled and ramp.before is not None and ramp.before < ramp.percent:
        taken_back = _enter(ramp, Phase.PAUSED, ramp.before, now, who, say("paused before the step was made"))
        return replace(taken_back, settled=False)
    return replace(_enter(ramp, Phase.PAUSED, ramp.percent, now, who, say("paused")), alarms=ramp.alarms)


def abort(ramp: Ramp, who: str, now: datetime) -> Ramp:
    """Bring everything back to the baseline."""
    return replace(_enter(ramp, Phase.ABORTED, 0, now, who, say("aborted")), settled=False)


def decide(ramp: Ramp, plan: Plan, policy: Policy, seen: Seen, now: datetime) -> Ramp:
    """Return the ramp after one look. A changed ``percent`` comes with ``settled`` false: it is to be written."""
    if not ramp.phase.watched:
        return ramp
    if seen.found != ramp.percent:
        said = say("somebody else moved the toggle from {before} to {found} %", before=ramp.percent, found=seen.found)
        return _follow(ramp, seen.found, now, said)
    looked = _look(_by_the_clock(ramp, now), policy, seen, now)
    found = next(_findings(looked, plan, policy, seen, now), None)
    if found is not None:
        return _retreat(looked, plan, *found, now)
    unseen = [_unseen(looked, seen)] if _unseen_too_long(looked, plan, now) else []
    if looked.phase is not Phase.RUNNING:
        return replace(looked, waiting=tuple(unseen))
    waiting = (*unseen, *_waits(looked, plan, seen, now))
    return replace(looked, waiting=waiting) if waiting else _advance(looked, plan, seen, now)


def give_up(ramp: Ramp, found: int, now: datetime) -> Ramp | None:
    """Return the ramp where its last move, which the toggle does not show yet, must not be written any more; ``None``
    where it is to be written. ``found`` is what the toggle says.

    Somebody else's toggle is never overruled, except to bring everything back; and what let a route go forward holds
    for ``MOST_UNWRITTEN_S`` only.
    """
    if not ramp.percent or found == ramp.percent:
        return None
    if found != ramp.before:
        source = mark("somebody else moved the toggle to {found} % before the move to {percent} % was written")
        return _follow(ramp, found, now, say(source, found=found, percent=ramp.percent))
    if found > ramp.percent or abs((now - ramp.entered_at).total_seconds()) <= MOST_UNWRITTEN_S:
        return None
    return unwritten(ramp, found, now, say("for {seconds:.0f} s", seconds=MOST_UNWRITTEN_S))


def unwritten(ramp: Ramp, found: int, now: datetime, why: str) -> Ramp:
    """Return the ramp without its last move forward, which could not be written: paused where the toggle is."""
    source = mark("the move to {percent} % could not be written {why}; see why, then go on")
    said = say(source, percent=ramp.percent, why=why)
    return replace(_enter(ramp, Phase.PAUSED, found, now, BY_WATCH, said), settled=True)


def too_old(verdict: Verdict, epoch: Epoch | None, plan: Plan, now: datetime) -> str | None:
    """Return why a standing verdict is no evidence for a first step: it is of an earlier epoch than the present one, or
    its newest pair is older than ``plan.verdict_max_age_s``. ``None`` where it is."""
    told = verdict.epoch
    if epoch is not None and (told.number, told.first_sequence) != (epoch.number, epoch.first_sequence):
        return say("its verdict is of an earlier epoch, and another build has answered since: run crossfade compare")
    age_s = plan.verdict_max_age_s + 1 if verdict.last_at is None else (now - verdict.last_at).total_seconds()
    if age_s <= plan.verdict_max_age_s:
        return None
    newest = say("unknown")
    if verdict.last_at is not None:
        newest = say("of {at} UTC", at=f"{verdict.last_at.astimezone(UTC):%Y-%m-%d %H:%M}")
    source = mark(
        "the newest pair in its verdict is {newest}, older than ramp.verdict_max_age_s allows ({most:g} s): "
        "mirror some traffic and run crossfade compare"
    )
    return say(source, newest=newest, most=plan.verdict_max_age_s)


def _follow(ramp: Ramp, found: int, now: datetime, said: Phrase) -> Ramp:
    """Take up what somebody else has made of the toggle."""
    phase = Phase.PAUSED if found else Phase.ABORTED
    return replace(_enter(ramp, phase, found, now, BY_TOGGLE, said), settled=True)


def _enter(ramp: Ramp, phase: Phase, percent: int, now: datetime, by: str, reason: str) -> Ramp:
    """Return the ramp at a new place, where everything is counted from the beginning. A move that is not written yet
    still began where it did."""
    stays = percent == ramp.percent
    return Ramp(
        ramp.route, phase, percent, now, by, reason, settled=stays and ramp.settled,
        before=ramp.before if stays else ramp.percent,
        sequence=ramp.sequence, first_sequence=ramp.sequence, unseen_since=ramp.unseen_since,
    )  # fmt: skip


def _advance(ramp: Ramp, plan: Plan, seen: Seen, now: datetime) -> Ramp:
    percent = plan.after(ramp.percent)
    said = seen.verdict.reason if seen.verdict is not None else ""
    if percent is None:
        return _enter(
            ramp, Phase.DONE, ramp.percent, now, BY_VERDICT, say("the last step has passed: {reason}", reason=said)
        )
    return _enter(ramp, Phase.RUNNING, percent, now, BY_VERDICT, said)


def _retreat(ramp: Ramp, plan: Plan, reason: str, critical: bool, now: datetime) -> Ramp:
    percent = 0 if critical else plan.before(ramp.percent)
    moved = _enter(ramp, Phase.PAUSED if percent else Phase.ABORTED, percent, now, BY_WATCH, reason)
    # Already at 0, a ramp that is given up has nothing to write.
    return replace(moved, settled=moved.percent == ramp.percent)


def _by_the_clock(ramp: Ramp, now: datetime) -> Ramp:
    """Return the ramp with its step begun anew where the clock was set back to before it: what is received from now on
    would else seem to be from before the step, and would not be watched."""
    back_s = (ramp.entered_at - now).total_seconds()
    if back_s <= CLOCK_SLACK_S:
        return ramp
    said = say("the clock was set back by {seconds:.0f} s, so the step begins anew", seconds=back_s)
    anew = _enter(ramp, ramp.phase, ramp.percent, now, BY_WATCH, said)
    return replace(anew, alarms=ramp.alarms, unseen_since=None, forced=ramp.forced)


def _look(ramp: Ramp, policy: Policy, seen: Seen, now: datetime) -> Ramp:
    """Fold what is new into the watches and counts."""
    candidate, baseline = ramp.candidate + (seen.candidate or NOTHING), ramp.baseline + (seen.baseline or NOTHING)
    alarms = fold_alarms(ramp.alarms, policy, seen.noise, baseline, seen.pairs, seen.candidate)
    sequence = max([ramp.sequence, *(m.sequence for m in seen.pairs)])
    unseen_since = (ramp.unseen_since or now) if seen.lacking else None
    return replace(
        ramp, alarms=alarms, sequence=sequence, candidate=candidate, baseline=baseline, unseen_since=unseen_since
    )


def _findings(ramp: Ramp, plan: Plan, policy: Policy, seen: Seen, now: datetime) -> Iterator[tuple[str, bool]]:
    """Yield (what is wrong, whether it is critical), the critical ones first."""
    for watch in ringing(ramp.alarms, plan.alarm_after, policy, seen.noise, ramp.baseline):
        values = {"title": watch.title, "rate": 100 * watch.rate, "percent": ramp.percent}
        yield say("alarm: {title}, above {rate:.2g} % at {percent} %", **values), watch.critical
    if seen.verdict is not None and seen.verdict.decision is Decision.REJECT:
        yield say("rejected: {reason}", reason=seen.verdict.reason), True
    if plan.back_unseen and _unseen_too_long(ramp, plan, now):
        yield _unseen(ramp, seen), True
    for title, critical in failing(ramp.candidate, ramp.baseline, policy):
        yield say("gate: {title} at {percent} %", title=title, percent=ramp.percent), critical


def _unseen_too_long(ramp: Ramp, plan: Plan, now: datetime) -> bool:
    since = ramp.unseen_since
    return ramp.percent > 0 and since is not None and (now - since).total_seconds() > plan.evidence_max_age_s


def _unseen(ramp: Ramp, seen: Seen) -> Phrase:
    if ramp.unseen_since is None:
        return say("no evidence now: {lacking}", lacking=seen.lacking)
    since = f"{ramp.unseen_since.astimezone(UTC):%H:%M:%S}"
    return say("no evidence since {since} UTC: {lacking}", since=since, lacking=seen.lacking)


def _waits(ramp: Ramp, plan: Plan, seen: Seen, now: datetime) -> Iterator[str]:
    """Yield why the ramp cannot go on yet."""
    if ramp.percent:
        left_s = plan.min_stay_s - (now - ramp.entered_at).total_seconds()
        if left_s > 0:
            yield say("stays at {percent} % for another {left:.0f} s at least", percent=ramp.percent, left=left_s)
        if seen.candidate is None:
            yield NO_COUNTS
        elif ramp.candidate.requests < plan.min_requests:
            counts = {"n": ramp.candidate.requests, "wanted": plan.min_requests}
            yield say("the candidate served {n:,} of {wanted:,} requests at this step", **counts)
    if not seen.stored:
        yield NO_STORE
    elif seen.verdict is None:
        yield say("no pair of this step has been judged yet")
    elif seen.verdict.decision is not Decision.PROMOTE:
        decision = plain(seen.verdict.decision.value)
        yield say("the verdict is {decision}: {reason}", decision=decision, reason=seen.verdict.reason)
    elif not ramp.percent and not ramp.forced:
        reason = too_old(seen.verdict, seen.epoch, plan, now)
        if reason is not None:
            yield reason
