"""The driver of ramps: looks every two seconds, decides by ``compare.ramp``, records, and then moves the toggle.

It is a process of its own (``crossfade ramp run``), not a part of the dashboard: what moves production's traffic should
not end with a page, and the page then needs no right to write. Several may run; one owns the ramps (a lease in the
store) and the others stand by.

A look goes over the ramps twice. First by what the gateways count, which is quick: what harms clients now brings its
route back before anything is measured. Then by the record: at most ``PAIRS`` new pairs of each route are measured here,
and the verdict may lead forward.

A store that does not answer, or hangs (``crossfade.patience``), ends the second part and not the first. The driver that
owned the ramps then watches on by the counts alone, from what it last read; it makes no step forward, and notes a move
back in a journal before it writes the toggle (``crossfade.ramp_journal``). Once the store answers, the journal is
recorded first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.exc import SQLAlchemyError

from compare.phrases import say
from compare.plan import Plan
from compare.policy import Policy
from compare.ramp import BY_WATCH, Ramp, Seen, decide, give_up, unwritten
from compare.ramp_watch import NOTHING, Served
from compare.rampbook import Entry, Move, Outrun, RampBook
from compare.ramps import ToggleWriter
from crossfade.patience import Patience
from crossfade.ramp_evidence import Evidence
from crossfade.ramp_journal import RampJournal
from crossfade.served import By, ServedMeter
from shadow.errors import StoreError
from shadow.store.reader import Reader

log = logging.getLogger(__name__)
INTERVAL_S = 2.0
LEASE_S = 20.0
PATIENCE_S = 15.0
"""How long one call of the store may take before it counts as one that does not answer."""
_REMIND_EVERY = timedelta(seconds=60)

Situation = Callable[[], tuple[Mapping[str, Policy], Mapping[str, Plan]]]
Tell = Callable[[str], None]


class Driver:
    """Drives every ramp in the book. Blocks; for one thread."""

    def __init__(
        self,
        reader: Reader,
        writer: ToggleWriter,
        meter: ServedMeter,
        situation: Situation,
        *,
        journal: RampJournal,
        owner: str,
        now: Callable[[], datetime],
        tell: Tell,
    ) -> None:
        self._writer, self._meter, self._situation, self._journal = writer, meter, situation, journal
        self._owner, self._now, self._tell = owner, now, tell
        self._patiently = Patience(PATIENCE_S)
        self._evidence, self._book = Evidence(reader, now), RampBook(reader.engine)
        self._known: dict[str, Entry] = {}
        """What the owner knows of each ramp; ahead of the book while the store does not answer."""
        self._unnoted: list[Move] = []
        self._owed: dict[tuple[str, str], Served] = {}
        """What the gateways counted and no ramp has taken up yet: a count is read once only."""
        self._reminded: dict[str, datetime] = {}
        self._strange: set[str] = set()
        self._other, self._fault, self._mine, self._away = "", "", False, False

    def look(self) -> bool:
        """Look at every ramp once; return whether there is more to measure at once. Raises ``ConfigError`` for a file
        that cannot be read; what else a later look may mend is logged."""
        policies, plans = self._situation()
        served = self._meter.read(policies)  # also by one that stands by: what was counted before it drives is not its
        try:
            self._mine = self._claim()
            self._record_late()
            if not self._mine:
                self._known, self._owed = {}, {}
                return False
            self._known = self._read()
            self._take_up(served)
        except (SQLAlchemyError, StoreError) as error:
            self._lose(error)
            if self._mine:
                self._take_up(served)
                self._over_all(policies, plans, served is not None, self._watch_alone)
            return False
        if self._away:
            self._away = False
            self._tell("the store answers again")
        return self._over_all(policies, plans, served is not None, self._come_back, self._go_on)

    def close(self) -> None:
        """Give the ownership back, where the store answers."""
        try:
            self._patiently(lambda: self._book.release(self._owner))
        except (SQLAlchemyError, StoreError) as error:
            log.warning("the ramps are left to the next driver in %.0f s: %s", LEASE_S, _cause(error))

    def _claim(self) -> bool:
        now = self._now()
        owner = self._patiently(lambda: self._book.claim(self._owner, now, LEASE_S))
        if owner not in (self._owner, self._other):
            self._tell(f"{owner} drives the ramps; standing by")
        self._other = "" if owner == self._owner else owner
        return owner == self._owner

    def _record_late(self) -> None:
        now = self._now()
        for move in self._unnoted:
            self._patiently(partial(self._book.record_late, move, now))
        self._unnoted = []
        try:
            late = self._patiently(lambda: self._journal.record(self._book, now))
        except OSError as error:
            if str(error) != self._fault:
                log.error("moves that were made while the store was away stay unrecorded: %s", error)
            self._fault = str(error)
            return
        for move in late:
            self._tell(f"{move.route}: recorded late, {move.before} to {move.after} %, by {move.by}: {move.reason}")

    def _read(self) -> dict[str, Entry]:
        """Return every ramp. What was seen while the store was away is saved, unless somebody has changed the ramp."""
        found = self._patiently(self._book.all)
        for route, entry in self._known.items():
            stored = found.get(route)
            if stored is not None and stored.version == entry.version and stored.ramp != entry.ramp:
                with suppress(Outrun):
                    found[route] = self._patiently(partial(self._book.save, entry.ramp, stored, self._now()))
        return found

    def _lose(self, error: Exception) -> None:
        if not self._away:
            said = "the gateways' counts are watched on" if self._mine else "this driver does not own the ramps"
            log.error("the store does not answer: %s; nothing goes forward, %s", _cause(error), said)
        self._away = True

    def _over_all(self, policies: Mapping[str, Policy], plans: Mapping[str, Plan], complete: bool, *ways: _Way) -> bool:
        """Go over all ramps, once for each way; return whether any said that there is more. A route that fails does not
        keep the others from being looked at."""
        routes = [r for r, e in self._known.items() if e.ramp.phase.watched or not e.ramp.settled]
        strange = {route for route in routes if route not in policies or route not in plans}
        for route in strange - self._strange:
            log.error("the ramp of %s is not watched: the config has no such route any more", route)
        self._strange = strange
        routes = [route for route in routes if route not in strange]
        self._owed = {pair: n for pair, n in self._owed.items() if pair[0] in routes}
        busy = False
        for way in ways:
            for route in routes:
                try:
                    busy = way(policies[route], plans[route], complete) or busy
                except Outrun:
                    log.info("the ramp of %s was changed by somebody else; looking again", route)
                except (OSError, ValueError, StoreError) as error:  # the file, the API server: the next look tries
                    log.error("the ramp of %s: %s", route, error)
                except SQLAlchemyError as error:
                    log.error("the ramp of %s: the store failed: %s", route, _cause(error))
                except Exception:
                    log.exception("the ramp of %s: this look failed", route)
        return busy

    def _take_up(self, served: By | None) -> None:
        for pair, n in (served or {}).items():
            self._owed[pair] = self._owed.get(pair, NOTHING) + n

    def _with_counts(self, seen: Seen, policy: Policy, *, complete: bool) -> Seen:
        if not complete:
            return seen
        served = {name: self._owed.get((policy.route, name), NOTHING) for name in (policy.candidate, policy.baseline)}
        return replace(seen, candidate=served[policy.candidate], baseline=served[policy.baseline])

    def _paid(self, policy: Policy, *, complete: bool) -> None:
        if complete:
            self._owed = {pair: n for pair, n in self._owed.items() if pair[0] != policy.route}

    def _come_back(self, policy: Policy, plan: Plan, complete: bool) -> bool:
        """Write what is not written yet, and bring a route back that does harm by the counts alone."""
        entry = self._known[policy.route]
        if not entry.ramp.settled:
            self._settle(entry)
            return False
        seen = self._with_counts(Seen(self._writer.percent(policy.route)), policy, complete=complete)
        after = decide(entry.ramp, plan, policy, seen, self._now())
        if seen.found == entry.ramp.percent and after.percent < entry.ramp.percent:
            self._make(after, entry, policy, complete=complete)
        return False

    def _go_on(self, policy: Policy, plan: Plan, complete: bool) -> bool:
        """Look at the record, and go forward or back by it."""
        entry = self._known[policy.route]
        if not entry.ramp.settled or not entry.ramp.phase.watched:
            return False
        measured = self._patiently(lambda: self._evidence.measure(policy))
        found = self._writer.percent(policy.route)
        ramp, seen, more = self._patiently(lambda: self._evidence.see(entry.ramp, policy, found))
        seen = self._with_counts(seen, policy, complete=complete)
        after = decide(ramp, plan, policy, seen, self._now())
        self._remind(after, plan)
        self._make(after, entry, policy, complete=complete)
        return measured or more

    def _watch_alone(self, policy: Policy, plan: Plan, complete: bool) -> bool:
        """Look without a store: by the counts and the toggle. Only back."""
        entry = self._known[policy.route]
        ramp, found = entry.ramp, self._writer.percent(policy.route)
        if not ramp.settled and found < ramp.percent:
            self._keep(unwritten(ramp, found, self._now(), say("as the store does not answer")), entry)
            return False
        if ramp.settled:
            seen = self._with_counts(Seen(found, stored=False), policy, complete=complete)
            ramp = decide(ramp, plan, policy, seen, self._now())
            if ramp.percent < entry.ramp.percent and ramp.by == BY_WATCH:
                self._note(Move(ramp.route, self._now(), ramp.phase, found, ramp.percent, ramp.by, ramp.reason))
            self._keep(ramp, entry)
            self._paid(policy, complete=complete)
            self._remind(ramp, plan)
        if not ramp.settled and give_up(ramp, found, self._now()) is None:
            self._write(ramp)
            self._known[ramp.route] = Entry(replace(ramp, settled=True), entry.version)
        return False

    def _keep(self, ramp: Ramp, entry: Entry) -> None:
        self._known[ramp.route] = Entry(ramp, entry.version)
        self._tell_moved(entry.ramp, ramp)

    def _note(self, move: Move) -> None:
        """Note a move back. A journal that cannot be written keeps nobody from coming back: the move is then kept here,
        and the toggle's own audit line says that it was made."""
        try:
            self._journal.note(move)
        except OSError:
            log.exception("a move of %s cannot be noted in %s", move.route, self._journal.path)
            self._unnoted.append(move)

    def _make(self, after: Ramp, entry: Entry, policy: Policy, *, complete: bool) -> None:
        """Record where a ramp is now, and write the toggle where that is another place. Raises ``Outrun``."""
        saved = self._save(after, entry)
        self._paid(policy, complete=complete)
        self._tell_moved(entry.ramp, after)
        if not after.settled:
            self._settle(saved)

    def _save(self, after: Ramp, entry: Entry) -> Entry:
        if after != entry.ramp:
            save = partial(self._book.save, after, entry, self._now())
            entry = self._known[after.route] = self._patiently(save)
        return entry

    def _settle(self, entry: Entry) -> None:
        """Make the toggle say what the ramp says, which is on record by now; or give the move up. Raises ``Outrun``."""
        ramp = entry.ramp
        given_up = give_up(ramp, self._writer.percent(ramp.route), self._now())
        if given_up is not None:
            self._save(given_up, entry)
            self._tell(describe(given_up))
            return
        self._write(ramp)
        try:
            self._save(replace(ramp, settled=True), entry)
        except Outrun:
            newest = self._patiently(lambda: self._book.read(ramp.route))
            if newest is not None and newest.ramp.percent < ramp.percent:
                self._write(newest.ramp)  # brought back while this was being written: that word was the last
            raise

    def _write(self, ramp: Ramp) -> None:
        self._writer.move(ramp.route, ramp.percent, who=f"ramp, by {ramp.by}", now=self._now())

    def _tell_moved(self, before: Ramp, after: Ramp) -> None:
        if (after.percent, after.phase) != (before.percent, before.phase):
            self._tell(describe(after))

    def _remind(self, ramp: Ramp, plan: Plan) -> None:
        """Say loudly, and again each minute, that a route is held without evidence."""
        now, since = self._now(), ramp.unseen_since
        if not ramp.percent or since is None or (now - since).total_seconds() <= plan.evidence_max_age_s:
            self._reminded.pop(ramp.route, None)
            return
        last = self._reminded.get(ramp.route)
        if last is None or now - last >= _REMIND_EVERY:
            self._reminded[ramp.route] = now
            log.error("%s is held at %d %% unseen: %s", ramp.route, ramp.percent, "; ".join(ramp.waiting[:1]))


_Way = Callable[[Policy, Plan, bool], bool]


def _cause(error: Exception) -> str:
    """Return what went wrong without the SQL, which is long and says nothing to an operator."""
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


def describe(ramp: Ramp) -> str:
    """Return a ramp in one line."""
    return f"{ramp.route}: {ramp.phase.value} at {ramp.percent} %, by {ramp.by}: {ramp.reason}"
