"""A verdict in words: one short sentence with its numbers, and what stands between it and another verdict.

Everything is a phrase: a key with named values, told in English here and in the visitor's language on a page.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compare.diagnosis import DiagnosisCount, PathCount
from compare.gates import GateResult, State, Unit
from compare.latency import LatencySummary, tail_words, times, typical_words
from compare.phrases import Phrase, joined, mark, plural, say
from compare.policy import Policy
from compare.tally import Tally

_PHRASES = {
    "orientation_ignored": mark(
        "{candidate} ignores the EXIF orientation tag: {pairs:,} of {of:,} such pictures came out wrong"
    ),
    "red_blue_swapped": mark("{candidate} swaps red and blue in {pairs:,} of {of:,} pairs"),
    "missed_face": mark(
        "{candidate} leaves faces visible: in {pairs:,} of {of:,} pairs a face that {baseline} blurred was not"
    ),
    "rotated": mark("{candidate} turns the picture in {pairs:,} of {of:,} pairs"),
    "mirrored": mark("{candidate} mirrors the picture in {pairs:,} of {of:,} pairs"),
    "shifted": mark("{candidate} shifts the picture in {pairs:,} of {of:,} pairs"),
    "alpha_missing": mark("{candidate} leaves out the alpha channel in {pairs:,} of {of:,} pairs"),
    "undecodable": mark("{candidate} sends no usable picture in {pairs:,} of {of:,} pairs"),
    "size": mark("{candidate} answers in another size in {pairs:,} of {of:,} pairs"),
    "top_label": mark("{candidate} names another top label in {pairs:,} of {of:,} pairs"),
    "scores": mark("{candidate} gives other scores in {pairs:,} of {of:,} pairs"),
    "status": mark("{candidate} answers with another status in {pairs:,} of {of:,} pairs"),
    "reencoding": mark("{candidate} encodes differently in {pairs:,} of {of:,} pairs"),
    "truncated": mark("{candidate} cuts its answer short in {pairs:,} of {of:,} pairs"),
    "refusal": mark("one side alone refuses to answer in {pairs:,} of {of:,} pairs"),
    "tools": mark("{candidate} calls other tools in {pairs:,} of {of:,} pairs"),
    "tool_arguments": mark("{candidate} calls the same tools with other arguments in {pairs:,} of {of:,} pairs"),
    "finish_reason": mark("{candidate} ends for another reason in {pairs:,} of {of:,} pairs"),
    "language": mark("{candidate} answers in another script in {pairs:,} of {of:,} pairs"),
    "length": mark("{candidate} answers with less than half or more than double the text in {pairs:,} of {of:,} pairs"),
}
_ASKED_TWICE = 5
"""Control calls from which on it is told at which paths the baseline mostly differs from itself."""
_OTHER = mark("{candidate} differs in {pairs:,} of {of:,} pairs, for example: {example}")


def phrase(found: DiagnosisCount, policy: Policy) -> Phrase:
    """Return a diagnosis with its counts, with the backends' names."""
    source = _PHRASES.get(found.code, _OTHER)
    named: dict[str, str] = {"candidate": policy.candidate}
    named |= {"baseline": policy.baseline} if "{baseline}" in source else {}
    named |= {"example": found.example} if source == _OTHER else {}
    return say(source, pairs=found.pairs, of=found.of, **named)


def failures_phrase(found: Sequence[DiagnosisCount], policy: Policy) -> Phrase:
    """Return how often the candidate failed alone, over all kinds of failure."""
    if len(found) == 1:
        return failure_phrase(found[0], policy)
    kinds = joined(", ", (say("{failure} in {n:,}", failure=f.example, n=f.pairs) for f in found[:3]))
    counts, name = {"pairs": sum(f.pairs for f in found), "of": found[0].of}, policy.candidate
    return say("{candidate} failed in {pairs:,} of {of:,} pairs: {kinds}", candidate=name, kinds=kinds, **counts)


