"""One sentence per verdict, with its numbers: what is wrong, what is open, or that nothing is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compare.diagnosis import DiagnosisCount, PathCount
from compare.gates import GateResult, State, Unit
from compare.latency import LatencySummary, tail_words, times, typical_words
from compare.policy import Policy
from compare.tally import Tally

_PHRASES = {
    "orientation_ignored": "{candidate} ignores the EXIF orientation tag: {pairs} of {of} such pictures came out wrong",
    "red_blue_swapped": "{candidate} swaps red and blue in {pairs} of {of} pairs",
    "missed_face": "{candidate} leaves faces visible: in {pairs} of {of} pairs a face that {baseline} blurred was not",
    "rotated": "{candidate} turns the picture in {pairs} of {of} pairs",
    "mirrored": "{candidate} mirrors the picture in {pairs} of {of} pairs",
    "shifted": "{candidate} shifts the picture in {pairs} of {of} pairs",
    "alpha_missing": "{candidate} leaves out the alpha channel in {pairs} of {of} pairs",
    "undecodable": "{candidate} sends no usable picture in {pairs} of {of} pairs",
    "size": "{candidate} answers in another size in {pairs} of {of} pairs",
    "top_label": "{candidate} names another top label in {pairs} of {of} pairs",
    "scores": "{candidate} gives other scores in {pairs} of {of} pairs",
    "status": "{candidate} answers with another status in {pairs} of {of} pairs",
    "reencoding": "{candidate} encodes differently in {pairs} of {of} pairs",
    "truncated": "{candidate} cuts its answer short in {pairs} of {of} pairs",
    "refusal": "one side alone refuses to answer in {pairs} of {of} pairs",
    "tools": "{candidate} calls other tools in {pairs} of {of} pairs",
    "tool_arguments": "{candidate} calls the same tools with other arguments in {pairs} of {of} pairs",
    "finish_reason": "{candidate} ends for another reason in {pairs} of {of} pairs",
    "language": "{candidate} answers in another script in {pairs} of {of} pairs",
    "length": "{candidate} answers with less than half or more than double the text in {pairs} of {of} pairs",
}
_OTHER = "{candidate} differs in {pairs} of {of} pairs, for example: {example}"


def phrase(found: DiagnosisCount, policy: Policy) -> str:
    """Return a diagnosis with its counts, with the backends' names."""
    return _PHRASES.get(found.code, _OTHER).format(
        candidate=policy.candidate, baseline=policy.baseline, pairs=found.pairs, of=found.of, example=found.example
    )


def failures_phrase(found: Sequence[DiagnosisCount], policy: Policy) -> str:
    """Return how often the candidate failed alone, over all kinds of failure."""
    if len(found) == 1:
        return failure_phrase(found[0], policy)
    total, kinds = sum(f.pairs for f in found), ", ".join(f"{f.example} in {f.pairs}" for f in found[:3])
    return f"{policy.candidate} failed in {total} of {found[0].of} pairs: {kinds}"


def failure_phrase(found: DiagnosisCount, policy: Policy) -> str:
    """Return how often the candidate failed alone: 'onprem answered 500 in 24 of 60 pairs'."""
    return f"{policy.candidate} {found.example} in {found.pairs} of {found.of} pairs"


