"""The overview: the answer in one sentence, then a card per route, those first that need a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from compare.dashboard.views.ledger import Ledger
from compare.dashboard.views.words import (
    CLASSES,
    NO_VERDICT,
    NOTHING,
    VERDICTS,
    Badge,
    count_word,
    duration,
    moment,
)
from compare.gates import State
from compare.latency import tail_words, typical_words
from compare.measurement import OutputClass
from compare.phrases import joined, mark, plural, say
from compare.policy import Policy
from compare.results import FAILED
from compare.table import share
from compare.verdict import Decision, Verdict

_STEPS = (1, 5, 25, 50, 100)
_REPLAY = "~"
"""What stands between a route and the name of a replay of it (``crossfade.replay.recorded.MARK``); no route has it."""
_NEEDS_A_PERSON = {"reject": 0, "promote": 1, "hold": 2, "none": 3}


@dataclass(frozen=True, slots=True)
class Share:
    """How much of a route a backend serves. ``x`` and ``percent`` are percent."""

    name: str
    percent: float
    x: float
    tone: str


@dataclass(frozen=True, slots=True)
class Serving:
    """Who serves a route: by the toggle, or as the record shows it."""

    shares: tuple[Share, ...] = ()
    text: str = ""
    candidate_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """The one next thing to do: a sentence, with a link or a command where there is one."""

    text: str
    link: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class RouteState:
    """What is known of a route. ``stale`` says that the verdict was drawn under another policy than today's."""

    route: str
    policy: Policy | None
    verdict: Verdict | None
    ledger: Ledger
    serving: Serving
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Card:
    """A route on the overview. ``facts`` are (term, the answer, the numbers behind it)."""

    route: str
    badge: Badge
    lead: str
    details: str
    facts: tuple[tuple[str, str, str], ...]
    serving: Serving
    next: Next


_STATES = {
    "promote": (mark("{subject} is ready"), mark("{subject} are ready")),
    "reject": (mark("{subject} must not be switched"), mark("{subject} must not be switched")),
    "more": (mark("{subject} needs more traffic"), mark("{subject} need more traffic")),
    "hold": (mark("{subject} is on hold"), mark("{subject} are on hold")),
    "none": (mark("{subject} has no verdict yet"), mark("{subject} have no verdict yet")),
}
"""What is said of one feature and of several, in the order in which it is said."""


def headline(states: Sequence[RouteState]) -> str:
    """Return the state of every feature in one sentence; a replay is none."""
    states = [state for state in states if _REPLAY not in state.route]
    if not states:
        return say("No route is configured yet.")
    counts = Counter("more" if only_waits(state) else badge_for(state).tone for state in states)
    if counts["none"] == len(states):
        return say("There is no verdict yet.")
    parts: list[str] = []
    for tone, (one, many) in _STATES.items():
        count = counts[tone]
        if count:
            subject = count_word(count)
            if not parts:
                subject = f"{subject.capitalize()} {'feature' if count == 1 else 'features'}"
            parts.append(say(one if count == 1 else many, subject=subject, n=count))
    return say("{parts}.", parts=joined(", ", parts))


def only_waits(state: RouteState) -> bool:
    """Whether a hold has nothing against it but that pairs are missing."""
    verdict = state.verdict
    if verdict is None or verdict.decision is not Decision.HOLD or state.stale:
        return False
    return bool(verdict.more_pairs) and not verdict.findings and not failing_gates(verdict)


def badge_for(state: RouteState) -> Badge:
    """Return the verdict's word and sign."""
    return VERDICTS[state.verdict.decision] if state.verdict is not None else NO_VERDICT


def build_cards(states: Sequence[RouteState]) -> tuple[Card, ...]:
    """Return the cards: rejects, then what is ready, then holds, then what has no verdict."""
    cards = [
        Card(
            state.route,
            badge_for(state),
            lead_of(state),
            details_of(state),
            facts_of(state),
            state.serving,
            next_step(state),
        )
        for state in states
    ]
    return tuple(sorted(cards, key=lambda card: (_NEEDS_A_PERSON[card.badge.tone], card.route)))


def lead_of(state: RouteState) -> str:
    """Return the state of a route in one sentence: the verdict's reason, or of a hold what matters of it."""
    verdict = state.verdict
    if verdict is None or not verdict.pairs:
        return _nothing_judged(state)
    if verdict.decision is not Decision.HOLD:
        return verdict.reason
    if verdict.findings or verdict.bursty or failing_gates(verdict):
        return verdict.reason
    wrong, judged = count_mismatches(verdict), sum(verdict.classes.values())
    pairs = plural(judged, "pair")
    same = say("different in {wrong:,} of {pairs}", wrong=wrong, pairs=pairs) if wrong else say("the same")
    if not verdict.more_pairs:
        return say("{speed} and {same} so far.", speed=_speed(verdict), same=same)
    more = plural(verdict.more_pairs, "more pair")
    return say("{speed} and {same} so far; about {more} settle it.", speed=_speed(verdict), same=same, more=more)


