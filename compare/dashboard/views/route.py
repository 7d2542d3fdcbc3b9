"""The page of one route above its pairs: verdict, gates, latency, and what differs."""

from __future__ import annotations

from dataclasses import dataclass

from compare.charts import gate_bar
from compare.dashboard.views.overview import RouteState, badge_for, lead_of, time_for
from compare.dashboard.views.pairlist import PairFilter
from compare.dashboard.views.paths import PathTree, build_paths
from compare.dashboard.views.words import GATES, NOTHING, Badge, duration, moment
from compare.diagnosis import DiagnosisCount
from compare.gates import GateResult, State
from compare.phrases import Phrase, joined, mark, plural, say
from compare.policy import Policy
from compare.reasons import amount, failure_phrase, phrase
from compare.results import FAILED
from compare.stats import Percentile
from compare.verdict import Verdict

_STATES = {
    "promote": mark("{route} is ready"),
    "hold": mark("{route} is on hold"),
    "reject": mark("{route} must not be switched"),
    "none": mark("{route} has no verdict yet"),
}


@dataclass(frozen=True, slots=True)
class GateRow:
    """A row of the gate table; ``bar`` is the drawing that the report has, too."""

    title: str
    about: str
    estimate: str
    bar: Phrase
    badge: Badge
    settle: str


@dataclass(frozen=True, slots=True)
class Cluster:
    """A diagnosis that several pairs share. ``query`` leads to them."""

    text: str
    pairs: int
    noise: int
    query: str


@dataclass(frozen=True, slots=True)
class RoutePage:
    """Everything above the pairs."""

    route: str
    headline: str
    badge: Badge
    lead: str
    reason: str
    changes: tuple[str, ...]
    meta: str
    findings: tuple[str, ...]
    gates: tuple[GateRow, ...]
    latency: tuple[tuple[str, tuple[str, ...]], ...]
    clusters: tuple[Cluster, ...]
    paths: PathTree | None


def build_route_page(state: RouteState) -> RoutePage:
    """Return the page of a route, with or without a verdict."""
    badge, verdict = badge_for(state), state.verdict
    return RoutePage(
        route=state.route,
        headline=say(_STATES[badge.tone], route=state.route),
        badge=badge,
        lead=lead_of(state),
        reason=_reason(state),
        changes=verdict.changes if verdict else (),
        meta=_meta(verdict, state.stale) if verdict else "",
        findings=verdict.findings if verdict else (),
        gates=tuple(_gate_row(gate, verdict) for gate in verdict.gates) if verdict else (),
        latency=_latency(verdict) if verdict else (),
        clusters=_clusters(verdict, state.policy) if verdict else (),
        paths=build_paths(verdict.paths) if verdict else None,
    )


def _reason(state: RouteState) -> str:
    """Return the reason of a verdict where the page leads with another sentence."""
    if state.verdict is None or not state.verdict.pairs or state.verdict.reason == lead_of(state):
        return ""
    return state.verdict.reason


def _meta(verdict: Verdict, stale: bool) -> str:
    pairs = plural(verdict.pairs, "pair")
    if verdict.first_at and verdict.last_at:
        first, last = moment(verdict.first_at), moment(verdict.last_at)
        pairs = say("{pairs} from {first} to {last}", pairs=pairs, first=first, last=last)
    builds = [
        f"{name} {build}"
        for name, build in (
            (verdict.baseline, verdict.epoch.baseline_build),
            (verdict.candidate, verdict.epoch.candidate_build),
        )
        if build
    ]
    epoch = joined(", ", [say("policy {hash}", hash=verdict.policy_hash), *builds])
    parts = [
        pairs,
        say("epoch {number} ({epoch})", number=verdict.epoch.number, epoch=epoch),
        say("judged {at}", at=moment(verdict.judged_at)),
        say("alpha {alpha}, valid however often you look", alpha=verdict.policy.get("alpha", "?")),
    ]
    if stale:
        parts.append(say("the policy has changed since, so judge it anew: {command}", command="crossfade compare"))
    return joined(" · ", parts)


def _gate_row(gate: GateResult, verdict: Verdict) -> GateRow:
    about: list[str] = [] if gate.required else [say("can reject only")] if gate.critical else [say("shown only")]
    if gate.required and gate.critical:
        about = [say("critical")]
    about.append(f"n = {gate.n:,}")
    if gate.note:
        about.append(gate.note)
    settle = ""
    if gate.more is not None:
        parts = [plural(gate.more, "more pair"), time_for(verdict, gate.more)]
        settle = joined(", ", filter(None, parts)) if gate.more else say("any moment")
    return GateRow(
        say("{id} {title}", id=gate.id.partition("-")[0], title=gate.title),
        joined(" · ", about),
        amount(gate.estimate, gate.unit) if gate.state is not State.NODATA else NOTHING,
        gate_bar(gate),
        GATES[gate.state.value],
        settle,
    )


def _latency(verdict: Verdict) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return (backend, p50, p95, p99); a percentile that too few values support is marked."""
    found = verdict.latency
    rows = (
        (verdict.baseline, (found.baseline_p50, found.baseline_p95, found.baseline_p99)),
        (verdict.candidate, (found.candidate_p50, found.candidate_p95, found.candidate_p99)),
    )
    return tuple((name, tuple(map(_percentile, values))) for name, values in rows)


def _percentile(value: Percentile) -> str:
    if value.value is None:
        return say("no answer") if value.n else NOTHING
    return duration(value.value) if value.reliable else f"{duration(value.value)} *"


def _clusters(verdict: Verdict, policy: Policy | None) -> tuple[Cluster, ...]:
    def words(found: DiagnosisCount) -> str:
        return phrase(found, policy) if policy else found.example

    differ = [Cluster(words(c), c.pairs, c.noise, PairFilter("all", c.code).query()) for c in verdict.diagnoses]
    failed = [
        Cluster(failure_phrase(c, policy) if policy else c.example, c.pairs, c.noise, PairFilter(FAILED).query())
        for c in verdict.failures
    ]
    return (*differ, *failed)
