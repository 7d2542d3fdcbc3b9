"""The list of a route's pairs, failures first, with filters that live in the address."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from compare.dashboard.views.pair import badge_of
from compare.dashboard.views.words import Badge, moment
from compare.facets import Wanted
from compare.measurement import Measurement, OutputClass
from compare.phrases import Phrase, plain, say
from compare.results import BOTH_REFUSED, FAILED, NOT_COMPARED

PAGE_SIZE = 24
MISMATCH = (OutputClass.BROKEN.value, OutputClass.DIFFERENT.value)
SHOWS = {
    "all": say("all"),
    "mismatch": say("mismatches"),
    "broken": say("broken"),
    "different": say("different"),
    FAILED: say("no answer"),
    NOT_COMPARED: say("not compared"),
    BOTH_REFUSED: say("refused by both"),
    "equivalent": say("equivalent"),
    "identical": say("identical"),
}
"""The filters by class: what stands in the address, and what the page calls it."""


def _time(text: str) -> datetime | None:
    """Return a time of an address (``2026-05-04T12:00``, in UTC), ``None`` for anything else."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def _seconds(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) and found >= 0 else None


@dataclass(frozen=True, slots=True)
class PairFilter:
    """What of the pairs is shown."""

    show: str = "all"
    diagnosis: str = ""
    since: str = ""
    until: str = ""
    slower: str = ""
    model: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> PairFilter:
        """Return the filter of an address; what means nothing (an unknown class, no time, no number) is left out."""
        show = query.get("show", "all")
        since, until = (text if _time(text) else "" for text in (query.get("since", ""), query.get("until", "")))
        slower = query.get("slower", "")[:12]
        return cls(
            show if show in SHOWS else "all", query.get("diagnosis", "")[:60], since, until,
            slower if _seconds(slower) is not None else "", query.get("model", "")[:60],
        )  # fmt: skip

    @property
    def sifts(self) -> bool:
        """Whether more than the class is asked for, so that no count knows how many there are."""
        return any((self.diagnosis, self.since, self.until, self.slower, self.model))

    def wanted(self) -> Wanted:
        """Return what the store is asked for."""
        classes = {"all": (), "mismatch": MISMATCH}.get(self.show, (self.show,))
        since, until = _time(self.since), _time(self.until)
        return Wanted(classes, self.diagnosis, since, until, _seconds(self.slower), self.model)

    def query(self, **more: int) -> str:
        """Return the query string of this filter with further fields, empty for the plain list."""
        show = "" if self.show == "all" else self.show
        fields = {
            "show": show, "diagnosis": self.diagnosis, "since": self.since, "until": self.until, "slower": self.slower,
            "model": self.model, **more,
        }  # fmt: skip
        text = urlencode({name: value for name, value in fields.items() if value != ""})
        return f"?{text}" if text else ""


@dataclass(frozen=True, slots=True)
class PairCard:
    """A pair in the list: ``text`` and ``more`` say what is the matter with it. ``thumbs`` are the (role, name) of
    pictures that can be shown; ``query`` is its place."""

    exchange_id: str
    badge: Badge
    text: str
    more: str
    moment: str
    query: str
    thumbs: tuple[tuple[str, str], ...]
    note: str


@dataclass(frozen=True, slots=True)
class PairList:
    """One page of the list; ``counts`` is how many pairs each filter has."""

    chosen: PairFilter
    cards: tuple[PairCard, ...]
    total: int
    page: int
    counts: Mapping[str, int]

    @property
    def pages(self) -> int:
        return max(1, -(-self.total // PAGE_SIZE))

    def tabs(self) -> tuple[tuple[str, int, str, bool], ...]:
        """Return (name, count, query, current) of each filter that has pairs."""
        return tuple(
            (name, self.counts[show], PairFilter(show).query(), show == self.chosen.show and not self.chosen.sifts)
            for show, name in SHOWS.items()
            if self.counts[show] or show == self.chosen.show
        )


def count_shows(classes: Mapping[str, int]) -> Mapping[str, int]:
    """Return how many pairs each filter has, from how many each class has."""
    sums = {"all": sum(classes.values()), "mismatch": sum(classes.get(name, 0) for name in MISMATCH)}
    return {show: sums.get(show, classes.get(show, 0)) for show in SHOWS}


def build_card(measurement: Measurement, query: str, thumbs: tuple[tuple[str, str], ...], note: str) -> PairCard:
    """Return the card of a pair: its class, what is the matter with it, when it was."""
    badge = badge_of(measurement)
    matter, at = _matter(measurement, badge), moment(measurement.received_at)
    text, _, more = (matter, "", "") if isinstance(matter, Phrase) else matter.partition(": ")
    return PairCard(measurement.exchange_id, badge, text, more, at, query, thumbs, note)


def _matter(measurement: Measurement, badge: Badge) -> str:
    if measurement.judgement.diagnoses:
        return measurement.judgement.diagnoses[0].sentence
    for leg in (measurement.candidate, measurement.baseline):
        if leg is not None and leg.failure:
            return say("{backend}: {failure}", backend=leg.backend, failure=plain(leg.failure))
    if measurement.not_comparable is not None:
        return plain(measurement.not_comparable.value)
    same = {"identical": say("nothing differs"), "equivalent": say("the same within tolerance")}
    return measurement.judgement.note or same.get(badge.word, badge.word)
