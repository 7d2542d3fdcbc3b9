"""The comparison job: measure what is new, fold, judge, store. Numbers first, opinion last.

Exchanges come in batches in the order of writing and their measurements are stored in that order, so the cursor is the
highest sequence that was stored: a job that was killed continues there. Kernels run in a bounded pool of processes, as
pictures keep a core busy; a kernel's fault, or the death of its process, costs one measurement and is counted, never
the batch. What is purged is never judged: without its bodies only equal hashes could be, and they would all say the
same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from sqlalchemy import Engine

from compare.coverage import Mark, RouteAccount, losses_of
from compare.machine import memory_for_each
from compare.marks import Marks
from compare.measurement import Measurement, NotComparable
from compare.measuring import measure_safely
from compare.policy import Policy, measurement_key, policy_hash
from compare.results import Results
from compare.state import RouteState
from compare.states import States
from compare.tally import Tally
from compare.verdict import Verdict, judge_state
from compare.workers import Measure, Workers
from shadow.errors import CorruptBody
from shadow.exchange import Body, Exchange, Observation
from shadow.keeping import Bodies, KeepRule, keeps_match

log = logging.getLogger(__name__)
BATCH = 32
_FAULTS = frozenset({NotComparable.KERNEL_FAULT, NotComparable.TOOK_TOO_LONG, NotComparable.TOOK_TOO_MUCH_MEMORY})
_WORST = 200

Progress = Callable[[str, int, int], None]
"""Called with the route, how many exchanges are measured and how many there are to measure."""


class StoreReader(Protocol):
    """What the job needs of the record."""

    @property
    def engine(self) -> Engine:
        """The database, open to the job's own tables."""
        ...

    def exchanges(self, route: str | None = None, after_sequence: int = 0, limit: int = 100) -> list[Exchange]:
        """Return the next exchanges in the order of writing."""
        ...

    def load(self, body: Body) -> bytes | None:
        """Return a body's bytes, ``None`` when they were not kept. Raises ``CorruptBody``."""
        ...

    def count(self, route: str | None = None) -> int:
        """Return how many exchanges are stored."""
        ...

    def drop_bodies(self, ids: Sequence[str]) -> int:
        """Delete the bodies of these exchanges where they are theirs alone; return of how many."""
        ...

    def accounts(self) -> Mapping[str, RouteAccount]:
        """Return the gateway's account of each route."""
        ...


class Pool(Protocol):
    """Where exchanges are measured other than in this process; ``batch`` is how many it likes to get at once."""

    @property
    def batch(self) -> int:
        """The size of a batch."""
        ...

    def measure(self, exchanges: Sequence[Exchange], policy: Policy) -> list[Measurement]:
        """Measure a batch, in its order. Blocks."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


@dataclass(frozen=True, slots=True)
class RouteResult:
    """One route's verdict with what it rests on: the counts of the present epoch, and its gravest pairs."""

    policy: Policy
    verdict: Verdict
    tally: Tally
    worst: tuple[Measurement, ...] = ()
    measured_now: int = 0
    faults: int = 0


def utc_now() -> datetime:
    """Return the wall time."""
    return datetime.now(UTC)


def no_progress(_route: str, _done: int, _total: int) -> None:
    """Tell nobody."""


def run(
    reader: StoreReader,
    policies: Sequence[Policy],
    *,
    progress: Progress = no_progress,
    workers: int = 2,
    now: Callable[[], datetime] = utc_now,
    measure: Measure = measure_safely,
) -> list[RouteResult]:
    """Measure what is new on each policy's route and judge it, once. See ``Job``."""
    job = Job(reader, policies, workers=workers, now=now, measure=measure)
    try:
        return job.step(progress)
    finally:
        job.close()


class Job:
    """The job over some routes, for as long as it is wanted: each ``step`` takes up what came since the last.

    ``workers`` processes measure, 0 for this process (without limits of time and memory). The policies of all routes
    that are judged together carry that number in ``Policy.routes``, also when only some of them are run. ``measure`` is
    what is run for each exchange. A ``pool`` that is given takes the place of the processes; it is closed with the job.
    Several jobs may run at once; whoever owns one closes it.
    """

    def __init__(
        self,
        reader: StoreReader,
        policies: Sequence[Policy],
        *,
        workers: int = 2,
        now: Callable[[], datetime] = utc_now,
        measure: Measure = measure_safely,
        pool: Pool | None = None,
    ) -> None:
        self._reader, self._policies, self._now, self._measure = reader, policies, now, measure
        self._results, self._marks = Results(reader.engine), Marks(reader.engine)
        self._states = States(reader.engine, self._results)
        self._known: dict[str, RouteState] = {}
        if pool is None and workers > 0:
            pool = Workers(workers, measure=measure, memory_bytes=memory_for_each(workers))
        self._pool = pool

    def step(self, progress: Progress = no_progress) -> list[RouteResult]:
        """Measure what is new on each route and judge it. Blocks until the record is used up."""
        looked_at, accounts = self._now(), self._reader.accounts()  # in this order: later losses count for later
        found = []
        for policy in self._policies:
            done, faults = _measure_new(self._reader, self._results, policy, self._pool, self._measure, progress)
            state = self._states.advance(policy, self._known.get(policy.route))
            self._known[policy.route] = state
            result = self._judge(policy, state, accounts.get(policy.route))
            found.append(replace(result, measured_now=done, faults=faults))
            self._marks.add(policy.route, Mark(looked_at, losses_of(accounts.get(policy.route), state.recorded)))
        return found

    def since(self, moment: datetime) -> list[RouteResult]:
        """Judge what was received since a moment by itself. For a look: nothing of it is kept, no earlier reject holds,
        and the gateway's account, which is not by time, is left out."""
        found = []
        for policy in self._policies:
            state = self._states.since(policy, moment)
            verdict = judge_state(state, policy, None, now=self._now())
            found.append(RouteResult(policy, verdict, state.tally, self._worst(policy, verdict)))
        return found

    def _judge(self, policy: Policy, state: RouteState, account: RouteAccount | None) -> RouteResult:
        previous = self._results.latest_verdict(policy.route, policy_hash(policy))
        marks = self._marks.of(policy.route)
        verdict = judge_state(state, policy, account, now=self._now(), previous=previous, marks=marks)
        if previous is None or replace(verdict, judged_at=previous.judged_at) != previous:
            self._results.save_verdict(verdict)  # one that says the same again is not kept again
        return RouteResult(policy, verdict, state.tally, self._worst(policy, verdict))

    def _worst(self, policy: Policy, verdict: Verdict) -> tuple[Measurement, ...]:
        since = verdict.epoch.first_sequence
        return tuple(self._results.worst(policy.route, measurement_key(policy), from_sequence=since, limit=_WORST))

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.close()


