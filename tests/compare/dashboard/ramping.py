"""Ramps with a toggle that is no file, a number for each route, and a journal that is a list."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from compare.plan import Plan
from compare.rampbook import Move, RampBook
from compare.ramps import Ramps
from compare.results import Results
from compare.states import States
from shadow.store.reader import Reader
from tests.compare.dashboard.filling import LATER, POLICIES


class PaperToggle:
    """Keeps the candidate's percents (``compare.ramps.ToggleWriter``); ``broken`` is what writing raises."""

    def __init__(self) -> None:
        self.shares: dict[str, int] = {}
        self.broken = ""

    def percent(self, route: str) -> int:
        return self.shares.get(route, 0)

    def move(self, route: str, percent: int, *, who: str, now: datetime) -> None:
        assert who
        assert now.tzinfo is not None
        if self.broken:
            raise OSError(self.broken)
        self.shares[route] = percent


class PaperJournal:
    """Keeps the moves that are noted (``compare.ramps.Journal``)."""

    def __init__(self) -> None:
        self.moves: list[Move] = []

    def note(self, move: Move) -> None:
        self.moves.append(move)


def paper_ramps(reader: Reader, toggle: PaperToggle, plans: Mapping[str, Plan]) -> Ramps:
    """Return the ramps of all routes of the filled store."""
    policies = {policy.route: policy for policy in POLICIES}
    results = Results(reader.engine)
    return Ramps(
        RampBook(reader.engine), results, toggle, lambda: (policies, plans), lambda: LATER,
        States(reader.engine, results), PaperJournal(),
    )  # fmt: skip
