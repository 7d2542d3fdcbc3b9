"""The servers of all backends as they are now: who gets the next request, and what the last one showed.

Owned by the gateway's lifespan and touched on its event loop only. It outlives the generations: a server that stays in
the settings with the same rules keeps its condition. Several workers each have a fleet of their own.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from gateway.condition import Condition, Outcome, ServerState, pick
from gateway.generation import Server
from gateway.settings import Backend

_log = logging.getLogger(__name__)

_FAILED = frozenset({Outcome.NO_CONNECTION, Outcome.FAILURE})


@dataclass(frozen=True, slots=True)
class ServerView:
    """One server as the pages show it."""

    backend: str
    server: str
    state: ServerState
    outstanding: int
    served: int
    ejections: int


class Call:
    """A request that is under way at a server. ``end`` it in any case; only the first end counts."""

    __slots__ = ("_backend", "_condition", "_ended", "_fleet", "_turn", "server")

    def __init__(self, fleet: Fleet, backend: Backend, server: Server, condition: Condition, turn: int) -> None:
        self.server = server
        self._fleet = fleet
        self._backend = backend
        self._condition = condition
        self._turn = turn
        self._ended = False

    def end(self, outcome: Outcome) -> None:
        """Say what came of it."""
        if not self._ended:
            self._ended = True
            self._fleet.end(self._backend, self.server, self._condition, self._turn, outcome)


class Fleet:
    """Chooses servers. ``clock`` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float], rng: random.Random) -> None:
        self._clock = clock
        self._rng = rng
        self._conditions: dict[tuple[str, str], Condition] = {}
        self._known: frozenset[str] = frozenset()

    def configure(self, backends: Mapping[str, Backend]) -> None:
        """Take up the settings: new servers of a backend that already served begin slowly, missing ones are
        forgotten."""
        kept: dict[tuple[str, str], Condition] = {}
        for backend in backends.values():
            joined_s = self._clock() if backend.name in self._known else None
            for server in backend.servers:
                found = self._conditions.get((backend.name, server))
                if found is None:
                    found = Condition(backend.rules, joined_s)
                elif found.rules != backend.rules:
                    found = Condition(backend.rules)
                kept[backend.name, server] = found
        self._conditions, self._known = kept, frozenset(backends)

    def begin(
        self, backend: Backend, servers: Sequence[Server], *, tried: Collection[str] = (), last_resort: bool = False
    ) -> Call | None:
        """Start a call at the best server that is available and not among ``tried``; ``None`` where there is none.

        As a ``last_resort`` also one that is down or ejected: better an attempt than a certain refusal. Never one whose
        breaker is open.
        """
        now_s = self._clock()
        usable: list[tuple[Server, Condition]] = []
        for server in servers:
            if server.name in tried:
                continue
            condition = self._condition(backend, server.name)
            if condition.is_available(now_s) or (last_resort and condition.is_connectable(now_s)):
                usable.append((server, condition))
        if not usable:
            return None
        place = pick([condition for _, condition in usable], now_s, self._rng) if len(usable) > 1 else 0
        server, condition = usable[place]
        return Call(self, backend, server, condition, condition.begin(now_s))

    def is_available(self, backend: str, server: str) -> bool:
        """Whether nothing keeps requests away from this server."""
        condition = self._conditions.get((backend, server))
        return condition is None or condition.is_available(self._clock())

    def note_check(self, backend: str, server: str, success: bool) -> None:
        """Take the result of an active check."""
        condition = self._conditions.get((backend, server))
        if condition is not None and condition.note_check(success, self._clock()):
            _log.warning("server %s of %s is %s by its checks", server, backend, "up" if success else "down")

    def views(self) -> list[ServerView]:
        """Return every server as it is now."""
        now_s = self._clock()
        return [
            ServerView(backend, server, one.state(now_s), one.outstanding, one.served, one.ejections)
            for (backend, server), one in self._conditions.items()
        ]

    def end(self, backend: Backend, server: Server, condition: Condition, turn: int, outcome: Outcome) -> None:
        """Take note of what came of a call; the ``Call`` does this."""
        now_s, was_broken = self._clock(), condition.is_broken
        is_last = outcome in _FAILED and not self._has_other(backend, server, now_s)
        if condition.end(outcome, now_s, turn, is_last=is_last):
            _log.warning("server %s of %s is ejected: its requests failed", server.name, backend.name)
        if was_broken is not condition.is_broken:
            _log.warning(
                "server %s of %s %s", server.name, backend.name,
                "refuses connections" if condition.is_broken else "takes connections again",
            )  # fmt: skip

    def _has_other(self, backend: Backend, server: Server, now_s: float) -> bool:
        others = (self._conditions.get((backend.name, name)) for name in backend.servers if name != server.name)
        return any(other is not None and other.is_available(now_s) for other in others)

    def _condition(self, backend: Backend, server: str) -> Condition:
        """Return the server's condition. One that the settings do not know is as good as new: what is asked of it was
        let in before they changed."""
        return self._conditions.get((backend.name, server)) or Condition(backend.rules)
