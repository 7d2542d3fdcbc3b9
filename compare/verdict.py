"""The verdict: promote, hold or reject, as an immutable record that carries everything it was drawn from.

promote  coverage holds and every required gate passes. An intersection-union test: no correction for the number of
         gates (Berger 1982). A failing tail gate (G3) blocks it, too: it is not required, as few pairs say nothing of a
         tail, but a tail that is known to be beyond its margin is never promoted.
reject   a critical gate fails at alpha / (routes x gates). Sticky: within its epoch it stays, and an epoch lasts while
         only builds appear that were seen before.
hold     everything else. No data is never good, and no deadline turns hold into promote. Evidence that comes in bursts
         (``bursty_gates``) and findings hold, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from math import exp, fsum
from typing import Any

from compare.coverage import Coverage, Mark, RouteAccount, Window, cover, coverage_gate
from compare.diagnosis import DiagnosisCount, PathCount, count_diagnoses, count_failures, count_paths
from compare.epochs import Epoch
from compare.gates import GateResult, State, Unit, all_gates, bursty_gates
from compare.latency import LatencySummary, summarise_latency
from compare.measurement import Measurement, OutputClass
from compare.phrases import Phrase, as_fields, from_stored, say
from compare.policy import Policy, measurement_key, policy_hash
from compare.reasons import Evidence, explain_hold, explain_promote, explain_reject, what_would_change
from compare.state import RouteState, fold
from compare.stats import Percentile, e_benjamini_hochberg
from compare.tally import Tally

_LEAST_TO_SUSPECT = 20


class Decision(StrEnum):
    """What to do with the route."""

    PROMOTE = "promote"
    HOLD = "hold"
    REJECT = "reject"

    @property
    def exit_code(self) -> int:
        """The job's exit code: 0, 10 or 20."""
        return {Decision.PROMOTE: 0, Decision.HOLD: 10, Decision.REJECT: 20}[self]


@dataclass(frozen=True, slots=True)
class Verdict:
    """One route, one epoch, one moment. ``gates`` begin with P0. Counts of ``classes`` and of ``refused`` (pairs that
    both sides refused, by status) are of the epoch, ``coverage`` has its own window. ``reason`` is one short sentence,
    ``changes`` what stands between this verdict and another; ``bursty`` names the gates whose evidence comes in bursts.
    Its texts are phrases, or plain where a version stored them that knew none."""

    route: str
    decision: Decision
    reason: str
    baseline: str
    candidate: str
    policy: Mapping[str, Any]
    policy_hash: str
    epoch: Epoch
    judged_at: datetime
    first_at: datetime | None
    last_at: datetime | None
    pairs: int
    both_failed: int
    candidate_failed: int
    controls: int
    classes: Mapping[OutputClass, int]
    coverage: Coverage
    gates: tuple[GateResult, ...]
    latency: LatencySummary
    diagnoses: tuple[DiagnosisCount, ...] = ()
    failures: tuple[DiagnosisCount, ...] = ()
    findings: tuple[str, ...] = ()
    rejected_at: datetime | None = None
    refused: Mapping[str, int] = field(default_factory=dict)
    measurement_key: str = ""
    paths: tuple[PathCount, ...] = ()
    changes: tuple[str, ...] = ()
    bursty: tuple[str, ...] = ()

    @property
    def both_refused(self) -> int:
        """How many pairs of the epoch both sides refused."""
        return sum(self.refused.values())

    @property
    def exit_code(self) -> int:
        """The job's exit code for this route."""
        return self.decision.exit_code

    @property
    def more_pairs(self) -> int | None:
        """How many more pairs are expected to settle every open required gate, ``None`` when that is not known."""
        wanted = [gate.more for gate in self.gates if gate.required and gate.state is State.OPEN]
        return max((n for n in wanted if n is not None), default=None)

    def gate(self, name: str) -> GateResult:
        """Return a gate by its id. Raises ``KeyError``."""
        found = next((gate for gate in self.gates if gate.id == name), None)
        if found is None:
            raise KeyError(name)
        return found

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self, dict_factory=as_fields), default=_encode, separators=(",", ":"))


def judge(
    measurements: Sequence[Measurement],
    policy: Policy,
    account: RouteAccount | None,
    *,
    now: datetime,
    previous: Verdict | None = None,
    marks: Sequence[Mark] = (),
) -> Verdict:
    """Judge all measurements of one route at once: ``judge_state`` of their fold. They are in order of sequence."""
    return judge_state(fold(measurements, policy), policy, account, now=now, previous=previous, marks=marks)


def judge_state(
    state: RouteState,
    policy: Policy,
    account: RouteAccount | None,
    *,
    now: datetime,
    previous: Verdict | None = None,
    marks: Sequence[Mark] = (),
) -> Verdict:
    """Judge the present epoch of one route. ``state`` is the fold of all measurements of this policy's key.

    ``previous`` is the route's last verdict: a reject of the same epoch stays a reject. ``marks`` place the gateway's
    losses in time.
    """
    epoch, data, coverage = state.epochs.present, state.tally, cover(state, account, marks, policy)
    gates = (coverage_gate(coverage, data, policy), *all_gates(data, policy))
    known = Evidence(
        policy, data, gates, summarise_latency(data, gates), count_diagnoses(data), count_failures(data),
        tuple(_findings(data, policy)), bursty_gates(data, gates, policy), count_paths(data),
    )  # fmt: skip
    earlier = _sticky(previous, policy_hash(policy), epoch)
    decision = decide(gates, known.findings, known.bursty)
    if earlier is not None and decision is not Decision.REJECT:
        return _record(known, coverage, epoch, Decision.REJECT, earlier.reason, now, earlier.rejected_at)
    rejected_at = (earlier.rejected_at if earlier else now) if decision is Decision.REJECT else None
    return _record(known, coverage, epoch, decision, _EXPLAIN[decision](known), now, rejected_at)


