"""The condition of one server of a backend, and the choice among several. Pure: the caller gives the time.

Three things keep requests from a server, each with a way back of its own:

* *down*: active checks failed ``down_after`` times in a row, until ``up_after`` succeed;
* *ejected*: ``eject_after`` requests in a row failed (no connection, no whole answer, 502, 503, 504), for ``eject_s``
  times the number of ejections without a success between them, at most ten times;
* *broken*: the breaker is open because connections were refused; after ``breaker_reset_s`` one request tries.

The last available server is never ejected, but its breaker may open: a server that refuses connections gains nothing
from more of them. A server that comes back begins with a small share that grows to a full one over ``slow_start_s``.
What cannot happen: a call that is counted as outstanding for ever, because each ``begin`` has exactly one ``end``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from enum import StrEnum

from gateway.settings import ServerRules
from shadow.breaker import Breaker

UNABLE = frozenset({502, 503, 504})
"""Answers that say that a server could not serve."""
MAX_BACKOFF = 10
MIN_SHARE = 0.05


class Outcome(StrEnum):
    """What a call showed about its server. ``ABANDONED`` shows nothing: the client left, or we were the cause."""

    SUCCESS = "success"
    NO_CONNECTION = "no_connection"
    FAILURE = "failure"
    ABANDONED = "abandoned"


class ServerState(StrEnum):
    """Where a server stands, the worst first."""

    BROKEN = "broken"
    DOWN = "down"
    EJECTED = "ejected"
    STARTING = "starting"
    UP = "up"


class Condition:
    """One server. ``started_s`` is when it joined a backend that already served, ``None`` for a full share at once."""

    def __init__(self, rules: ServerRules, started_s: float | None = None) -> None:
        self.rules = rules
        self.outstanding = 0
        self.served = 0
        self.ejections = 0
        self.last_begun_s = float("-inf")
        self._breaker = Breaker(rules.breaker_failures, rules.breaker_reset_s)
        self._failures = 0
        self._ejections_in_a_row = 0
        self._ejected_until_s = float("-inf")
        self._started_s = started_s
        self._down = False
        self._checks = 0  # in a row against what is believed

    @property
    def is_broken(self) -> bool:
        """Whether the breaker is not closed."""
        return self._breaker.opened_s is not None

    def state(self, now_s: float) -> ServerState:
        """Return the state at this time."""
        if self.is_broken:
            return ServerState.BROKEN
        if self._down:
            return ServerState.DOWN
        if now_s < self._ejected_until_s:
            return ServerState.EJECTED
        return ServerState.STARTING if self.share(now_s) < 1 else ServerState.UP

    def is_connectable(self, now_s: float) -> bool:
        """Whether the breaker lets a call through."""
        return not self._breaker.blocks(now_s)

    def is_available(self, now_s: float) -> bool:
        """Whether nothing keeps requests away."""
        return not self._breaker.blocks(now_s) and not self._down and now_s >= self._ejected_until_s

    def share(self, now_s: float) -> float:
        """Return the part of a full share that it gets at this time, above 0 and at most 1."""
        began_s = max(self._ejected_until_s, self._started_s if self._started_s is not None else float("-inf"))
        if not self.rules.slow_start_s or now_s - began_s >= self.rules.slow_start_s:
            return 1.0
        return max(MIN_SHARE, (now_s - began_s) / self.rules.slow_start_s)

    def begin(self, now_s: float) -> int:
        """Start a call; return the breaker's turn, to end it with."""
        self.outstanding += 1
        self.served += 1
        self.last_begun_s = now_s
        return self._breaker.admit(now_s)

    def end(self, outcome: Outcome, now_s: float, turn: int, *, is_last: bool) -> bool:
        """End a call; return whether that ejected the server. ``is_last`` says that no other one is available."""
        self.outstanding -= 1
        if outcome is Outcome.ABANDONED:
            self._breaker.abandon(turn)
            return False
        if outcome is Outcome.NO_CONNECTION:
            self._breaker.fail(turn, now_s)
        else:
            was_broken = self.is_broken
            self._breaker.succeed(turn)
            if was_broken and not self.is_broken:
                self._started_s = now_s
        if outcome is Outcome.SUCCESS:
            self._failures = self._ejections_in_a_row = 0
            return False
        self._failures += 1
        if self._failures < self.rules.eject_after or is_last or now_s < self._ejected_until_s:
            return False
        self._eject(now_s)
        return True

    def note_check(self, success: bool, now_s: float) -> bool:
        """Take the result of an active check; return whether the server went down or came up by it."""
        check = self.rules.check
        if check is None or success is not self._down:
            self._checks = 0
            return False
        self._checks += 1
        if self._checks < (check.up_after if success else check.down_after):
            return False
        self._checks = 0
        self._down = not success
        if success:
            self._started_s = now_s
        return True

    def _eject(self, now_s: float) -> None:
        self._failures = 0
        self.ejections += 1
        self._ejections_in_a_row = min(self._ejections_in_a_row + 1, MAX_BACKOFF)
        self._ejected_until_s = now_s + self.rules.eject_s * self._ejections_in_a_row


def pick(conditions: Sequence[Condition], now_s: float, rng: random.Random) -> int:
    """Return the place of the one to use: of those with the fewest outstanding calls two are drawn, and the one that
    has waited longer for a call is taken. One that is starting takes part in proportion to its share.

    Raises ``IndexError`` for no conditions.
    """
    places = [place for place, one in enumerate(conditions) if _takes_part(one.share(now_s), rng)]
    places = places or list(range(len(conditions)))
    fewest = min((conditions[place].outstanding for place in places), default=0)
    tied = [place for place in places if conditions[place].outstanding == fewest]
    drawn = tied if len(tied) <= 2 else rng.sample(tied, 2)
    if len(drawn) == 2 and conditions[drawn[0]].last_begun_s == conditions[drawn[1]].last_begun_s:
        return rng.choice(drawn)
    return min(drawn, key=lambda place: conditions[place].last_begun_s) if drawn else places[0]


def _takes_part(share: float, rng: random.Random) -> bool:
    return share >= 1 or rng.random() < share
