"""The report in a real browser: its figures draw, it reads without script, and it asks no host for anything."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from compare.report import render_report
from tests.compare.test_report import NOW, sixty

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    assert CHROMIUM.exists(), "the browser tests need Debian's chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize(("static", "script"), [(False, True), (False, False), (True, True)])
def test_figures_draw_with_script_and_drawings_stay_without(
    browser: Browser, tmp_path: Path, static: bool, script: bool
) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_report([sixty()], None, generated_at=NOW, static=static), encoding="utf-8")
    context = browser.new_context(java_script_enabled=script)
    page = context.new_page()
    asked, faults = list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(path.as_uri())
    drawn = not static and script
    if drawn:
        page.wait_for_selector("#ratios-1 .plotly svg", state="attached")
    assert page.locator("#ecdf-1 .js-plotly-plot").count() == int(drawn)
    assert page.locator("#ecdf-1 > svg").count() == int(not drawn)
    assert "other scores" in page.locator(".reason").inner_text()
    assert faults == []
    assert asked == [path.as_uri()]
    context.close()


def test_nothing_but_the_two_scripts_may_run() -> None:
    page = unescape(render_report([sixty()], None, generated_at=NOW, static=False))
    rule = re.search(r"script-src ([^;]+);", page)
    assert rule is not None
    assert re.fullmatch(r"('sha256-[A-Za-z0-9+/=]+' ?){2}", rule[1])
    assert "script-src 'none'" in unescape(render_report([sixty()], None, generated_at=NOW))