def details_of(state: RouteState) -> str:
    """Return what of a hold is left to say after its first sentence: the open gates by name."""
    verdict = state.verdict
    if verdict is None or verdict.decision is not Decision.HOLD or not verdict.pairs:
        return ""
    gates = [g.title for g in verdict.gates if g.required and g.state is State.OPEN and g.id != "P0"]
    coverage = verdict.gate("P0")
    parts = [say("Still open: {gates}.", gates=joined(", ", gates))] if gates else []
    if coverage.state is not State.PASS and coverage.note:
        parts.append(say("Coverage: {note}.", note=coverage.note))
    return joined(" ", parts)


def failing_gates(verdict: Verdict) -> list[str]:
    """Return the ids of the required gates that fail, though not yet surely enough to reject."""
    return [gate.id for gate in verdict.gates if gate.required and gate.state is State.FAIL]


def count_mismatches(verdict: Verdict) -> int:
    """Return how many pairs differ or are broken."""
    return sum(n for found, n in verdict.classes.items() if found.mismatch)


def _speed(verdict: Verdict) -> str:
    ratio = verdict.latency.ratio
    if ratio is None:
        return say("Not timed")
    return say("Faster") if ratio < 0.995 else say("Slower") if ratio > 1.005 else say("As fast")


def _nothing_judged(state: RouteState) -> str:
    if state.verdict is not None and state.verdict.both_refused:
        refused = plural(state.verdict.both_refused, "request")
        return say("{requests} refused by both sides, none answered by either.", requests=refused)
    if _REPLAY in state.route:
        of, _, _ = state.route.partition(_REPLAY)
        return say("A replay of what {route} recorded, not judged yet.", route=of)
    if state.policy is None:
        return say("This route is recorded but not in the config any more.")
    if state.ledger.stored:
        stored = plural(state.ledger.stored, "request")
        return say("{requests} recorded, no pair compared yet.", requests=stored)
    return say("No request has been recorded yet.")


def facts_of(state: RouteState) -> tuple[tuple[str, str, str], ...]:
    """Return latency, outputs, errors and coverage of the verdict: each in words, then the numbers behind them."""
    verdict = state.verdict
    if verdict is None or not verdict.pairs:
        return ()
    tail, typical = tail_words(verdict.latency), typical_words(verdict.latency)
    facts: list[tuple[str, str, str]] = [
        (say("latency"), typical, joined(" · ", (part for part in (_ratio(verdict), tail) if part)))
    ]
    above = say("over noise {amount}", amount=_over_noise(verdict)) if sum(verdict.classes.values()) else ""
    facts.append((say("outputs"), outputs_of(verdict), above))
    failed = verdict.candidate_failed
    alone = say("{candidate} alone failed in {pairs}", candidate=verdict.candidate, pairs=plural(failed, "pair"))
    facts.append((say("errors"), alone if failed else say("none"), ""))
    covered = verdict.coverage.share
    pairs = f"{verdict.pairs:,}"
    if covered is not None:
        pairs = say("{n:,}, {share} of what was sampled", n=verdict.pairs, share=share(covered))
    newest = say("newest of {at}", at=moment(verdict.last_at)) if verdict.last_at is not None else ""
    facts.append((say("pairs"), pairs, newest))
    return tuple(facts)


def _ratio(verdict: Verdict) -> str:
    """Return the median ratio of the pairs with its interval, as far as it has ends."""
    found = verdict.latency
    if found.ratio is None:
        return ""
    low, high = (NOTHING if end is None else f"{end:.2f}" for end in (found.ratio_low, found.ratio_high))
    return say("median ratio {ratio:.2f} ({low} to {high})", ratio=found.ratio, low=low, high=high)


def _over_noise(verdict: Verdict) -> str:
    """Return how much more the candidate differs than the baseline from itself, with the interval."""
    gate = verdict.gate("G6")
    if not verdict.controls:
        return say("not known: no control calls")
    if gate.estimate is None or gate.low is None or gate.high is None:
        return NOTHING
    values = {"points": 100 * gate.estimate, "low": 100 * gate.low, "high": 100 * gate.high}
    if gate.margin is None:
        return say("{points:+.1f} points ({low:.1f} to {high:.1f})", **values)
    return say("{points:+.1f} points ({low:.1f} to {high:.1f}, allowed {margin:g})", margin=100 * gate.margin, **values)


def outputs_of(verdict: Verdict) -> str:
    """Return how many outputs agree, with the noise of the baseline against itself where it is known."""
    counts: Mapping[OutputClass, int] = verdict.classes
    judged = sum(counts.values())
    if not judged:
        return say("none compared yet")
    same = sum(n for found, n in counts.items() if not found.mismatch)
    each = joined(", ", (say("{n:,} {name}", n=counts[c], name=CLASSES[c].word) for c in OutputClass if counts.get(c)))
    return say("{share} same ({each})", share=share(same / judged), each=each)


