"""Count what went wrong, so that one sentence can stand for many pairs."""

from __future__ import annotations

from dataclasses import dataclass

from compare.phrases import Phrase, say
from compare.tally import Tally

TELLING = (
    "orientation_ignored", "red_blue_swapped", "missed_face", "rotated", "mirrored", "shifted", "inverted",
    "alpha_missing", "premultiplied", "undecodable", "truncated", "not_json", "stream", "charset", "schema", "type",
    "status", "size", "frames", "levels", "gamma", "outside_mask", "refusal", "tools", "tool_arguments",
    "finish_reason",
    "empty_text", "language", "length", "choices", "dimensions", "not_finite", "top_label", "mask", "weaker_blur",
    "reencoding", "scores", "labels", "direction", "boxes", "tags", "events", "json_values", "text", "inside_mask",
    "perceptible", "extra_region",
)  # fmt: skip
"""Codes from the most to the least telling: of two that fit equally many pairs the earlier is the cause."""


@dataclass(frozen=True, slots=True)
class DiagnosisCount:
    """``pairs`` of ``of`` pairs show it; ``of`` are all judged pairs, or those that could show it at all (pictures with
    an orientation tag). ``noise`` counts control calls that show it. ``example`` is one pair's sentence."""

    code: str
    pairs: int
    of: int
    noise: int
    example: str
    exchange_id: str = ""


@dataclass(frozen=True, slots=True)
class PathCount:
    """At a JSON path the candidate differs in ``pairs`` of ``of`` judged pairs, and the baseline from itself in
    ``noise`` of ``controls`` control calls."""

    path: str
    pairs: int
    of: int
    noise: int
    controls: int


def count_paths(data: Tally, limit: int = 20) -> tuple[PathCount, ...]:
    """Return the JSON paths that differ in the most pairs, each beside the baseline's own noise there."""
    differing = [(path, seen) for path, seen in data.paths.items() if seen.pairs]
    ordered = sorted(differing, key=lambda item: (-item[1].pairs, item[0]))
    return tuple(
        PathCount(path, seen.pairs, data.judged, seen.noise, data.control_pairs) for path, seen in ordered[:limit]
    )


def rank(code: str) -> int:
    """Return how telling a code is, 0 the most."""
    return TELLING.index(code) if code in TELLING else len(TELLING)


def count_diagnoses(data: Tally) -> tuple[DiagnosisCount, ...]:
    """Return the diagnoses of mismatches, the most frequent first, the more telling first among equals."""
    counts = [
        DiagnosisCount(
            code=code,
            pairs=seen.pairs,
            of=data.tagged if code == "orientation_ignored" else data.judged,
            noise=seen.noise,
            example=seen.example,
            exchange_id=seen.exchange_id,
        )
        for code, seen in data.diagnoses.items()
        if seen.pairs
    ]
    return tuple(sorted(counts, key=lambda c: (-c.pairs, rank(c.code))))


def count_failures(data: Tally) -> tuple[DiagnosisCount, ...]:
    """Return how the candidate failed where the baseline did not, the most frequent first."""
    of = data.pairs + data.both_refused
    ordered = sorted(data.failures.items(), key=lambda item: -item[1].pairs)
    return tuple(
        DiagnosisCount(kind, seen.pairs, of, 0, _failure_words(kind), seen.exchange_id) for kind, seen in ordered
    )


_FAILURES = {
    "timeout": say("gave no answer in time"),
    "connect": say("could not be reached"),
    "reset": say("broke the connection"),
    "protocol": say("answered something that is not HTTP"),
    "truncated": say("cut its answer short"),
    "too_large": say("sent more than the mirror reads"),
    "out_of_memory": say("ran out of memory"),
}


def _failure_words(kind: str) -> Phrase:
    if kind.startswith("status "):
        return say("answered {status}", status=kind.removeprefix("status "))
    return _FAILURES.get(kind) or say("failed ({kind})", kind=kind)
