"""Where one request goes, and where next when that came to nothing.

Another attempt is made only where nothing can have been executed: when no connection came to be, at another server of
the same backend; and where the route has a fallback, at the other backend, also when the first one has no server
available or answers 503 with Retry-After, which says that it did not take the request. Each attempt after the first
needs the body to be still there (``replayable``).

States: *idle* → *under way* (one call is open) → *over*. ``end`` closes the call in every state.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.condition import Outcome
from gateway.fleet import Call, Fleet
from gateway.generation import Choice, Server

MAX_SERVERS_TRIED = 3
"""Of one backend, so that a client waits for a bounded number of connect timeouts."""


class Dispatch:
    """The attempts of one request: at ``main``, and at ``spare`` where the route has a fallback. ``count_retry`` is
    told the backend each time that another of its servers is tried.

    ``backend`` and ``server`` are those that are asked now, or were asked last, the server ``None`` before any was;
    ``waits`` is how long each step of that backend may take."""

    server: Server | None = None
    attempts = 0
    fell_back = False
    _call: Call | None = None

    def __init__(self, fleet: Fleet, main: Choice, spare: Choice | None, count_retry: Callable[[str], None]) -> None:
        self._fleet = fleet
        self._choice = main
        self.backend = main.backend
        self.waits = main.waits
        self._spare = spare
        self._count_retry = count_retry
        self._tried: set[str] = set()

    @property
    def can_fall_back(self) -> bool:
        """Whether the other backend may still be asked."""
        return self._spare is not None

    def begin(self) -> bool:
        """Open the first call; false when no server of any backend may be asked."""
        return self._open() or self._fall_back() or self._open(last_resort=True)

    def retry(self, *, replayable: bool) -> bool:
        """After a connection that did not come to be: go to another server, else to the other backend. False when
        there is no other."""
        self.end(Outcome.NO_CONNECTION)
        if not replayable:
            return False
        if len(self._tried) < MAX_SERVERS_TRIED and self._open():
            self._count_retry(self.backend.name)
            return True
        return self._fall_back()

    def yield_to_spare(self, *, replayable: bool) -> bool:
        """After an answer that says the request was not taken: go to the other backend. False when that cannot be."""
        if not replayable or not self.can_fall_back:
            return False
        last = self._call
        if not self._fall_back():
            return False
        if last is not None:
            last.end(Outcome.FAILURE)
        return True

    def end(self, outcome: Outcome) -> None:
        """Close the call that is open, if one is."""
        if self._call is not None:
            self._call.end(outcome)

    def _open(self, *, last_resort: bool = False) -> bool:
        choice = self._choice
        call = self._fleet.begin(choice.backend, choice.servers, tried=self._tried, last_resort=last_resort)
        if call is None:
            return False
        self._call, self.server = call, call.server
        self.backend, self.waits = choice.backend, choice.waits
        self._tried.add(call.server.name)
        self.attempts += 1
        return True

    def _fall_back(self) -> bool:
        if self._spare is None:
            return False
        main, tried = self._choice, self._tried
        self._choice, self._spare, self._tried = self._spare, None, set()
        if self._open():
            self.fell_back = True
            return True
        self._choice, self._tried = main, tried
        return False
