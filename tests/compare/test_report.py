"""The report: inert, self-contained, honest about what it shows, and its JSON twin has the same numbers."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from html.parser import HTMLParser

import numpy as np
from markupsafe import escape
from rich.console import Console

from compare.charts import ecdf, gate_bar
from compare.gates import GateResult, State, Unit
from compare.job import RouteResult
from compare.measurement import Critical, Diagnosis, Judgement, Measurement, OutputClass
from compare.measuring import measure
from compare.policy import JsonRule, Kind, Policy, RuleName
from compare.report import headline, render_report, thumbnail_uri, to_json
from compare.state import fold
from compare.stats import Histogram
from compare.table import render, share, table_rows
from compare.verdict import judge
from shadow.exchange import Body, Exchange
from tests.compare.examples import answer, encoded, exchange, measured, photo, policy

JSON_TYPE = "application/json"
NOW = datetime(2026, 5, 5, 1, 2, 3, tzinfo=UTC)
HOSTILE = '"></title></script><script>alert(1)</script><img src=x onerror=alert(1)>'
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script></svg>'


class Bodies:
    """A reader of exchanges that are all in memory."""

    def __init__(self, exchanges: Mapping[str, Exchange]) -> None:
        self._exchanges = exchanges

    def exchange(self, exchange_id: str) -> Exchange | None:
        return self._exchanges.get(exchange_id)

    def load(self, body: Body) -> bytes | None:
        return None if body.chunks is None else b"".join(body.chunks)


class Tags(HTMLParser):
    """Collect every element with its attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def judged(measurements: Sequence[Measurement], rules: Policy) -> RouteResult:
    verdict = judge(measurements, rules, None, now=NOW)
    return RouteResult(rules, verdict, fold(measurements, rules).tally, tuple(measurements))


def result(exchanges: list[Exchange], rules: Policy) -> RouteResult:
    measurements = tuple(measure(made, rules) for made in exchanges)
    return judged(measurements, rules)


def sixty(wrong: bool = True) -> RouteResult:
    measurements = tuple(
        measured(
            n, OutputClass.DIFFERENT if wrong and n % 2 else OutputClass.IDENTICAL, codes=["scores"] if wrong else []
        )
        for n in range(60)
    )
    return judged(measurements, policy())


def hostile_page() -> str:
    rules = policy(Kind.AUTO, route=HOSTILE, candidate="on<prem>")
    made = [
        replace(exchange(1, answer("cloud", b"a", "text/plain"), answer("on<prem>", SVG, "image/svg+xml")), id=HOSTILE),
        exchange(2, answer("cloud", b"{}", HOSTILE), answer("on<prem>", HOSTILE.encode(), "text/html")),
        exchange(
            3,
            answer("cloud", b'{"a":1}', JSON_TYPE),
            answer("on<prem>", b'{"</script><b>":1}', JSON_TYPE),
        ),
    ]
    found = result(made, rules)
    return render_report([found], Bodies({e.id: e for e in made}), generated_at=NOW, notice=HOSTILE)


def test_c10_hostile_names_bodies_and_pictures_are_inert_text() -> None:
    page = hostile_page()
    tags = Tags(page).found
    assert {tag for tag, _ in tags}.isdisjoint({"script", "iframe", "object", "embed", "form", "base"})
    for tag, attributes in tags:
        assert not any(name.startswith("on") for name in attributes)
        if tag == "img":
            assert (attributes["src"] or "").startswith("data:image/png;base64,")
    assert str(escape(HOSTILE)) in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "&lt;svg" in page


def test_the_page_asks_no_host_for_anything() -> None:
    pixels = photo("chelsea")[:64, :64]
    made = [exchange(n, answer("cloud", encoded(pixels)), answer("onprem", encoded(255 - pixels))) for n in range(3)]
    page = render_report([result(made, policy(Kind.IMAGE))], Bodies({e.id: e for e in made}), generated_at=NOW)
    assert page.count("data:image/png;base64,") == 6
    sources = [
        value for _, attributes in Tags(page).found for name, value in attributes.items() if name in ("src", "href")
    ]
    assert sources
    assert all((value or "").startswith(("data:", "#")) for value in sources)
    assert "url(" not in page
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page


