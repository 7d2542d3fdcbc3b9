"""Where an epoch begins. Pure; one measurement after the other, in the order of the record.

What an answer says of its build (``X-Model``, ``Server``) is a member of a set: the builds of a side. An epoch begins
where a good answer of either side names a build that was *never seen before*. A build that is known begins nothing:
two servers of one backend may run different builds, and a route may choose its model by query, so builds alternate
from request to request. It follows that going back to an earlier build begins no epoch either.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compare.measurement import Leg, Measurement

MANY_BUILDS = 16
"""From so many builds of a side on, a side that names a new one in every tenth answer or more is not believed."""
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Epoch:
    """A stretch with the same set of builds on both sides. ``number`` counts from 1 under one measurement key.

    The builds are those that were named in the epoch, in order of appearance, joined with `` | ``.
    """

    number: int
    baseline_build: str
    candidate_build: str
    first_sequence: int


@dataclass(slots=True)
class Builds:
    """The builds of one side in the order of the record: all that are known, and those of the present epoch."""

    known: dict[str, None] = field(default_factory=dict)
    present: list[str] = field(default_factory=list)
    named: int = 0
    novel: int = 0

    def begins(self, leg: Leg | None) -> bool:
        """Take up what a leg says; whether it names a build never seen before, after others.

        A side that puts something of its own into every answer (a request id, say) would begin an epoch with each, and
        no evidence could ever gather. Such names stop counting.
        """
        if leg is None or leg.build is None:
            return False
        self.named += 1
        if leg.build in self.known:
            return False
        self.novel += 1
        believed, first = not self.restless, not self.known
        if believed:
            self.known[leg.build] = None
        return believed and not first

    @property
    def restless(self) -> bool:
        """Whether the names change too often to tell epochs apart."""
        return len(self.known) >= MANY_BUILDS and 10 * self.novel >= self.named

    def note(self, leg: Leg | None) -> None:
        """Count a leg's build among those of the present epoch."""
        if leg is None or leg.build is None or leg.build in self.present or len(self.present) > _SHOWN:
            return
        self.present.append(leg.build)

    def words(self) -> str:
        """Return the builds of the present epoch for a person."""
        shown = " | ".join(self.present[:_SHOWN])
        if self.restless:
            return f"{shown} | … (too many names to tell epochs apart)"
        return f"{shown} | …" if len(self.present) > _SHOWN else shown


@dataclass(slots=True)
class Epochs:
    """The epochs of one route under one measurement key, up to the present one."""

    number: int = 0
    first_sequence: int = 0
    baseline: Builds = field(default_factory=Builds)
    candidate: Builds = field(default_factory=Builds)

    def take(self, m: Measurement) -> bool:
        """Take up the next measurement; whether an epoch begins with it."""
        begins = [self.baseline.begins(m.baseline), self.candidate.begins(m.candidate)]
        fresh = any(begins) or self.number == 0
        if fresh:
            self.number += 1
            self.first_sequence = m.sequence
            self.baseline.present, self.candidate.present = [], []
        self.baseline.note(m.baseline)
        self.candidate.note(m.candidate)
        return fresh

    @property
    def present(self) -> Epoch:
        """The present epoch; the first one before anything was taken up."""
        return Epoch(max(1, self.number), self.baseline.words(), self.candidate.words(), self.first_sequence)
