"""When things happened, in bounded memory: stretches of the record for coverage, blocks of time for bursts.

Both are as fine as can be while there is little (a stretch for each measurement, a block for each minute) and halve
their resolution when they are full. What results depends on the measurements and their order alone, not on when one
looked or how often the job was started.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from compare.measurement import Measurement

MOST_STRETCHES = 2048
MOST_BLOCKS = 4096
BLOCK_S = 60.0


@dataclass(slots=True)
class Stretch:
    """Measurements that follow each other. ``first_at_s`` is of the first of them; the other times are extremes."""

    first_sequence: int
    first_at_s: float
    earliest_s: float
    latest_s: float
    rows: int
    compared: int
    answered: int
    lost: dict[str, int] = field(default_factory=dict)

    def merge(self, later: Stretch) -> None:
        """Take up the stretch that follows."""
        self.earliest_s, self.latest_s = min(self.earliest_s, later.earliest_s), max(self.latest_s, later.latest_s)
        self.rows, self.compared = self.rows + later.rows, self.compared + later.compared
        self.answered += later.answered
        self.lost = dict(Counter(self.lost) + Counter(later.lost))


def stretch_of(m: Measurement) -> Stretch:
    """Return the stretch of one measurement."""
    at = m.received_at.timestamp()
    lost = {} if m.not_comparable is None else {m.not_comparable.value: 1}
    return Stretch(m.sequence, at, at, at, 1, int(not lost), int(m.both_answered), lost)


@dataclass(slots=True)
class Stretches:
    """An epoch in at most ``MOST_STRETCHES`` stretches of ``size`` measurements each (the last may have fewer)."""

    size: int = 1
    parts: list[Stretch] = field(default_factory=list)

    def add(self, m: Measurement) -> None:
        """Take up the next measurement."""
        new = stretch_of(m)
        if self.parts and self.parts[-1].rows < self.size:
            self.parts[-1].merge(new)
            return
        if len(self.parts) == MOST_STRETCHES:
            for first, second in zip(self.parts[::2], self.parts[1::2], strict=True):
                first.merge(second)
            self.parts, self.size = self.parts[::2], self.size * 2
        self.parts.append(new)


@dataclass(slots=True)
class Blocks:
    """Counts by block of time: per block of ``length_s`` a row of counts by name."""

    length_s: float = BLOCK_S
    rows: dict[int, dict[str, int]] = field(default_factory=dict)

    def add(self, at_s: float, counts: dict[str, int]) -> None:
        """Add counts at a moment, in any order of moments."""
        place = int(at_s // self.length_s)
        row = self.rows.setdefault(place, {})
        for name, n in counts.items():
            row[name] = row.get(name, 0) + n
        if len(self.rows) > MOST_BLOCKS:
            self._halve()

    def _halve(self) -> None:
        self.length_s *= 2
        merged: dict[int, dict[str, int]] = {}
        for place, row in self.rows.items():
            merged[place // 2] = dict(Counter(merged.get(place // 2, {})) + Counter(row))
        self.rows = merged

    def shares(self, events: str, of: str) -> list[float]:
        """Return the share of ``events`` among ``of`` in each block that has any, in order of time."""
        rows = [self.rows[place] for place in sorted(self.rows)]
        return [row.get(events, 0) / row[of] for row in rows if row.get(of, 0)]
