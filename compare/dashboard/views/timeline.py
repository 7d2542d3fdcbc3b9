"""The way of one answer through time, from what was measured and what the server said of itself (Server-Timing)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from compare.dashboard.views.words import duration
from compare.pairing import header
from compare.phrases import joined, mark, plain, say
from shadow.exchange import Headers, Observation

_MAX_METRICS = 8
_WAITING = ("queue", "wait")
_ROUNDING_S = 0.005
"""Servers round what they say of themselves: steps may be longer than the whole by this much."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a lane. ``x`` and ``width`` are percent of the lane; ``tone`` is a fill of the style sheet."""

    x: float
    width: float
    tone: str


@dataclass(frozen=True, slots=True)
class Lane:
    """One leg. All lanes of a page have the same scale; ``text`` says in words what the stretches show."""

    name: str
    tone: str
    segments: tuple[Segment, ...]
    text: str


def lay_lanes(legs: list[tuple[str, str, Observation]]) -> tuple[Lane, ...]:
    """Return a lane for each (name, tone, observation)."""
    longest = max((o.total_s or 0.0 for _, _, o in legs), default=0.0)
    return tuple(_lane(name, tone, observation, longest) for name, tone, observation in legs)


def _lane(name: str, tone: str, observation: Observation, longest: float) -> Lane:
    total = observation.total_s
    if not total or not longest:
        if observation.failure is None:
            return Lane(name, tone, (), say("no duration"))
        return Lane(name, tone, (), say("no duration: {why}", why=plain(observation.failure.kind.value)))
    steps = list(_steps(observation, total))
    segments, at = [Segment(0.0, 100 * total / longest, f"{tone}-rest")], 0.0
    for step, seconds in steps:
        fill = "noise" if step.startswith(_WAITING) else tone
        segments.append(Segment(100 * at / longest, 100 * seconds / longest, fill))
        at += seconds
    told: list[str] = [duration(total)]
    if observation.failure is not None:
        told.append(plain(observation.failure.kind.value))
    told += [joined(" ", (plain(step), duration(seconds))) for step, seconds in steps]
    return Lane(name, tone, tuple(segments), joined(" · ", told))


def _steps(observation: Observation, total: float) -> Iterator[tuple[str, float]]:
    """Yield the server's own steps as far as they fit into ``total``; without any, the time to the first byte."""
    told = [(name, s) for name, s in server_timing(observation.headers) if s > 0 and name != "total"]
    if not told and observation.first_byte_s:
        told = [(mark("first byte after"), observation.first_byte_s)]
    left = total
    for name, seconds in told:
        if seconds <= left + _ROUNDING_S:
            yield name, min(seconds, left)
            left = max(0.0, left - seconds)


def server_timing(headers: Headers) -> list[tuple[str, float]]:
    """Return the (name, seconds) of a Server-Timing field, at most eight; whatever is no metric is left out."""
    found = []
    for metric in (header(headers, "server-timing") or "")[:2000].split(",")[:_MAX_METRICS]:
        name, *parameters = (part.strip() for part in metric.split(";"))
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            milliseconds = _milliseconds(value.strip().strip('"')) if key.strip().lower() == "dur" else None
            if name and milliseconds is not None:
                found.append((name[:24], milliseconds / 1000))
                break
    return found


def _milliseconds(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
