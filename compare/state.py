"""All that a verdict needs of one route's measurements, folded: it goes to JSON and back without loss.

A state belongs to a route, a measurement key and whatever a count depends on (``state_key``). It knows the sequence up
to which it has folded, so it is always clear what is new. Its size is bounded, and so is the cost of a new measurement:
it does not depend on how many came before.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from compare.epochs import Builds, Epochs
from compare.measurement import Measurement
from compare.phrases import as_fields, from_stored
from compare.policy import Policy, digest, measurement_key, policy_hash
from compare.stats import Histogram, RunningMean
from compare.tally import Seen, Sides, Tally
from compare.timeline import Blocks, Stretch, Stretches

FORMAT = 1


def state_key(policy: Policy) -> str:
    """Return 12 hex digits that change with anything that a count of the state depends on."""
    parts = (FORMAT, measurement_key(policy), policy_hash(policy), policy.deadline_s)
    return digest({"state": parts})


@dataclass(slots=True)
class RouteState:
    """The whole record's accounts, where the present epoch began, and that epoch's ``tally``."""

    sequence: int = 0
    recorded: int = 0
    both_refused: int = 0
    not_comparable: Counter[str] = field(default_factory=Counter)
    epochs: Epochs = field(default_factory=Epochs)
    tally: Tally = field(default_factory=Tally)

    def add(self, m: Measurement, policy: Policy) -> None:
        """Take up the next measurement, in the order of the record."""
        self.sequence = m.sequence
        self.recorded += 1
        self.both_refused += m.both_refused
        if m.not_comparable is not None:
            self.not_comparable[m.not_comparable.value] += 1
        if self.epochs.take(m):
            self.tally = Tally()
        self.tally.add(m, policy)

    def to_bytes(self) -> bytes:
        """Return the state as compressed JSON."""
        return zlib.compress(json.dumps(_plain(self), separators=(",", ":")).encode(), 1)


def fold(measurements: Iterable[Measurement], policy: Policy, state: RouteState | None = None) -> RouteState:
    """Return the state after these measurements, in their order; ``state`` itself is taken further."""
    reached = RouteState() if state is None else state
    for m in measurements:
        reached.add(m, policy)
    return reached


def _plain(value: object) -> Any:
    if isinstance(value, Histogram):
        return value.counts
    if isinstance(value, Sides):
        return [value.baseline.counts, value.candidate.counts]
    if isinstance(value, Seen | RunningMean | Stretch):
        return list(asdict(value, dict_factory=as_fields).values())
    if hasattr(value, "__dataclass_fields__"):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def state_from_bytes(data: bytes) -> RouteState:
    """Return the state that ``to_bytes`` wrote. Raises ``ValueError``, ``KeyError``, ``TypeError`` or ``zlib.error`` on
    anything else."""
    raw: dict[str, Any] = json.loads(zlib.decompress(data))
    epochs, tally = raw["epochs"], raw["tally"]
    return RouteState(
        sequence=raw["sequence"],
        recorded=raw["recorded"],
        both_refused=raw["both_refused"],
        not_comparable=Counter(raw["not_comparable"]),
        epochs=Epochs(
            epochs["number"], epochs["first_sequence"], Builds(**epochs["baseline"]), Builds(**epochs["candidate"])
        ),
        tally=_tally(tally),
    )


def _tally(raw: dict[str, Any]) -> Tally:
    made: dict[str, Any] = dict(raw)
    for name in ("classes", "refused", "unmatched"):
        made[name] = Counter(raw[name])
    for name in ("timed", "first_bytes", "queues", "inferences"):
        made[name] = _sides(raw[name])
    for name in ("hours", "sizes", "paces"):
        made[name] = {key: _sides(item) for key, item in raw[name].items()}
    for name in ("diagnoses", "failures", "paths"):
        made[name] = {key: _seen(*item) for key, item in raw[name].items()}
    made["ratios"], made["mean"] = _histogram(raw["ratios"]), RunningMean(*raw["mean"])
    made["blocks"] = Blocks(raw["blocks"]["length_s"], {int(k): row for k, row in raw["blocks"]["rows"].items()})
    parts = [Stretch(*item) for item in raw["stretches"]["parts"]]
    made["stretches"] = Stretches(raw["stretches"]["size"], parts)
    return Tally(**made)


def _seen(pairs: int, noise: int, example: Any, exchange_id: str) -> Seen:
    return Seen(pairs, noise, from_stored(example), exchange_id)


def _histogram(raw: dict[str, int]) -> Histogram:
    return Histogram({int(code): n for code, n in raw.items()})


def _sides(raw: list[dict[str, int]]) -> Sides:
    return Sides(_histogram(raw[0]), _histogram(raw[1]))