def test_the_notice_and_the_verdict_come_before_anything_else() -> None:
    page = render_report([sixty()], None, generated_at=NOW, notice="The baseline is a stand-in.")
    assert (
        page.index("1 route must not be switched")
        < page.index("The baseline is a stand-in.")
        < page.index("All routes")
    )
    assert "The baseline is a stand-in." not in render_report([sixty()], None, generated_at=NOW)


def test_the_json_twin_has_the_numbers_of_the_page() -> None:
    results = [sixty(), sixty(wrong=False)]
    page = html.unescape(render_report(results, None, generated_at=NOW))
    twin = json.loads(to_json(results, generated_at=NOW, notice="n"))
    assert twin["headline"] in page
    for row, verdict in zip(twin["table"], twin["verdicts"], strict=True):
        assert row["reason"] == verdict["reason"]["text"]
        assert row["reason"] in page
        assert f"{row['identical']} identical · {row['equivalent']} equivalent · {row['different']} different" in page
        assert f"policy {verdict['policy_hash']}" in page
        for gate in verdict["gates"]:
            assert gate["title"]["text"] in page


def test_the_terminal_table_says_what_the_rows_say() -> None:
    results = [sixty(), sixty(wrong=False)]
    rows = table_rows(results)
    assert [(r.identical, r.different, r.pairs) for r in rows] == [(30, 30, 60), (60, 0, 60)]
    console = Console(width=400)
    with console.capture() as captured:
        console.print(render(results))
    for row in rows:
        assert f"{row.identical}/{row.equivalent}/{row.different}/{row.broken}" in captured.get()
        assert row.decision.value in captured.get()


def test_markup_in_a_route_name_is_text_in_the_terminal() -> None:
    found = sixty()
    odd = replace(found, verdict=replace(found.verdict, route="[bold red]route[/]"))
    console = Console(width=300)
    with console.capture() as captured:
        console.print(render([odd]))
    assert "[bold red]route[/]" in captured.get()


def test_c12_the_page_states_utc_whatever_zone_the_times_came_in() -> None:
    seoul = timezone(timedelta(hours=9))
    found = sixty()
    moved = tuple(replace(m, received_at=m.received_at.astimezone(seoul)) for m in found.worst)
    assert len(moved) == 60
    there = judged(moved, found.policy)
    page = render_report([there], None, generated_at=NOW.astimezone(seoul))
    assert page == render_report([found], None, generated_at=NOW)
    assert "2026-05-05 01:02:03 UTC" in page
    assert "all times in UTC" in page


def test_c16_rules_and_suppressed_differences_are_on_the_page() -> None:
    rules = policy(Kind.JSON, json_rules=(JsonRule("id", RuleName.IGNORE), JsonRule("score", RuleName.TOLERANCE, 0.01)))
    made = [
        exchange(
            n,
            answer("cloud", f'{{"id":{n},"score":0.5}}'.encode(), JSON_TYPE),
            answer("onprem", f'{{"id":{-n - 1},"score":0.5}}'.encode(), JSON_TYPE),
        )
        for n in range(4)
    ]
    page = render_report([result(made, rules)], None, generated_at=NOW)
    assert "<code>id: ignore</code>" in page
    assert "<code>score: tolerance ±0.01</code>" in page
    assert "4 differences were suppressed" in page


def test_c18_the_rule_of_looking_often_is_on_the_page() -> None:
    assert "Every interval holds at all sample sizes at once" in render_report([sixty()], None, generated_at=NOW)


def test_c06_thin_tails_are_marked_and_the_number_of_requests_is_shown() -> None:
    page = render_report([sixty()], None, generated_at=NOW)
    assert re.search(r"100 ms\*", page)
    assert "60 requests a side" in page


