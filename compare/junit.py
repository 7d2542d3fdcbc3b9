"""The verdicts as JUnit XML, for a build server: a suite per route, a case per gate, and one for the verdict.

A failing gate that may block or reject, and a reject, are failures. What is not known yet is skipped, as a build server
has no third word; it never counts as good. Gates that are shown only pass as cases and say so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree

from compare.gates import GateResult, State
from compare.job import RouteResult
from compare.reasons import amount
from compare.verdict import Decision, Verdict

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(results: Sequence[RouteResult], *, generated_at: datetime, name: str = "crossfade") -> str:
    """Return the document. Characters that XML 1.0 cannot hold are left out."""
    root = ElementTree.Element("testsuites", name=name)
    totals = {"tests": 0, "failures": 0, "skipped": 0}
    for result in results:
        suite = _suite(result.verdict, generated_at)
        counts = {
            "tests": len(suite.findall("testcase")),
            "failures": len(suite.findall("testcase/failure")),
            "skipped": len(suite.findall("testcase/skipped")),
        }
        for word, count in counts.items():
            suite.set(word, str(count))
            totals[word] += count
        root.append(suite)
    for word, count in totals.items():
        root.set(word, str(count))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=False) + "\n"


def _suite(verdict: Verdict, generated_at: datetime) -> ElementTree.Element:
    at = f"{generated_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S}"
    suite = ElementTree.Element("testsuite", name=_clean(verdict.route), timestamp=at, errors="0", time="0")
    facts = {
        "policy_hash": verdict.policy_hash, "epoch": verdict.epoch.number, "pairs": verdict.pairs,
        "controls": verdict.controls, "both_refused": verdict.both_refused,
        "candidate_failed": verdict.candidate_failed,
        **{found.value: count for found, count in verdict.classes.items()},
    }  # fmt: skip
    _properties(suite, facts)
    case = _case(suite, verdict, "verdict")
    if verdict.decision is not Decision.PROMOTE:
        outcome = "failure" if verdict.decision is Decision.REJECT else "skipped"
        said = ElementTree.SubElement(case, outcome, message=_clean(verdict.reason))
        said.text = _clean("\n".join(verdict.changes))
    for gate in verdict.gates:
        _add_gate(suite, verdict, gate)
    return suite


def _add_gate(suite: ElementTree.Element, verdict: Verdict, gate: GateResult) -> None:
    case = _case(suite, verdict, f"{gate.id} {gate.title}")
    numbers = {"estimate": gate.estimate, "low": gate.low, "high": gate.high, "margin": gate.margin, "n": gate.n}
    _properties(case, {name: value for name, value in numbers.items() if value is not None})
    counts = gate.required or gate.critical
    if gate.state is State.FAIL and counts:
        words = f"{amount(gate.estimate, gate.unit)}, at least {amount(gate.low, gate.unit)}"
        words += f", allowed {amount(gate.margin, gate.unit)}"
        ElementTree.SubElement(case, "failure", message=_clean(words))
    elif gate.state in (State.OPEN, State.NODATA) and gate.required:
        more = f", about {gate.more} more pairs settle it" if gate.more else ""
        words = f"{gate.state.value}{more}{f'; {gate.note}' if gate.note else ''}"
        ElementTree.SubElement(case, "skipped", message=_clean(words))
    elif not counts:
        ElementTree.SubElement(case, "system-out").text = f"shown only: {gate.state.value}"


def _case(suite: ElementTree.Element, verdict: Verdict, name: str) -> ElementTree.Element:
    where = _clean(f"crossfade.{verdict.route}")
    return ElementTree.SubElement(suite, "testcase", classname=where, name=_clean(name), time="0")


def _properties(parent: ElementTree.Element, values: dict[str, object] | dict[str, float | int]) -> None:
    properties = ElementTree.SubElement(parent, "properties")
    for name, value in values.items():
        ElementTree.SubElement(properties, "property", name=name, value=_clean(str(value)))


def _clean(text: str) -> str:
    return _NOT_XML.sub("", text)