def failure_phrase(found: DiagnosisCount, policy: Policy) -> Phrase:
    """Return how often the candidate failed alone: 'onprem answered 500 in 24 of 60 pairs'."""
    named = {"candidate": policy.candidate, "failure": found.example}
    return say("{candidate} {failure} in {pairs:,} of {of:,} pairs", pairs=found.pairs, of=found.of, **named)


def amount(value: float | None, unit: Unit) -> Phrase:
    """Return a gate's number for a person: no share is rounded up to all or down to none."""
    if value is None:
        return say("unknown")
    if unit is Unit.RATIO:
        wide = say("{n:,.0f}", n=value) if value >= 1000 else say("{n:.2f}", n=value)
        return wide if value >= 0.1 else say("{n:.2g}", n=value)
    percent = 100 * value
    if 0 < percent < 0.01:
        return say("less than {n:g} %", n=0.01)
    if 99.5 <= percent < 100:
        return say("{n:.1f} %", n=min(99.9, percent))
    return say("{n:.2g} %", n=round(percent, 4)) if abs(percent) < 9.95 else say("{n:.0f} %", n=percent)


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

    @property
    def failing(self) -> tuple[GateResult, ...]:
        """The gates that stand in the way as they are: they fail, and must pass or can reject."""
        return tuple(gate for gate in self.gates if gate.state is State.FAIL and (gate.required or gate.critical))

    @property
    def waiting(self) -> tuple[GateResult, ...]:
        """The required gates that are not known yet, the one that takes the most pairs first; coverage apart."""
        open_ = [g for g in self.required if g.state in (State.OPEN, State.NODATA) and g.id != "P0"]
        return tuple(sorted(open_, key=lambda gate: -(gate.more or 0)))


def explain_promote(known: Evidence) -> Phrase:
    """Return why the candidate may take over."""
    return say(
        "{candidate} may take over: all {gates} required gates pass on {pairs}; {candidate} is {speed}.",
        candidate=known.policy.candidate, gates=len(known.required), pairs=plural(known.data.pairs, "pair"),
        speed=typical_words(known.latency),
    )  # fmt: skip


def explain_reject(known: Evidence) -> Phrase:
    """Return the worst gate's story. Wrong outputs explain more than errors, errors more than slowness."""
    return _failing(_gravest([g for g in known.gates if g.critical and g.rejects]), known)


def explain_hold(known: Evidence) -> Phrase:
    """Return the first thing that stands in the way: what fails, else the gate that takes the most pairs, else what
    coverage lacks."""
    if known.findings:
        return say("{finding}.", finding=known.findings[0])
    if known.bursty:
        gates = joined(", ", (_gate(gate) for gate in known.gates if gate.id in known.bursty))
        return say("The evidence comes in bursts: minute by minute it says the opposite. Gates: {gates}.", gates=gates)
    if known.failing:
        return _failing(_gravest(known.failing), known)
    if not known.data.pairs:
        return say("No evidence yet: {note}.", note=known.gates[0].note)
    if not known.waiting:
        return say("All gates pass but coverage: {note}.", note=known.gates[0].note)
    slowest = known.waiting[0]
    if known.diagnoses and {"G6", "G7"} & {gate.id for gate in known.waiting}:
        wrong = phrase(known.diagnoses[0], known.policy)
        if slowest.more is None:
            return say("{wrong}; how many more pairs settle it is not known yet.", wrong=wrong)
        return say("{wrong}; about {pairs} settle it.", wrong=wrong, pairs=plural(slowest.more, "more pair"))
    if slowest.more is None:
        return say("Not enough evidence yet on {gate}; how much more it takes is not known.", gate=_gate(slowest))
    pairs = plural(slowest.more, "more pair")
    gate = _gate(slowest)
    return say("Not enough evidence yet: about {pairs} settle it, the most for {gate}.", pairs=pairs, gate=gate)


