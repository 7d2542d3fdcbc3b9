"""The door: a raw ASGI endpoint that matches a request, limits it, chooses its backend, streams it through and hands
over the record.

Whether a request may pass is decided at the ``door``, before the body is read, so that a refused client never gets a
100 Continue and uploads nothing.

Every request that passes is *received*; it is handed to ``tap`` exactly once, after the client has its answer and
whatever happened: with ``skipped`` set where there can be no pair, among them ``client_gone`` for a request that never
became whole. A client that leaves after its request was whole keeps its pair: the primary is then recorded as
cancelled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

import httpx
from starlette.types import Receive, Scope, Send

from gateway import problem as problems
from gateway.alarm import Alarms
from gateway.arrival import ANSWER_KEY, LEAVING_KEY, WHOLE_KEY, Arrival, no_answer_yet, no_body_yet, read_arrival
from gateway.callers import Caller
from gateway.cors import cors_fields
from gateway.dispatch import Dispatch
from gateway.door import Door, Entered, Refused
from gateway.errand import Errand
from gateway.fields import HttpDate
from gateway.fleet import Fleet
from gateway.forwarding import FieldChange
from gateway.generation import Choice, Generation
from gateway.intake import BodyPace, Ending, Intake
from gateway.metrics import Metrics
from gateway.passage import Passage
from gateway.problem import AnswerAborted, Problem, send_problem
from gateway.replay import Replay
from gateway.routing import choose, sole
from gateway.settings import Route
from gateway.tracing import RequestTrace, Tracing
from gateway.traffic import NO_ROUTE, Traffic
from gateway.websocket import Bridge, refuse
from shadow.exchange import Exchange, Headers, Request, SkipReason
from shadow.sampling import Sampler
from shadow.selection import skip_reason
from shadow.tee import ByteBudget, Disk, Tee

_log = logging.getLogger(__name__)

Tap = Callable[[Exchange], None]
Blocks = Callable[[str, str], bool]
"""Says of a route and the backend that is to answer whether no copy will be sent, because the other backend refuses."""


class _Pass(NamedTuple):
    """A request that may go to its backend. ``skip`` is why it will not be mirrored, as far as is known before its
    body."""

    arrival: Arrival
    route: Route
    main: Choice
    spare: Choice | None
    skip: SkipReason | None
    added: Headers
    change: FieldChange
    release: Callable[[], None]


class Relay:
    """Serves everything that is not the gateway's own. ``tap`` must neither wait nor raise; ``transport`` and
    ``alarms`` are lent."""

    def __init__(
        self,
        *,
        current: Callable[[], Generation],
        transport: httpx.AsyncBaseTransport,
        fleet: Fleet,
        budget: ByteBudget | None,
        disk: Disk | None,
        replay_budget: ByteBudget,
        pace: BodyPace,
        tap: Tap,
        blocks: Blocks,
        sampler: Sampler,
        tracing: Tracing,
        traffic: Traffic,
        metrics: Metrics,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        new_id: Callable[[], str],
        alarms: Alarms,
    ) -> None:
        self._current = current
        self._transport = transport
        self._fleet = fleet
        self._budget = budget
        self._disk = disk
        self._replay_budget = replay_budget
        self._pace = pace
        self._tap = tap
        self._blocks = blocks
        self._tracing = tracing
        self._traffic = traffic
        self._metrics = metrics
        self._door = Door(metrics)
        self._sampler = sampler
        self._clock = clock
        self._now = now
        self._new_id = new_id
        self._alarms = alarms
        self._date = HttpDate()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        arrival = read_arrival(scope, request_id=self._new_id(), received_at=self._now())
        generation = self._current()
        trace = self._tracing.begin(arrival)
        try:
            verdict = await self._door.admit(generation, arrival)
            if isinstance(verdict, Refused):
                self._count_refused(verdict)
                trace.note_answer(verdict.problem.status, verdict.problem.code)
                await self._refuse(verdict.problem, arrival, scope, receive, send)
                return
            trace.note_route(verdict.route)
            try:
                await self._serve(self._chosen(verdict, generation), trace, scope, receive, send)
            finally:
                verdict.release()
        finally:
            trace.end()

    async def bridge(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket: admitted like a request, counted on its own, never mirrored."""
        arrival = read_arrival(scope, request_id=self._new_id(), received_at=self._now())
        generation, date = self._current(), self._date(arrival.received_at)
        verdict = await self._door.admit(generation, arrival, bridged=True)
        if isinstance(verdict, Refused):
            self._count_refused(verdict)
            await receive()
            await refuse(verdict.problem, arrival.id, send, date)
            return
        try:
            await self._bridge(_choose(verdict, generation), date, scope, receive, send)
        finally:
            verdict.release()

    async def _bridge(self, admitted: _Pass, date: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        name, opened, outcome = admitted.route.name, list[str](), "cut"
        dispatch = Dispatch(self._fleet, admitted.main, admitted.spare, self._metrics.count_retry)

        def note_open() -> None:
            opened.append(dispatch.backend.name)
            self._metrics.open_websockets(name, dispatch.backend.name, 1)

        try:
            bridge = Bridge(admitted.arrival, admitted.change, dispatch, date=date, added=admitted.added)
            outcome = await bridge.run(scope, receive, send, note_open)
        finally:
            for backend in opened:
                self._metrics.open_websockets(name, backend, -1)
            self._metrics.count_websocket(name, dispatch.backend.name, outcome)

    def _chosen(self, entered: Entered, generation: Generation) -> _Pass:
        """Choose the backend of a request, and whether it is to be mirrored."""
        admitted = _choose(entered, generation)
        arrival, route = entered.arrival, entered.route
        crossed = admitted.main.backend.name == route.candidate
        key = _sample_key(route, arrival)
        skip = skip_reason(
            route.shadow,
            method=arrival.method,
            sampled=not arrival.is_copy  # nobody's own, so it takes nothing of a rate
            and self._sampler.chooses(route.name, route.shadow, key, served_by_candidate=crossed),
            served_by_candidate=crossed,
            content_length=arrival.content_length,
            is_copy=arrival.is_copy,
        )
        return admitted._replace(skip=skip)

    def _count_refused(self, refused: Refused) -> None:
        name = refused.route.name if refused.route is not None else NO_ROUTE
        self._traffic.refuse(name, refused.problem.code)
        self._metrics.count_refused(name, refused.problem.code)

    async def _serve(self, admitted: _Pass, trace: RequestTrace, scope: Scope, receive: Receive, send: Send) -> None:
        arrival, route = admitted.arrival, admitted.route
        if admitted.skip is None and self._blocks(route.name, admitted.main.backend.name):
            admitted = admitted._replace(skip=SkipReason.BREAKER_OPEN)
        budget = self._budget if admitted.skip is None else None
        asked = Tee(budget, route.shadow.max_body_bytes, self._disk)
        answered = Tee(budget, route.shadow.max_body_bytes, self._disk)
        dispatch = Dispatch(self._fleet, admitted.main, admitted.spare, self._metrics.count_retry)
        intake = self._intake(admitted, asked, scope, receive)
        errand = Errand(
            arrival, self._date(arrival.received_at), admitted.added, admitted.change, trace, admitted.release
        )
        at_once = scope.get(ANSWER_KEY, no_answer_yet)
        passage = Passage(errand, self._transport, dispatch, intake, answered, send, self._clock, self._alarms, at_once)
        stopped: SkipReason | None = None
        self._traffic.begin(route.name)
        try:
            problem = await passage.run()
            if problem is not None:
                admitted.release()  # before the client has read why
                self._metrics.count_refused(route.name, problem.code)
                trace.note_answer(problem.status, problem.code)
                problem = problem.of_backend(dispatch.backend.name)
                problem = problem.with_headers((*admitted.added, *cors_fields(route.cors, arrival.headers)))
                await self._refuse(problem, arrival, scope, receive, send, unread=not intake.complete)
        except asyncio.CancelledError:
            stopped = SkipReason.SHUTDOWN
            passage.abandon()
            raise
        except Exception:
            stopped = SkipReason.LOST
            passage.abandon()
            self._metrics.count_error()
            _log.exception("request %s failed", arrival.id)
            if not passage.answering:
                problem = problems.INTERNAL_ERROR.with_headers(cors_fields(route.cors, arrival.headers))
                await self._refuse(problem, arrival, scope, receive, send)
        finally:
            skipped = _skip(admitted, dispatch) or stopped or _loss(intake) or asked.lost or answered.lost
            if skipped is not None:
                asked.discard()
                answered.discard()
            self._hand_over(admitted, passage, asked, trace, skipped)
            if dispatch.fell_back:
                self._metrics.count_fallback(route.name, dispatch.backend.name)
        if passage.aborted:
            raise AnswerAborted(f"the answer to request {arrival.id} was cut short")

    def _intake(self, admitted: _Pass, asked: Tee, scope: Scope, receive: Receive) -> Intake:
        return Intake(
            receive,
            asked,
            admitted.route.max_body_bytes,
            admitted.main.backend.timeout_s,
            admitted.arrival.id,
            self._clock,
            self._pace,
            Replay(self._replay_budget if admitted.spare is not None else None),
            admitted.arrival.announced_bytes,
            scope.get(LEAVING_KEY),
            scope.get(WHOLE_KEY, no_body_yet),
        )

    def _hand_over(
        self, admitted: _Pass, passage: Passage, asked: Tee, trace: RequestTrace, skipped: SkipReason | None
    ) -> None:
        arrival, route = admitted.arrival, admitted.route
        body = asked.finish(arrival.first_value(b"content-type"), arrival.first_value(b"content-encoding"))
        primary = passage.observe()
        if passage.answering:
            trace.note_answer(primary.status, primary.failure.kind.value if primary.failure is not None else None)
        headers = trace.context().applied_to(admitted.change.applied_to(arrival.headers))
        self._metrics.count_served(route.name, primary)
        self._tap(
            Exchange(
                arrival.id,
                route.name,
                arrival.received_at,
                Request(arrival.method, arrival.target, headers, body),
                primary,
                None,
                None,
                skipped,
                arrival.client_request_id,
            )
        )
        # In the same turn of the loop as the tap, so that the account balances at every moment.
        self._traffic.end(route.name)

    async def _refuse(
        self, problem: Problem, arrival: Arrival, scope: Scope, receive: Receive, send: Send, *, unread: bool = True
    ) -> None:
        await send_problem(
            problem,
            scope,
            receive,
            send,
            request_id=arrival.id,
            date=self._date(arrival.received_at),
            close=arrival.wants_upgrade,
            unread_body=unread and arrival.has_body,
        )


def _choose(entered: Entered, generation: Generation) -> _Pass:
    arrival, route = entered.arrival, entered.route
    name = sole(route.active) or choose(route.active, int(_caller(entered, generation).key(route.name), 16))
    other = route.baseline if name == route.candidate else route.candidate
    return _Pass(
        arrival,
        route,
        generation.choices[name],
        generation.choices[other] if route.fallback else None,
        SkipReason.NOT_SAMPLED,
        entered.added,
        generation.forwarding.change(arrival),
        entered.release,
    )


def _caller(entered: Entered, generation: Generation) -> Caller:
    """Return who stays on one side of the toggle."""
    if entered.known is not None:
        return Caller("caller", entered.known.name)
    return generation.callers.identify(entered.arrival)


def _sample_key(route: Route, arrival: Arrival) -> str:
    name = route.shadow.sample_by
    return (arrival.first_value(name.encode()) if name else "") or arrival.id


def _skip(admitted: _Pass, dispatch: Dispatch) -> SkipReason | None:
    """Say what keeps the request from being mirrored, now that it is known who was asked."""
    if dispatch.fell_back and admitted.skip is not SkipReason.NOT_SAMPLED:
        return SkipReason.FELL_BACK
    if not dispatch.attempts:
        return admitted.skip or SkipReason.BREAKER_OPEN
    return admitted.skip


def _loss(intake: Intake) -> SkipReason | None:
    """Say why there is no whole request to mirror. A backend that answered before it came counts like a client that
    left."""
    if intake.complete:
        return None
    return SkipReason.BODY_TOO_LARGE if intake.ending is Ending.TOO_LARGE else SkipReason.CLIENT_GONE