def test_accounts_are_equations_and_a_wrong_one_is_said() -> None:
    found = sixty()
    assert "60 recorded = 60 compared" in render_report([found], None, generated_at=NOW)
    cheat = replace(found.verdict, coverage=replace(found.verdict.coverage, recorded=61))
    page = render_report([replace(found, verdict=cheat)], None, generated_at=NOW)
    assert "60 compared" in page
    both = replace(cheat.coverage, received=61, recorded_by_gateway=61)
    unbalanced = render_report([replace(found, verdict=replace(cheat, coverage=both))], None, generated_at=NOW)
    assert "do not add up" in unbalanced


def test_worst_pairs_show_each_kind_of_trouble_before_any_twice() -> None:
    def bad(n: int, code: str) -> Judgement:
        return Judgement(OutputClass.BROKEN, {}, (Diagnosis(code, f"trouble {code}"),), Critical.WRONG_SIZE)

    codes = ["size"] * 20 + ["shifted", "gamma"]
    measurements = tuple(replace(measured(n), judgement=bad(n, code)) for n, code in enumerate(codes))
    found = judged(measurements, policy())
    page = render_report([found], None, generated_at=NOW)
    cards = re.findall(r"<p>trouble (\w+)</p>", page)
    assert cards[:3] == ["size", "shifted", "gamma"]
    assert len(cards) == 6


def test_a_headline_counts_the_routes() -> None:
    assert headline([]) == "No route was judged."
    assert headline([sixty(), sixty(wrong=False)]) == "1 route must not be switched, 1 route needs more evidence."


def test_coverage_is_never_rounded_up_to_all() -> None:
    assert share(1.0) == "100 %"
    assert share(0.99999) == "99.9 %"
    assert share(None) == "-"


def test_drawings_keep_inside_their_box_whatever_the_numbers() -> None:
    for low, high in ((None, None), (0.0, 1e9), (0.3, 0.31), (-5.0, None)):
        gate = GateResult("G1", "t", State.OPEN, Unit.RATIO, 1.1, 5, 1.0, low, high)
        for x, width in re.findall(r'<rect x="([\d.]+)" y="11" width="([\d.]+)"', gate_bar(gate)):
            assert 0 <= float(x) <= float(x) + float(width) <= 300
    assert "no data" in gate_bar(GateResult("G2", "t", State.NODATA, Unit.SHARE, None, 0))
    drawn = ecdf(Histogram.of([0.1, np.inf, 0.2]), Histogram.of([0.05, 0.05, 0.05]), 0.15)
    assert drawn.count("<polyline") == 2
    assert "no latency" in ecdf(Histogram.of([np.inf]), Histogram())


def test_the_band_around_a_curve_is_drawn_from_a_hundred_requests_on() -> None:
    few, many = (np.linspace(0.1, 0.5, n) for n in (99, 400))
    assert ecdf(Histogram.of(few), Histogram.of(few)).count("<polygon") == 0
    drawn = ecdf(Histogram.of(many), Histogram.of(many / 2))
    assert drawn.count("<polygon") == 2
    heights = [
        float(y) for points in re.findall(r'<polygon points="([^"]+)"', drawn) for y in re.findall(r",(\S+)", points)
    ]
    assert 10 <= min(heights) < max(heights) <= 220 - 26


def test_the_page_states_the_alpha_that_was_used_and_what_both_sides_refused() -> None:
    rules = policy(alpha=0.01)
    made = [exchange(n, *(answer(s, b"no", "text/plain", status=404) for s in ("cloud", "onprem"))) for n in range(9)]
    page = render_report([result(made, rules)], None, generated_at=NOW)
    assert "(alpha 1 %)" in page
    assert "9 pairs were refused by both sides (9 with 404)" in page
    assert "9 recorded = 9 compared (9 of them refused by both sides)" in page


def test_thumbnails_are_drawn_from_pixels_and_from_nothing_else() -> None:
    assert (thumbnail_uri(encoded(photo("chelsea"))) or "").startswith("data:image/png;base64,")
    assert thumbnail_uri(SVG) is None
    assert thumbnail_uri(b"") is None