def next_step(state: RouteState) -> Next:
    """Return the one thing that a person should do now."""
    verdict = state.verdict
    if verdict is None or not verdict.pairs:
        return _first_step(state)
    if _REPLAY in state.route:  # moves no traffic, and is judged once
        return Next(say("See how the replay compares"), f"{page_of(state.route)}#gates")
    if state.stale:
        return Next(say("The policy has changed since: judge it anew"), command="crossfade compare")
    if verdict.decision is Decision.PROMOTE:
        return _move(state, verdict)
    wrong = [gate.id for gate in verdict.gates if gate.rejects] or failing_gates(verdict)
    return _look(state.route, verdict, wrong) if wrong else _wait(state, verdict)


def _first_step(state: RouteState) -> Next:
    if _REPLAY in state.route:
        return Next(say("Judge what is recorded"), command=f"crossfade compare --route '{state.route}'")
    if state.policy is None:
        return Next(say("Add it to the config, or ignore it"))
    if state.ledger.stored:
        return Next(say("Judge what is recorded"), command="crossfade compare")
    return Next(say("Send traffic for this route through the gateway"))


def _look(route: str, verdict: Verdict, gates: Sequence[str]) -> Next:
    """Return where to see what is wrong: wrong outputs explain more than errors, errors more than slowness."""
    if {"G6", "G7"} & set(gates) and count_mismatches(verdict):
        pairs = plural(count_mismatches(verdict), "pair")
        return Next(say("Look at the {pairs} that differ", pairs=pairs), f"{page_of(route)}?show=mismatch#pairs")
    if "G5" in gates and verdict.candidate_failed:
        failures = plural(verdict.candidate_failed, "failure")
        return Next(say("Look at the {failures}", failures=failures), f"{page_of(route)}?show={FAILED}#pairs")
    return Next(say("Look at the latencies"), f"{page_of(route)}#latency")


def _wait(state: RouteState, verdict: Verdict) -> Next:
    more = verdict.more_pairs
    if not more:
        return Next(say("See which gates are open"), f"{page_of(state.route)}#gates")
    lasting = time_for(verdict, more)
    pairs = plural(more, "more pair")
    if state.policy is not None and _seconds_for(verdict, more) < state.policy.min_span_s - _span_s(verdict):
        span = duration(state.policy.min_span_s)
        return Next(say("Wait for about {pairs}, and until {span} of traffic are observed", pairs=pairs, span=span))
    if not lasting:
        return Next(say("Wait for about {pairs}", pairs=pairs))
    return Next(say("Wait for about {pairs}, {lasting} at this traffic", pairs=pairs, lasting=lasting))


def page_of(route: str) -> str:
    """Return the address of a route's page."""
    return f"/routes/{quote(route, safe='')}"


def time_for(verdict: Verdict, pairs: int) -> str:
    """Return how long so many pairs take at the traffic of the epoch, empty when it is not known."""
    seconds = _seconds_for(verdict, pairs)
    return say("about {lasting}", lasting=duration(seconds)) if seconds > 0 else ""


def _seconds_for(verdict: Verdict, pairs: int) -> float:
    return pairs * _span_s(verdict) / max(1, verdict.pairs - 1)


def _span_s(verdict: Verdict) -> float:
    """Return how long the pairs of the epoch span, 0 where that is not known."""
    if verdict.first_at is None or verdict.last_at is None or verdict.pairs < 2:
        return 0.0
    return (verdict.last_at - verdict.first_at).total_seconds()


def _move(state: RouteState, verdict: Verdict) -> Next:
    now = state.serving.candidate_percent
    if now is not None and now >= 100:
        return Next(say("{candidate} serves everything; keep watching", candidate=verdict.candidate))
    step = next(s for s in _STEPS if s > max(now or 0.0, 1.0))
    command = f"crossfade toggle {state.route} {verdict.candidate}={step}"
    text = say("Give {candidate} {step} % of the traffic", candidate=verdict.candidate, step=step)
    return Next(text, command=command)


def who_serves(policy: Policy | None, split: Mapping[str, float]) -> Serving:
    """Return the shares of a split (percents by backend), the baseline first."""
    if not split:
        return Serving()
    baseline = policy.baseline if policy else ""
    ordered = sorted(split.items(), key=lambda item: (item[0] != baseline, item[0]))
    shares, x = [], 0.0
    for name, percent in ordered:
        if percent > 0:
            shares.append(Share(name, round(percent, 1), x, "baseline" if name == baseline else "candidate"))
            x += percent
    text = " · ".join(f"{s.name} {s.percent:g} %" for s in shares)
    return Serving(tuple(shares), text, split.get(policy.candidate, 0.0) if policy else None)