def amount(value: float | None, unit: Unit) -> str:
    """Return a gate's number for a person."""
    if value is None:
        return "unknown"
    return (
        f"{value:.2f}" if unit is Unit.RATIO else f"{100 * value:.2g} %" if abs(value) < 0.1 else f"{100 * value:.0f} %"
    )


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a reason may be drawn from. ``bursty`` names gates whose evidence comes in bursts."""

    policy: Policy
    data: Tally
    gates: tuple[GateResult, ...]
    latency: LatencySummary
    diagnoses: tuple[DiagnosisCount, ...]
    failures: tuple[DiagnosisCount, ...]
    findings: tuple[str, ...] = ()
    bursty: tuple[str, ...] = ()
    paths: tuple[PathCount, ...] = ()

    @property
    def required(self) -> tuple[GateResult, ...]:
        """The gates that must pass."""
        return tuple(gate for gate in self.gates if gate.required)


def explain_promote(known: Evidence) -> str:
    """Return why the candidate may take over."""
    name = known.policy.candidate
    return (
        f"{name} may take over: all {len(known.required)} required gates pass on {known.data.pairs} pairs; "
        f"{name} is {typical_words(known.latency)}."
    )


def explain_reject(known: Evidence) -> str:
    """Return the worst gate's story. Wrong outputs explain more than errors, errors more than slowness."""
    order = ("G7", "G6", "G5", "G3-p95", "G3-p99")
    gate = min((g for g in known.gates if g.critical and g.rejects), key=lambda g: order.index(g.id))
    words = _gate_words(gate, known) or gate.title
    return f"{words} ({_bounds(gate)}, allowed {amount(gate.margin, gate.unit)})."


def _gate_words(gate: GateResult, known: Evidence) -> str | None:
    """Return what the pairs say about a gate, in words, where they say anything."""
    policy, tail = known.policy, tail_words(known.latency)
    if gate.id in ("G6", "G7") and known.diagnoses:
        return phrase(known.diagnoses[0], policy)
    if gate.id == "G5" and known.failures:
        return failures_phrase(known.failures, policy)
    if gate.id == "G1":
        return f"{policy.candidate} is {typical_words(known.latency)}" + (f" and {tail}" if tail else "")
    if gate.id == "G3-p95" and tail:
        return f"{policy.candidate} is {tail}"
    if gate.id == "G3-p99" and gate.estimate:
        return f"{policy.candidate} is {times(gate.estimate)} at the 99th percentile"
    return None


def _bounds(gate: GateResult) -> str:
    return f"{amount(gate.estimate, gate.unit)}, at least {amount(gate.low, gate.unit)}"


def explain_hold(known: Evidence) -> str:
    """Return what fails without being critical, what is open and how many pairs settle it, and what coverage lacks."""
    if known.findings:
        return known.findings[0][0].upper() + known.findings[0][1:] + "."
    if known.bursty:
        return f"The evidence of {', '.join(known.bursty)} comes in bursts: minute by minute it says the opposite."
    failing = [g for g in known.gates if g.state is State.FAIL and (g.required or g.critical)]
    waiting = [g for g in known.required if g.state in (State.OPEN, State.NODATA) and g.id != "P0"]
    parts = [_failing(g, known) for g in failing]
    if waiting:
        more = [g.more for g in waiting if g.more is not None]
        parts.append(_settling(more, starts=not failing) + ", ".join(_open(g) for g in waiting))
    coverage = next(g for g in known.gates if g.id == "P0")
    if coverage.state is not State.PASS:
        parts.append(f"{'coverage' if parts else 'Coverage'}: {coverage.note}")
    if not failing and known.diagnoses:
        parts.append(phrase(known.diagnoses[0], known.policy))
    return "; ".join(parts) + "."


def _failing(gate: GateResult, known: Evidence) -> str:
    words = _gate_words(gate, known) or f"{gate.title} fails"
    return f"{words} ({_bounds(gate)}, allowed {amount(gate.margin, gate.unit)})"


def _settling(more: Sequence[int], starts: bool) -> str:
    words = f"about {max(more):,} more pairs settle it; open: " if more else "not known yet; open: "
    return words[0].upper() + words[1:] if starts else words


def _open(gate: GateResult) -> str:
    if gate.state is State.NODATA:
        return f"{gate.title} (no data)"
    span = f"{amount(gate.low, gate.unit)} to {amount(gate.high, gate.unit)}"
    return f"{gate.title} ({span}, allowed {amount(gate.margin, gate.unit)})"
