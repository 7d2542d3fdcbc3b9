"""What a person can do with a ramp: start, pause, abort, look. The command line and the page use this very class.

Starting moves nothing by itself: a driver (``crossfade ramp run``) makes the first move, so that no traffic crosses
unwatched. Aborting needs no driver: it writes the toggle at once, and a driver repeats what could not be written. It
needs no store either: where that does not answer, the move is noted in a journal and recorded later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from compare.phrases import Phrase, mark, plain, say
from compare.plan import Plan
from compare.policy import Policy, measurement_key, policy_hash
from compare.ramp import Phase, Ramp, abort, begin, pause, resume, too_old
from compare.rampbook import Entry, Move, Outrun, RampBook
from compare.results import Results
from compare.states import States
from compare.verdict import Decision

log = logging.getLogger(__name__)
_ATTEMPTS = 10


class RampRefused(ValueError):
    """A ramp may not be changed like that. ``why`` says why, and what to do."""

    def __init__(self, why: Phrase) -> None:
        super().__init__(why)
        self.why = why


class StoreAway(RampRefused):
    """The store does not answer, so nothing can be changed but back."""


class Journal(Protocol):
    """Where a move back is noted while the store does not answer."""

    def note(self, move: Move) -> None:
        """Keep the move until it can be recorded. Raises ``OSError``."""
        ...


class ToggleWriter(Protocol):
    """Whoever can move the traffic of a route: the config file, a ConfigMap."""

    def percent(self, route: str) -> int:
        """Return what the candidate serves by the toggle. Raises ``ValueError`` or ``OSError``."""
        ...

    def move(self, route: str, percent: int, *, who: str, now: datetime) -> None:
        """Give the candidate so much. Raises ``ValueError`` or ``OSError``, having changed nothing."""
        ...


@dataclass(frozen=True, slots=True)
class RampState:
    """What is to be known of a route's ramp. ``driver`` names the process that drives it, ``None`` where none runs."""

    route: str
    plan: Plan
    ramp: Ramp | None
    moves: tuple[Move, ...]
    driver: str | None