def _sticky(previous: Verdict | None, digest: str, epoch: Epoch) -> Verdict | None:
    """Return the previous verdict when it is a reject of this very epoch."""
    if previous is None or previous.decision is not Decision.REJECT or previous.policy_hash != digest:
        return None
    # The names of the builds may become known later; where the epoch began does not change.
    began = (previous.epoch.number, previous.epoch.first_sequence)
    return previous if began == (epoch.number, epoch.first_sequence) else None


_EXPLAIN = {Decision.PROMOTE: explain_promote, Decision.HOLD: explain_hold, Decision.REJECT: explain_reject}


def _record(
    known: Evidence,
    coverage: Coverage,
    epoch: Epoch,
    decision: Decision,
    reason: str,
    now: datetime,
    rejected_at: datetime | None,
) -> Verdict:
    policy, data = known.policy, known.data
    return Verdict(
        route=policy.route,
        decision=decision,
        reason=reason,
        baseline=policy.baseline,
        candidate=policy.candidate,
        policy=json.loads(json.dumps(asdict(policy), default=str)),
        policy_hash=policy_hash(policy),
        epoch=epoch,
        judged_at=now,
        first_at=data.first_at,
        last_at=data.last_at,
        pairs=data.pairs,
        both_failed=data.both_failed,
        candidate_failed=data.candidate_alone_failed,
        controls=data.controls,
        classes=data.outputs,
        coverage=coverage,
        gates=known.gates,
        latency=known.latency,
        diagnoses=known.diagnoses,
        failures=known.failures,
        findings=known.findings,
        rejected_at=rejected_at,
        refused=dict(data.refused.most_common()),
        measurement_key=measurement_key(policy),
        paths=known.paths,
        changes=tuple(
            what_would_change(known, rejected=decision is Decision.REJECT, promoted=decision is Decision.PROMOTE)
        ),
        bursty=known.bursty,
    )


def decide(gates: Sequence[GateResult], findings: Sequence[str], bursty: Sequence[str]) -> Decision:
    """Return the decision. Bursty evidence neither rejects nor promotes."""
    if any(gate.critical and gate.rejects and gate.id not in bursty for gate in gates):
        return Decision.REJECT
    if findings or bursty:
        return Decision.HOLD
    known_bad = any(gate.critical and gate.state is State.FAIL for gate in gates)
    passing = all(gate.state is State.PASS for gate in gates if gate.required)
    return Decision.PROMOTE if passing and not known_bad else Decision.HOLD


def _findings(data: Tally, policy: Policy) -> list[Phrase]:
    if policy.random_outputs and data.judged >= _LEAST_TO_SUSPECT and data.same_bytes == data.judged:
        return [say("Suspiciously good: a random model gave the same bytes every time; the mirror may hit the primary")]
    return []


def bad_routes(verdicts: Sequence[Verdict], alpha: float) -> tuple[str, ...]:
    """Return the routes that e-BH calls bad, with the share of false calls held at ``alpha``.

    A route's e-value is the mean of its gates' e-values, which is one whatever their dependence.
    """
    e_values = []
    for verdict in verdicts:
        logs = [gate.log_e for gate in verdict.gates if gate.log_e is not None]
        e_values.append(fsum(exp(min(700.0, log_e)) for log_e in logs) / len(logs) if logs else 0.0)
    return tuple(verdicts[i].route for i in e_benjamini_hochberg(e_values, alpha))


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """Return the worst of all: 20 when a route is rejected, else 10 when one is on hold (or none was judged), else
    0."""
    return max((verdict.exit_code for verdict in verdicts), default=Decision.HOLD.exit_code)


def _encode(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no place in a verdict")


def _gate(raw: dict[str, Any]) -> GateResult:
    said = {name: from_stored(raw[name]) for name in ("title", "note")}
    return GateResult(**{**raw, **said, "state": State(raw["state"]), "unit": Unit(raw["unit"])})


def _coverage(raw: dict[str, Any]) -> Coverage:
    since = raw["window"]["since_at"]
    window = Window(**{**raw["window"], "since_at": since and datetime.fromisoformat(since)})
    return Coverage(**{**raw, "window": window})


def verdict_from_json(text: str) -> Verdict:
    """Return the verdict that ``to_json`` wrote. Raises ``ValueError``, ``KeyError`` or ``TypeError`` on anything
    else."""
    raw: dict[str, Any] = json.loads(text)
    for name in ("judged_at", "first_at", "last_at", "rejected_at"):
        raw[name] = None if raw[name] is None else datetime.fromisoformat(raw[name])
    raw["decision"] = Decision(raw["decision"])
    raw["epoch"] = Epoch(**raw["epoch"])
    raw["classes"] = {OutputClass(name): count for name, count in raw["classes"].items()}
    raw["coverage"] = _coverage(raw["coverage"])
    raw["gates"] = tuple(map(_gate, raw["gates"]))
    latency: dict[str, Any] = {k: Percentile(**v) if isinstance(v, dict) else v for k, v in raw["latency"].items()}
    raw["latency"] = LatencySummary(**latency)
    for name in ("diagnoses", "failures"):
        raw[name] = tuple(DiagnosisCount(**{**item, "example": from_stored(item["example"])}) for item in raw[name])
    for name in ("reason", "findings", "changes", "bursty"):
        raw[name] = from_stored(raw.get(name, []))
    raw["paths"] = tuple(PathCount(**item) for item in raw["paths"])
    return Verdict(**raw)