def what_would_change(known: Evidence, *, rejected: bool, promoted: bool) -> Iterator[Phrase]:
    """Yield what stands between this verdict and another, each with how many pairs that takes where that is known."""
    if rejected:
        yield say("A reject stays until a build that was never seen before begins a new epoch, or the policy changes.")
    if promoted:
        yield say("A gate that fails, coverage that drops or a new build would change this to hold or reject.")
    allowed = {gate.id: amount(gate.margin, gate.unit) for gate in known.gates}
    for gate in known.failing:
        yield say(
            "{gate} fails: {ends}, {allowed} allowed. More pairs do not mend it, a better {candidate} does.",
            gate=_gate(gate), ends=_ends(gate), allowed=allowed[gate.id], candidate=known.policy.candidate,
        )  # fmt: skip
    if rejected:
        return
    for gate in known.waiting:
        values = {"gate": _gate(gate), "ends": _ends(gate), "allowed": allowed[gate.id]}
        if gate.state is State.NODATA:
            yield say("{gate} has no data yet.", gate=_gate(gate))
        elif gate.more is None:
            yield say("{gate}: not known how many more pairs; {ends} now, {allowed} allowed.", **values)
        else:
            more = plural(gate.more, "more pair")
            yield say("{gate}: about {pairs}; {ends} now, {allowed} allowed.", pairs=more, **values)
    restless = [path.path or "$" for path in known.paths if 2 * path.noise > path.controls >= _ASKED_TWICE]
    if restless:
        yield say(
            "{baseline} itself answers differently when asked twice, at {paths}: what means nothing belongs into "
            "compare.ignore.",
            baseline=known.policy.baseline, paths=joined(", ", restless[:3]),
        )  # fmt: skip
    coverage = known.gates[0]
    if coverage.state is not State.PASS:
        yield say("{gate} is not enough: {note}.", gate=_gate(coverage), note=coverage.note)


def _gravest(gates: Sequence[GateResult]) -> GateResult:
    order = ("G7", "G6", "G5", "G1", "G2", "G3-p95", "G3-p99")
    return min(gates, key=lambda gate: order.index(gate.id))


def _gate(gate: GateResult) -> Phrase:
    return say("{title} ({id})", title=gate.title, id=gate.id)


def _ends(gate: GateResult) -> Phrase:
    low, high = (amount(end, gate.unit) for end in (gate.low, gate.high))
    if gate.low is None and gate.high is None:
        return say("endless") if gate.state is State.FAIL else say("unknown")
    if gate.high is None:
        return say("{low} or more", low=low)
    return say("up to {high}", high=high) if gate.low is None else say("{low} to {high}", low=low, high=high)


def _failing(gate: GateResult, known: Evidence) -> Phrase:
    values = {name: amount(getattr(gate, name), gate.unit) for name in ("estimate", "low", "margin")}
    words = _gate_words(gate, known) or gate.title
    return say("{words} ({estimate}, at least {low}, allowed {margin}).", words=words, **values)


def _gate_words(gate: GateResult, known: Evidence) -> Phrase | None:
    """Return what the pairs say about a gate, in words, where they say anything."""
    name, tail = known.policy.candidate, tail_words(known.latency)
    if gate.id in ("G6", "G7") and known.diagnoses:
        return phrase(known.diagnoses[0], known.policy)
    if gate.id == "G5" and known.failures:
        return failures_phrase(known.failures, known.policy)
    if gate.id == "G1":
        typical = typical_words(known.latency)
        return (
            say("{candidate} is {speed}", candidate=name, speed=typical)
            if tail is None
            else say("{candidate} is {speed} and {tail}", candidate=name, speed=typical, tail=tail)
        )
    if gate.id == "G3-p95" and tail:
        return say("{candidate} is {speed}", candidate=name, speed=tail)
    if gate.id == "G3-p99" and gate.estimate:
        speed = say("{speed} at the 99th percentile", speed=times(gate.estimate))
        return say("{candidate} is {speed}", candidate=name, speed=speed)
    return None