class Ramps:
    """The ramps of all routes with a policy and a plan. Every method blocks."""

    def __init__(
        self,
        book: RampBook,
        results: Results,
        writer: ToggleWriter,
        situation: Callable[[], tuple[Mapping[str, Policy], Mapping[str, Plan]]],
        now: Callable[[], datetime],
        states: States,
        journal: Journal,
    ) -> None:
        self._book, self._results, self._writer = book, results, writer
        self._situation, self._now, self._states, self._journal = situation, now, states, journal

    def routes(self) -> tuple[str, ...]:
        """Return the routes of the config, in its order."""
        return tuple(self._situation()[1])

    def state(self, route: str) -> RampState:
        """Return where a route's ramp is. Raises ``RampRefused`` where there is no such route."""
        _, plan = self._known(route)
        entry = self._book.read(route)
        moves = tuple(self._book.moves(route))
        return RampState(route, plan, None if entry is None else entry.ramp, moves, self._book.owner(self._now()))

    def start(self, route: str, who: str, forced_because: str | None = None) -> Ramp:
        """Begin where the toggle is, or go on after a pause. ``forced_because`` says why the evidence may be old, and
        is recorded. Raises ``RampRefused``."""
        policy, plan = self._known(route)

        def change(entry: Entry | None) -> Ramp:
            if entry is not None and entry.ramp.phase is Phase.PAUSED:
                return resume(entry.ramp, who, self._now(), forced_because=forced_because)
            if entry is not None and entry.ramp.phase.watched:
                phase = plain(entry.ramp.phase.value)
                source = mark("the ramp of {route} is {phase} already, at {percent} %")
                raise RampRefused(say(source, route=route, phase=phase, percent=entry.ramp.percent))
            self._may_begin(policy, plan, forced=forced_because is not None)
            last = self._results.last_sequence(route, measurement_key(policy))
            percent = self._writer.percent(route)
            return begin(route, percent, who, self._now(), last, forced_because=forced_because)

        return self._change(route, change)

    def pause(self, route: str, who: str) -> Ramp:
        """Stay at the present step. Raises ``RampRefused`` where nothing moves."""

        def change(entry: Entry | None) -> Ramp:
            if entry is None or entry.ramp.phase is not Phase.RUNNING:
                raise RampRefused(say("no ramp of {route} is running, so there is nothing to pause", route=route))
            return pause(entry.ramp, who, self._now())

        self._known(route)
        return self._change(route, change)

    def abort(self, route: str, who: str) -> Ramp:
        """Bring all traffic back to the baseline, now, also where the store does not answer. Raises ``RampRefused``
        where the toggle cannot be written: the intent is recorded by then, and a driver goes on trying."""

        def change(entry: Entry | None) -> Ramp:
            ramp = entry.ramp if entry is not None else begin(route, self._writer.percent(route), who, self._now())
            return abort(ramp, who, self._now())

        self._known(route)
        try:
            ramp = self._change(route, change)
        except StoreAway:
            return abort_unrecorded(route, who, self._writer, self._journal, self._now())
        try:
            self._writer.move(route, 0, who=_by(who), now=self._now())
        except (OSError, ValueError) as error:
            why = say(
                "the abort of {route} is on record, but the toggle cannot be written from here, so a driver has to "
                "(crossfade ramp run): {error}",
                route=route, error=str(error),
            )  # fmt: skip
            raise RampRefused(why) from error
        settled = replace(ramp, settled=True)
        try:
            return self._change(route, lambda entry: replace(entry.ramp if entry else ramp, settled=True))
        except StoreAway:  # a driver will see that the toggle has followed
            return settled

    def _known(self, route: str) -> tuple[Policy, Plan]:
        policies, plans = self._situation()
        if route not in plans or route not in policies:
            known = ", ".join(plans) or say("none")
            raise RampRefused(say("there is no route {route}; the config has {known}", route=route, known=known))
        return policies[route], plans[route]

    def _may_begin(self, policy: Policy, plan: Plan, *, forced: bool) -> None:
        route = policy.route
        if not plan.mirrors_back:
            why = say(
                "{route} is not mirrored both ways, so nothing could be judged once {candidate} serves: set "
                "shadow.percent above 0 and shadow.both_ways: true",
                route=route, candidate=policy.candidate,
            )  # fmt: skip
            raise RampRefused(why)
        verdict = self._results.latest_verdict(route, policy_hash(policy))
        if verdict is None:
            source = mark("{route} has no verdict under today's policy: run crossfade compare first")
            raise RampRefused(say(source, route=route))
        if verdict.decision is not Decision.PROMOTE:
            why = say(
                "the verdict on {route} is {decision}, not promote: {reason}",
                route=route, decision=plain(verdict.decision.value), reason=verdict.reason,
            )  # fmt: skip
            raise RampRefused(why)
        reason = None if forced else too_old(verdict, self._states.present_epoch(policy), plan, self._now())
        if reason is not None:
            why = say(
                "{route} cannot begin: {reason}; or say why it may begin all the same: "
                "crossfade ramp start {route} --force 'WHY'",
                route=route, reason=reason,
            )  # fmt: skip
            raise RampRefused(why)

    def _change(self, route: str, change: Callable[[Entry | None], Ramp]) -> Ramp:
        for _ in range(_ATTEMPTS):
            try:
                entry = self._book.read(route)
                return self._book.save(change(entry), entry, self._now()).ramp
            except Outrun:
                continue
            except SQLAlchemyError as error:
                why = say(
                    "the store does not answer, so the ramp of {route} is left as it is (crossfade ramp abort {route} "
                    "brings it back all the same): {error}",
                    route=route, error=type(error).__name__,
                )  # fmt: skip
                raise StoreAway(why) from error
        raise RampRefused(say("the ramp of {route} keeps changing under this command; try again", route=route))


def abort_unrecorded(route: str, who: str, writer: ToggleWriter, journal: Journal, now: datetime) -> Ramp:
    """Bring all traffic back while the store does not answer: noted in ``journal`` first, recorded later.

    A journal that cannot be written keeps nobody from coming back: the writer's own audit line is a record, too. Raises
    what the writer raises.
    """
    ramp = begin(route, writer.percent(route), who, now)
    back = abort(ramp, who, now)
    try:
        journal.note(Move(route, now, back.phase, ramp.percent, back.percent, back.by, back.reason))
    except OSError as error:  # to bring the traffic back matters more
        log.error("the abort of %s by %s cannot be noted: %s", route, who, error)
    writer.move(route, 0, who=_by(who), now=now)
    return replace(back, settled=True)


def _by(who: str) -> str:
    return f"ramp, by {who}"
