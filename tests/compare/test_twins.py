"""The report's twins in Markdown and JUnit: the same numbers as the JSON, and nothing that traffic brought can act."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree

import pytest
from rich.console import Console

from compare.gates import State, Unit
from compare.job import RouteResult
from compare.junit import render_junit
from compare.markdown import escape, render_markdown
from compare.measurement import Measurement, OutputClass
from compare.measuring import measure
from compare.policy import Kind
from compare.reasons import amount
from compare.report import render_report, to_json
from compare.state import fold
from compare.table import render, share
from compare.verdict import Decision, judge, verdict_from_json
from tests.compare.examples import answer, exchange, measured, policy

NOW = datetime(2026, 5, 5, 1, 2, 3, tzinfo=UTC)
JSON_TYPE = "application/json"
HOSTILE = (
    "a|b](http://evil.example)![x](https://evil.example/p.png)<script>alert(1)</script>`*_\n"
    "# title\x00\ud800www.evil.example"
)


def result(measurements: list[Measurement], route: str = "route") -> RouteResult:
    rules = policy(route=route)
    verdict = judge(measurements, rules, None, now=NOW)
    return RouteResult(rules, verdict, fold(measurements, rules).tally, tuple(measurements))


def three() -> list[RouteResult]:
    """Return a promote, a hold with pairs that both sides refused, and a reject by errors."""
    good = [measured(n, control=OutputClass.IDENTICAL if n % 9 == 0 else None) for n in range(850)]
    gone = [
        replace(m, baseline=replace(m.baseline, status=404), candidate=replace(m.candidate, status=404))
        for m in (measured(n, None) for n in range(60, 67))
        if m.baseline and m.candidate
    ]
    bad = [measured(n, None, failure="status 500") if n % 2 else measured(n) for n in range(60)]
    return [result(good, "ready"), result([*good[:60], *gone], "waiting"), result(bad, "broken")]


def cells(page: str) -> list[list[str]]:
    """Return the rows of all tables of a Markdown page, escapes undone."""
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    split = [re.split(r"(?<!\\) \| ", row.removeprefix("| ").removesuffix(" |")) for row in rows]
    return [[re.sub(r"\\(.)", r"\1", cell) for cell in row] for row in split]


def told(stored: str | dict[str, str]) -> str:
    return stored if isinstance(stored, str) else stored["text"]


def test_every_form_of_the_report_says_of_when_its_pairs_are() -> None:
    """However often the job runs again, a verdict is no newer than the traffic that it rests on."""
    results = [result([measured(n, every_s=3600) for n in range(30)])]
    months_later = datetime(2026, 9, 1, tzinfo=UTC)
    seen = "2026-05-04 12:00 to 2026-05-05 17:00 UTC"
    assert f"30 pairs of {seen}" in render_markdown(results, generated_at=months_later)
    assert json.loads(to_json(results, generated_at=months_later))["table"][0]["seen"] == seen
    assert "2026-05-05 17:00:00 UTC" in render_report(results, None, generated_at=months_later)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(results))
    assert f"pairs of {seen}" in console.export_text()


def test_markdown_has_the_numbers_of_the_json_twin() -> None:
    results = three()
    page, twin = render_markdown(results, generated_at=NOW), json.loads(to_json(results, generated_at=NOW))
    rows = cells(page)
    assert page.startswith(f"# {twin['headline']}\n")
    for row in twin["table"]:
        shown = next(each for each in rows if each[0] == row["route"] and len(each) == 13)
        assert shown[2:6] == [str(row["pairs"]), row["baseline"], row["candidate"], row["ratio"]]
        assert shown[6:12] == [
            str(row[name]) for name in ("identical", "equivalent", "different", "broken", "failed", "refused")
        ]
        assert shown[12] == share(row["coverage"])
    gates = [gate for verdict in twin["verdicts"] for gate in verdict["gates"]]
    shown_gates = [row for row in rows if len(row) == 8 and row[0] != "gate" and row[0] != "---"]
    assert len(shown_gates) == len(gates)
    for gate, row in zip(gates, shown_gates, strict=True):
        assert row[0].startswith(f"{gate['id']} {gate['title']['text']}")
        assert (row[4], row[5], row[7].strip()) == (str(gate["n"]), gate["state"], told(gate["note"]).strip())
        if gate["estimate"] is not None:
            assert row[1] == amount(gate["estimate"], Unit(gate["unit"]))
    assert "Refused by both sides, evidence for nobody: 7 with 404." in page


def test_junit_has_the_numbers_of_the_json_twin() -> None:
    results = three()
    suites = ElementTree.fromstring(render_junit(results, generated_at=NOW)).findall("testsuite")
    for suite, made in zip(suites, results, strict=True):
        facts = {p.get("name"): p.get("value") for p in suite.findall("properties/property")}
        assert facts["pairs"] == str(made.verdict.pairs)
        assert facts["both_refused"] == str(made.verdict.both_refused)
        cases = {case.get("name"): case for case in suite.findall("testcase")}
        assert len(cases) == len(made.verdict.gates) + 1 == int(suite.get("tests") or 0)
        for gate in made.verdict.gates:
            case = cases[f"{gate.id} {gate.title}"]
            numbers = {p.get("name"): float(p.get("value") or 0) for p in case.findall("properties/property")}
            assert numbers.get("estimate") == gate.estimate
            assert numbers.get("high") == gate.high
            failing = gate.state is State.FAIL and (gate.required or gate.critical)
            assert (case.find("failure") is not None) == failing
            waiting = gate.required and gate.state in (State.OPEN, State.NODATA)
            assert (case.find("skipped") is not None) == waiting


@pytest.mark.parametrize(
    ("at", "decision", "outcome"),
    [(0, Decision.PROMOTE, None), (1, Decision.HOLD, "skipped"), (2, Decision.REJECT, "failure")],
)
def test_junit_fails_for_a_reject_and_skips_a_hold(at: int, decision: Decision, outcome: str | None) -> None:
    found = three()[at]
    assert found.verdict.decision is decision
    root = ElementTree.fromstring(render_junit([found], generated_at=NOW))
    case = root.find("testsuite/testcase[@name='verdict']")
    assert case is not None
    assert [child.tag for child in case] == ([outcome] if outcome else [])
    assert (int(root.get("failures") or 0) > 0) == (outcome == "failure")
    if outcome:
        assert case[0].get("message") == found.verdict.reason


def test_hostile_names_are_text_in_both_twins() -> None:
    found = result([measured(n) for n in range(60)], HOSTILE)
    page = render_markdown([found], generated_at=NOW, notice=HOSTILE)
    for marker in ("<script", "](http", "![x](", "://evil", "\x00", "\ud800"):
        assert marker not in page.replace("\\<", "").replace("\\]", "")
    assert len([line for line in page.splitlines() if line.startswith("# ")]) == 1
    assert all(len(row) in (13, 8, 7, 4, 3) for row in cells(page))
    suite = ElementTree.fromstring(render_junit([found], generated_at=NOW)).find("testsuite")
    assert suite is not None
    assert (suite.get("name") or "").startswith("a|b](http://evil.example)")


def test_escaped_text_is_one_line_of_plain_characters() -> None:
    assert escape("a|b\n*c*") == "a\\|b \\*c\\*"
    assert escape("see https://x and www.x") == "see https:\\/\\/x and www\\.x"


def test_json_paths_are_counted_beside_the_control_calls() -> None:
    rules = policy(Kind.JSON)
    made = []
    for n in range(40):
        sides = [
            answer(name, json.dumps({"id": f"{name}{n}", "score": score}).encode(), JSON_TYPE)
            for name, score in (("cloud", 0.5), ("onprem", 0.5 if n % 4 else 0.6))
        ]
        old, new = sides
        again = answer("cloud", json.dumps({"id": f"again{n}", "score": 0.5}).encode(), JSON_TYPE)
        made.append(exchange(n, old, new, again if n % 2 else None))
    measurements = tuple(measure(each, rules) for each in made)
    verdict = judge(measurements, rules, None, now=NOW)
    assert [(p.path, p.pairs, p.of, p.noise, p.controls) for p in verdict.paths] == [
        ("id", 40, 40, 20, 20),
        ("score", 10, 40, 0, 20),
    ]
    assert any("cloud itself answers differently when asked twice, at id:" in change for change in verdict.changes)
    assert verdict_from_json(verdict.to_json()) == verdict
    found = RouteResult(rules, verdict, fold(measurements, rules).tally, measurements)
    html = render_report([found], None, generated_at=NOW)
    assert '<td><code>score</code></td><td class="num">10 of 40</td><td class="num">0 of 20</td>' in html
    assert ["score", "10 of 40", "0 of 20"] in cells(render_markdown([found], generated_at=NOW))
