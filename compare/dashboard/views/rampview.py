"""The way across on a route's page: where it is, what it waits for, who moved it, and what may be done."""

from __future__ import annotations

from dataclasses import dataclass

from compare.dashboard.views.words import Badge, moment
from compare.phrases import mark, plain, plural, say
from compare.ramp import NOBODY, Phase
from compare.ramps import RampState

_BADGES = {
    Phase.RUNNING: Badge(say("running"), "→", "promote"),
    Phase.PAUSED: Badge(say("paused"), "‖", "hold"),
    Phase.DONE: Badge(say("across"), "✓", "promote"),
    Phase.ABORTED: Badge(say("back"), "←", "reject"),
}
NOT_BEGUN = Badge(say("not begun"), "…", "none")


@dataclass(frozen=True, slots=True)
class StepMark:
    """A step of the plan: ``mark`` is past, here or ahead."""

    percent: int
    mark: str


@dataclass(frozen=True, slots=True)
class MoveRow:
    """A move in words."""

    at: str
    phase: str
    shares: str
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class RampView:
    """Everything on the card. ``actions`` are (value of the form, word of the button, whether it needs a second
    thought)."""

    badge: Badge
    sentence: str
    waiting: tuple[str, ...]
    warning: str
    steps: tuple[StepMark, ...]
    served: str
    moves: tuple[MoveRow, ...]
    actions: tuple[tuple[str, str, bool], ...]

    @property
    def moved(self) -> str:
        return plural(len(self.moves), "move")


def build_ramp(state: RampState | None) -> RampView | None:
    """Return the card of a route's ramp, ``None`` where the page knows none."""
    if state is None:
        return None
    ramp = state.ramp
    here = ramp.percent if ramp is not None and ramp.phase.watched else 0
    steps = tuple(
        StepMark(step, "here" if step == here else "past" if step < here else "ahead") for step in state.plan.steps
    )
    moves = tuple(
        MoveRow(moment(m.at), plain(m.phase.value), f"{m.before} → {m.after} %", _who(m.by), m.reason)
        for m in state.moves
    )
    if ramp is None:
        return RampView(NOT_BEGUN, _begin_words(state), (), "", steps, "", moves, _actions(None, state))
    served = ""
    if ramp.percent and ramp.phase.watched:
        requests, errors = plural(ramp.candidate.requests, "request"), plural(ramp.candidate.errors, "error")
        served = say("{requests} served by the candidate at this step, {errors}", requests=requests, errors=errors)
    phase = say(_PHASE_WORDS[ramp.phase], percent=ramp.percent)
    sentence = say("{phase}, by {who}: {reason}", phase=phase, who=_who(ramp.by), reason=ramp.reason)
    return RampView(
        _BADGES[ramp.phase], sentence, ramp.waiting, _warning(state), steps, served, moves, _actions(ramp.phase, state)
    )


def _who(by: str) -> str:
    return plain(by) if by in NOBODY else by


_PHASE_WORDS = {
    Phase.RUNNING: mark("On its way, at {percent} %"),
    Phase.PAUSED: mark("Paused at {percent} %"),
    Phase.DONE: mark("The candidate serves {percent} %; the baseline is its shadow now"),
    Phase.ABORTED: mark("Back at {percent} %"),
}


_UNWRITTEN = mark("The toggle is not written yet.")


def _begin_words(state: RampState) -> str:
    if not state.plan.mirrors_back:
        return say("Cannot begin: set shadow.both_ways: true, so that there are pairs once the candidate serves.")
    return say("Not begun. It can once the verdict is promote.")


def _warning(state: RampState) -> str:
    if state.ramp is None or not state.ramp.phase.watched:
        return say(_UNWRITTEN) if state.ramp is not None and not state.ramp.settled else ""
    if state.driver is None:
        return say("Nobody watches this ramp: start {command}, or abort.", command="crossfade ramp run")
    return "" if state.ramp.settled else say(_UNWRITTEN)


def _actions(phase: Phase | None, state: RampState) -> tuple[tuple[str, str, bool], ...]:
    abort = ("abort", say("Bring everything back"), True)
    if phase is Phase.RUNNING:
        return (("pause", say("Pause"), False), abort)
    if phase is Phase.PAUSED:
        return (("start", say("Go on"), False), abort)
    if phase is Phase.DONE:
        return (abort,)
    return (("start", say("Start the ramp"), True),) if state.plan.mirrors_back else ()
