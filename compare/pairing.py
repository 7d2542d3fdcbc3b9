"""Turn an exchange into a pair, always candidate against baseline, whoever answered the client.

Pairs are joined by the gateway's own exchange id; what the client called its request plays no part.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from compare.measurement import Leg, NotComparable, status_failure
from compare.policy import Policy
from shadow.exchange import Exchange, FailureKind, Headers, Observation

LEG_STATUSES = frozenset({401, 402, 403, 407, 408, 425, 429})
"""Statuses below 500 that speak of the leg (its credentials, its quota, its load) and not of the request: a throttling
cloud or a key that ran out says nothing about the other side's output (RFC 9110 section 15.5, RFC 6585, RFC 8470)."""

OUT_OF_MEMORY = "out_of_memory"
_LARGEST_PROBLEM_BYTES = 64 * 1024
_MOST_TIMINGS = 32
_DURATION = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?")


@dataclass(frozen=True, slots=True)
class Pair:
    """The two observations of one exchange, oriented; ``control`` is a second call to the baseline."""

    baseline: Observation
    candidate: Observation
    control: Observation | None


def pair_up(exchange: Exchange, policy: Policy) -> Pair | NotComparable:
    """Return the oriented pair, or why there is none.

    A leg that failed is still a leg. A client that left while its answer was under way says nothing about the backend.
    """
    if exchange.shadow is None:
        return NotComparable.NO_SHADOW_ANSWER
    sides = {exchange.primary.backend: exchange.primary, exchange.shadow.backend: exchange.shadow}
    if set(sides) != {policy.baseline, policy.candidate}:
        return NotComparable.NOT_THIS_PAIR
    if any(o.failure is not None and o.failure.kind is FailureKind.CANCELLED for o in sides.values()):
        return NotComparable.CLIENT_LEFT
    control = exchange.control
    if control is not None and control.backend != policy.baseline:
        control = None
    return Pair(sides[policy.baseline], sides[policy.candidate], control)


def header(headers: Headers, name: str) -> str | None:
    """Return the first value of a field, decoded as Latin-1, or ``None``."""
    wanted = name.lower().encode()
    return next((value.decode("latin-1") for key, value in headers if key.lower() == wanted), None)


def describe_leg(observation: Observation) -> Leg:
    """Return what the statistics need of one leg. Only a good answer speaks for the build: an error page may come from
    anything that stands in front of it."""
    failure = None
    if observation.failure is not None:
        failure = observation.failure.kind.value
    elif observation.status is None:
        failure = "no_status"
    elif observation.status >= 500 or observation.status in LEG_STATUSES:
        failure = status_failure(observation.status)
    if failure is not None and observation.failed and _problem_code(observation) == OUT_OF_MEMORY:
        failure = OUT_OF_MEMORY
    latency_s = observation.total_s if failure is None else None
    if failure is None and latency_s is None:
        failure = "no_duration"
    timing = server_timing(observation.headers) if failure is None else {}
    return Leg(
        observation.backend,
        observation.status,
        latency_s,
        failure,
        _build(observation),
        observation.first_byte_s if failure is None else None,
        timing.get("queue"),
        timing.get("inference"),
    )


def _problem_code(observation: Observation) -> str | None:
    """Return the ``code`` of an error that is told as a problem (RFC 9457), ``None`` of any other."""
    body = observation.body
    if body is None or body.chunks is None or body.size_bytes > _LARGEST_PROBLEM_BYTES:
        return None
    if body.media_type.split(";")[0].strip().lower() not in ("application/problem+json", "application/json"):
        return None
    try:
        told = json.loads(b"".join(body))
    except (ValueError, RecursionError):
        return None
    code = told.get("code") if isinstance(told, dict) else None
    return code if isinstance(code, str) else None


def server_timing(headers: Headers) -> dict[str, float]:
    """Return the durations, in seconds, of all ``Server-Timing`` fields by name; what cannot be read is left out."""
    found: dict[str, float] = {}
    fields = (value.decode("latin-1") for key, value in headers if key.lower() == b"server-timing")
    for metric in ",".join(fields).split(",")[:_MOST_TIMINGS]:
        name, *parameters = (part.strip() for part in metric.split(";"))
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip().lower() == "dur" and _DURATION.fullmatch(value.strip(' "')):
                found.setdefault(name.lower(), float(value.strip(' "')) / 1000)
    return found


def _build(observation: Observation) -> str | None:
    if observation.failed or observation.status is None or not 200 <= observation.status < 300:
        return None
    parts = [header(observation.headers, "x-model"), header(observation.headers, "server")]
    known = [part[:200] for part in parts if part]
    return " · ".join(known) if known else None