def _measure_new(
    reader: StoreReader,
    results: Results,
    policy: Policy,
    pool: Pool | None,
    measure: Measure,
    progress: Progress,
) -> tuple[int, int]:
    """Return how many exchanges were measured and how many kernels failed."""
    key, route = measurement_key(policy), policy.route
    cursor = _first_cursor(results, policy, key)
    total = max(0, reader.count(route) - sum(results.counts(route, key).values()))
    done = faults = 0
    progress(route, done, total)
    size = BATCH if pool is None else pool.batch
    while batch := reader.exchanges(route=route, after_sequence=cursor, limit=size):
        loaded = [_with_bodies(exchange, reader, policy) for exchange in batch]
        if pool is not None:
            measured = pool.measure(loaded, policy)
        else:
            measured = [measure(exchange, policy) for exchange in loaded]
        for m in measured:
            if m.not_comparable in _FAULTS:
                faults += 1
                log.error("exchange %s of %s could not be measured: %s", m.exchange_id, route, m.judgement.note)
        results.add(key, measured)
        _drop_matches(reader, policy, measured)
        cursor = batch[-1].sequence
        done += len(batch)
        progress(route, done, max(total, done))
    return done, faults


def measure_some(reader: StoreReader, results: Results, policy: Policy, limit: int) -> int:
    """Measure at most ``limit`` new exchanges of a route in this process; return how many.

    For whoever looks often and must not be kept long (a ramp); ``run`` goes on from there, and the other way round.
    """
    key = measurement_key(policy)
    cursor = _first_cursor(results, policy, key)
    batch = reader.exchanges(route=policy.route, after_sequence=cursor, limit=limit)
    measured = [measure_one(exchange, reader, policy) for exchange in batch]
    results.add(key, measured)
    _drop_matches(reader, policy, measured)
    return len(batch)


def measure_one(exchange: Exchange, reader: StoreReader, policy: Policy) -> Measurement:
    """Measure one stored exchange and keep nothing of it."""
    return measure_safely(_with_bodies(exchange, reader, policy), policy)


def _first_cursor(results: Results, policy: Policy, key: str) -> int:
    """Return where to go on. Where the bodies of matches are deleted, what was judged under an older key is not judged
    anew: only its mismatches are left, and they would all speak against the candidate."""
    keys = {key, *results.keys(policy.route)} if policy.bodies is Bodies.MISMATCHES else {key}
    return max(results.last_sequence(policy.route, each) for each in keys)


def _drop_matches(reader: StoreReader, policy: Policy, measured: Sequence[Measurement]) -> None:
    """Delete the bodies of the pairs that match, where the route asks for it, but for the sample. A crash before it
    leaves them to their expiry."""
    if policy.bodies is not Bodies.MISMATCHES:
        return
    rule = KeepRule(policy.bodies, policy.kept_matches_percent)
    reader.drop_bodies([m.exchange_id for m in measured if _matches(m) and not keeps_match(rule, m.exchange_id)])


def _matches(m: Measurement) -> bool:
    found = m.judgement
    agrees = found.output_class is not None and not found.output_class.mismatch and found.critical is None
    return m.both_refused or agrees


def _with_bodies(exchange: Exchange, reader: StoreReader, policy: Policy) -> Exchange:
    """Return the exchange with all bodies in memory that are kept and not beyond the policy's cap."""

    def body(source: Body) -> Body:
        if source.chunks is not None or source.size_bytes > policy.max_body_bytes:
            return source
        try:
            data = reader.load(source)
        except CorruptBody as error:
            log.warning("a body of exchange %s is damaged on disk: %s", exchange.id, error)
            data = None
        return source if data is None else replace(source, chunks=(data,))

    def leg(side: Observation | None) -> Observation | None:
        return side if side is None or side.body is None else replace(side, body=body(side.body))

    request = replace(exchange.request, body=body(exchange.request.body))
    primary = leg(exchange.primary) or exchange.primary
    return replace(
        exchange, request=request, primary=primary, shadow=leg(exchange.shadow), control=leg(exchange.control)
    )
