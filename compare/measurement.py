"""What one exchange taught: a pure, frozen result that goes to JSON and back without loss.

A *judgement* is a kernel's answer about two outputs; a *measurement* adds latencies, failures and the control call.
A leg *answered* with a whole 2xx, *refused* with a whole 3xx or 4xx, or *failed*. Where both refused there is no output
and no wait for one: such a pair is counted as ``both_refused`` and is no evidence for anybody. A failed leg has no
output either; it lives in the latencies and the error gate.

Sentences of diagnoses and notes name paths, kinds and counts, never values from bodies: they outlive the bodies.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from compare.phrases import as_fields, from_stored

Number = float | int | str | bool | None
PATH = "path "
"""How the number of differences at a JSON path is named among a judgement's numbers: this and the path."""
UNMATCHED = "rules that matched nothing"
"""Under this name a judgement's numbers list the JSON rules whose path was in neither document."""


class OutputClass(StrEnum):
    """How two outputs relate; the last two are mismatches."""

    IDENTICAL = "identical"
    EQUIVALENT = "equivalent"
    DIFFERENT = "different"
    BROKEN = "broken"

    @property
    def mismatch(self) -> bool:
        """Whether this counts against the candidate."""
        return self in (OutputClass.DIFFERENT, OutputClass.BROKEN)


class Critical(StrEnum):
    """Outputs that no tolerance excuses (gate G7)."""

    MISSED_FACE = "missed_face"
    WRONG_SIZE = "wrong_size"
    UNDECODABLE = "undecodable"
    BROKEN_SCHEMA = "broken_schema"


class NotComparable(StrEnum):
    """Why a recorded exchange has no output class. Failures are not in this list: they are evidence."""

    NO_SHADOW_ANSWER = "no_shadow_answer"
    NOT_THIS_PAIR = "not_this_pair"
    CLIENT_LEFT = "client_left"
    BODIES_NOT_KEPT = "bodies_not_kept"
    NOT_APPLICABLE = "not_applicable"
    KERNEL_FAULT = "kernel_fault"
    TOOK_TOO_LONG = "took_too_long"
    TOOK_TOO_MUCH_MEMORY = "took_too_much_memory"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A stable ``code`` to count by and a ``sentence`` for a person."""

    code: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """A kernel's answer. ``output_class`` is ``None`` when the outputs cannot be judged; ``note`` then says why."""

    output_class: OutputClass | None
    numbers: Mapping[str, Number] = field(default_factory=dict)
    diagnoses: tuple[Diagnosis, ...] = ()
    critical: Critical | None = None
    note: str = ""

    @property
    def paths(self) -> Mapping[str, int]:
        """The number of differences by JSON path, of the paths with the most; empty for what is no JSON."""
        found = ((name.removeprefix(PATH), n) for name, n in self.numbers.items() if name.startswith(PATH))
        return {path: n for path, n in found if isinstance(n, int)}


@dataclass(frozen=True, slots=True)
class Leg:
    """One side of a pair. ``latency_s`` is ``None`` when the leg failed, and ``failure`` then names how.

    ``build`` is what the answer said of itself (``X-Model``, ``Server``), ``None`` when it said nothing. A status that
    speaks of the leg and not of the request (429, say) is a ``failure`` of the form ``status 429``. ``first_byte_s`` is
    the time to the first byte; ``queue_s`` and ``inference_s`` are what the backend says of itself (``Server-Timing``).
    """

    backend: str
    status: int | None = None
    latency_s: float | None = None
    failure: str | None = None
    build: str | None = None
    first_byte_s: float | None = None
    queue_s: float | None = None
    inference_s: float | None = None

    @property
    def wait_s(self) -> float:
        """The latency, infinite for a failure."""
        return float("inf") if self.failure is not None or self.latency_s is None else self.latency_s

    @property
    def answered(self) -> bool:
        """Whether the leg gave a whole answer of status 2xx, the only kind that has an output."""
        return self.failure is None and self.status is not None and 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        """Whether the leg gave a whole answer of status 3xx or 4xx: a decision that has no output."""
        whole = self.failure is None or self.failure == status_failure(self.status)
        return whole and self.status is not None and 300 <= self.status < 500


def status_failure(status: int | None) -> str:
    """Return the name of a failure that consists in a status."""
    return f"status {status}"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One exchange, judged. ``baseline`` and ``candidate`` are ``None`` when the exchange is no pair of this route.

    ``control_class`` is baseline against itself; ``control_asked`` whether a control call was recorded at all;
    ``control_paths`` the differences of a JSON control call by path; ``request_bytes`` the size of the request's body.
    """

    exchange_id: str
    sequence: int
    route: str
    received_at: datetime
    judgement: Judgement
    baseline: Leg | None = None
    candidate: Leg | None = None
    not_comparable: NotComparable | None = None
    control_class: OutputClass | None = None
    control_asked: bool = False
    control_diagnoses: tuple[Diagnosis, ...] = ()
    request_orientation: int | None = None
    same_bytes: bool = False
    served_by: str = ""
    control_paths: Mapping[str, int] = field(default_factory=dict)
    request_bytes: int = 0

    @property
    def paired(self) -> bool:
        """Whether both legs took place, whatever became of them."""
        return self.baseline is not None and self.candidate is not None

    @property
    def both_refused(self) -> bool:
        """Whether both sides refused, alike or not: the pair says nothing about outputs and nothing about speed."""
        return all(side is not None and side.refused for side in (self.baseline, self.candidate))

    @property
    def both_answered(self) -> bool:
        """Whether both sides answered with a 2xx: only such pairs count towards the least number of pairs."""
        return all(side is not None and side.answered for side in (self.baseline, self.candidate))

    @property
    def timed(self) -> bool:
        """Whether the pair is latency evidence: both legs answered or failed. A refusal waits for no output."""
        sides = (self.baseline, self.candidate)
        ended = (side is not None and (side.failure is not None or not side.refused) for side in sides)
        return all(ended) and not self.both_refused

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self, dict_factory=as_fields), default=_encode, separators=(",", ":"))


def _encode(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no place in a measurement")


def _diagnoses(items: list[dict[str, Any]]) -> tuple[Diagnosis, ...]:
    return tuple(Diagnosis(item["code"], from_stored(item["sentence"])) for item in items)


def measurement_from_json(text: str) -> Measurement:
    """Return the measurement that ``to_json`` wrote. Raises ``ValueError``, ``KeyError`` or ``TypeError`` on anything
    else."""
    raw: dict[str, Any] = json.loads(text)
    judgement = raw["judgement"]
    raw["judgement"] = Judgement(
        output_class=None if judgement["output_class"] is None else OutputClass(judgement["output_class"]),
        numbers=judgement["numbers"],
        diagnoses=_diagnoses(judgement["diagnoses"]),
        critical=None if judgement["critical"] is None else Critical(judgement["critical"]),
        note=from_stored(judgement["note"]),
    )
    raw["received_at"] = datetime.fromisoformat(raw["received_at"])
    raw["not_comparable"] = None if raw["not_comparable"] is None else NotComparable(raw["not_comparable"])
    raw["control_class"] = None if raw["control_class"] is None else OutputClass(raw["control_class"])
    raw["control_diagnoses"] = _diagnoses(raw["control_diagnoses"])
    for side in ("baseline", "candidate"):
        raw[side] = None if raw[side] is None else Leg(**raw[side])
    return Measurement(**raw)
