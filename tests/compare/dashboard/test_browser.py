"""Every page in a real browser: both themes, phone and desktop, and nothing that came from traffic comes alive."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Dialog, Page

from compare.dashboard.access import Access, Role
from compare.dashboard.app import create_app
from compare.results import Results
from tests.compare.dashboard.conftest import Site
from tests.compare.dashboard.filling import POLICIES
from tests.compare.dashboard.serving import running

PAGES = (
    "/",
    "/routes/restore",
    "/routes/restore?show=mismatch&page=2",
    "/routes/restore?diagnosis=red_blue_swapped",
    "/routes/classify",
    "/routes/remove-background",
    "/routes/waiting",
    "/routes/hostile",
    "/pairs/restore/1",
    "/pairs/restore/7",
    "/pairs/restore/8",
    "/pairs/classify/0",
    "/pairs/remove-background/0",
    "/pairs/hostile/0",
)
WIDTHS, THEMES = (390, 1440), ("light", "dark")
HOSTILE_PAIRS = range(6)
UNFOLD = "document.querySelectorAll('main details').forEach(part => { part.open = true })"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
CUT_OFF = """[...document.querySelectorAll('body *')]
  .filter(e => getComputedStyle(e).overflowX === 'hidden' && e.textContent.trim() && !e.closest('svg'))
  .filter(e => e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1).map(e => e.className)"""


OVERLAPPING = """(() => {
  const places = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, parent = node.parentElement;
    if (!node.textContent.trim() || parent.closest('svg, footer, .skip, .layers')) continue;
    if (!parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const seen = parent.closest('.scroll, pre')?.getBoundingClientRect();
    for (const box of range.getClientRects())
      if (box.width > 1 && !(seen && (box.top >= seen.bottom || box.left >= seen.right))) places.push([box, node]);
  }
  const found = [];
  places.forEach(([a, one], i) => places.slice(i + 1).forEach(([b, other]) => {
    const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (one !== other && wide > 2 && high > 0.4 * Math.min(a.height, b.height))
      found.push([one.textContent.trim().slice(0, 40), other.textContent.trim().slice(0, 40)]);
  }));
  return found;
})()"""
"""Texts that cover each other."""


@dataclass
class Watch:
    """What a page did that it must not do."""

    complaints: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def dismiss(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@contextmanager
def watched(browser: Browser, width: int, theme: str = "light") -> Iterator[tuple[Page, Watch]]:
    watch = Watch()
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if theme == "dark" else "light"
    )
    page = context.new_page()
    page.on("console", lambda message: watch.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: watch.complaints.append(f"error: {error}"))
    page.on("dialog", watch.dismiss)
    page.on("request", lambda request: watch.hosts.add(urlsplit(request.url).netloc))
    try:
        yield page, watch
    finally:
        context.close()


def address(site: Site, path: str) -> str:
    """Return the address of a page; a pair is named by its route and number."""
    parts = path.split("/")
    if parts[1] == "pairs":
        return f"{site.url}/pairs/{site.of(parts[2])[int(parts[3])].id}"
    return site.url + path


def only_itself(site: Site, watch: Watch) -> bool:
    return {host for host in watch.hosts if host} == {urlsplit(site.url).netloc}


@pytest.mark.parametrize("language", ["en", "ko"])
def test_every_page_fits_and_can_be_read_and_asks_no_other_host(browser: Browser, site: Site, language: str) -> None:
    """Each page is loaded once and looked at in every width and theme, with all that can be unfolded unfolded."""
    with watched(browser, WIDTHS[0]) as (page, watch):
        page.goto(site.url)
        page.click(f".languages a[hreflang={language}]")
        for path in PAGES:
            answer = page.goto(address(site, path), wait_until="load")
            assert answer is not None
            assert (answer.status, page.get_attribute("html", "lang")) == (200, language), path
            page.evaluate(UNFOLD)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate(OVERFLOW) <= 0, f"{path} is wider than {width} pixels"
                assert page.evaluate(CUT_OFF) == [], f"{path} cuts text off at {width} pixels"
                assert page.evaluate(OVERLAPPING) == [], f"{path} has texts on each other at {width} pixels"
            for theme in THEMES:
                page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
                assert page.evaluate(CONTRAST) == [], f"{path} has less contrast than WCAG AA asks for in {theme}"
        assert watch.complaints == []
        assert only_itself(site, watch)


def test_the_check_for_texts_on_each_other_can_fail(browser: Browser, site: Site) -> None:
    with watched(browser, 1280) as (page, _):
        page.goto(site.url)
        page.evaluate("document.querySelector('h1').style.marginBottom = '-40px'")
        assert page.evaluate(OVERLAPPING) != []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_ground_follows_the_theme(browser: Browser, site: Site, theme: str) -> None:
    with watched(browser, 1280, theme) as (page, _):
        page.goto(site.url)
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    levels = [int(level) for level in ground.removeprefix("rgb(").removesuffix(")").split(",")]
    assert (sum(levels) < 200) is (theme == "dark")


@pytest.mark.parametrize("number", HOSTILE_PAIRS)
def test_c10_scripts_in_compared_content_stay_inert_text(browser: Browser, site: Site, number: int) -> None:
    pair = site.of("hostile")[number]
    with watched(browser, 1280) as (page, watch):
        page.goto(f"{site.url}/pairs/{pair.id}", wait_until="load")
        text = page.inner_text("body")
        assert '"><img src=x onerror=alert(1)>' in text
        assert "<script>alert(1)</script>" in text
        assert page.query_selector("img[src='x'], script:not([src]), main svg[onload], [onerror], [onload]") is None
        assert watch.complaints == []
        assert only_itself(site, watch)


def test_c10_an_svg_result_opened_in_a_tab_is_a_download_and_runs_nothing(browser: Browser, site: Site) -> None:
    pair = site.of("hostile")[1]
    with watched(browser, 1280) as (page, watch):
        page.goto(site.url)
        for role in ("primary", "shadow", "request"):
            with page.expect_download() as download:
                page.evaluate("address => { location.href = address }", f"{site.url}/bodies/{pair.id}/{role}")
            assert download.value.suggested_filename.endswith(".bin")
        assert watch.complaints == []


def test_j_and_k_walk_through_the_list_that_one_came_from(browser: Browser, site: Site) -> None:
    with watched(browser, 1280) as (page, watch):
        page.goto(f"{site.url}/routes/restore?show=mismatch")
        with page.expect_navigation():  # a key that is pressed before the page has loaded is lost
            page.click(".pairs a")
        first, places = page.url, []
        for key in ("j", "j", "k", "k"):
            places.append(page.inner_text(".pager .soft"))
            with page.expect_navigation():
                page.keyboard.press(key)
        assert page.url == first
        assert places == ["pair 1 of 39", "pair 2 of 39", "pair 3 of 39", "pair 2 of 39"]
        assert watch.complaints == []


def test_both_pictures_and_their_difference_are_really_drawn(browser: Browser, site: Site) -> None:
    with watched(browser, 1280) as (page, _):
        page.goto(address(site, "/pairs/restore/1"), wait_until="load")
        widths = page.evaluate("[...document.querySelectorAll('.viewer img')].map(i => i.naturalWidth)")
    assert widths == [240, 240, 240]


def test_the_overview_answers_without_script_and_the_account_is_in_sight(browser: Browser, site: Site) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 700}, java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(site.url)
        assert (
            page.inner_text("h1")
            == "One feature is ready, two must not be switched, one needs more traffic, one is on hold."
        )
        box = page.locator("footer.account").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= 700
    finally:
        context.close()


def test_the_overview_refreshes_its_numbers_by_itself(browser: Browser, site: Site) -> None:
    with watched(browser, 1280) as (page, watch):
        page.clock.install()
        page.goto(site.url, wait_until="load")
        page.evaluate("document.querySelector('h1').textContent = 'old'")
        with page.expect_response(f"{site.url}/"):
            page.clock.fast_forward(11_000)
        page.locator("h1", has_text="One feature is ready").wait_for()
        assert watch.complaints == []


def test_the_token_opens_the_dashboard_in_a_browser(browser: Browser, site: Site) -> None:
    access = Access({Role.OPERATOR: "correct-horse-battery"})
    app = create_app(site.reader, Results(site.reader.engine), POLICIES, access=access)
    with running(app, "0.0.0.0") as url, watched(browser, 390) as (page, watch):
        page.goto(f"{url}/routes/restore?show=failed")
        watch.complaints.clear()  # the browser itself notes the 401 of the form
        page.fill("#token", "correct-horse-battery")
        page.click("button")
        page.wait_for_url(f"{url}/routes/restore?show=failed")
        assert "restore must not be switched" in page.inner_text("h1")
        assert page.evaluate("document.cookie") == ""
        assert watch.complaints == []


CONTRAST = """
(() => {
  const levels = text => text.match(/[\\d.]+/g).map(Number);
  const light = rgb => rgb.slice(0, 3).map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ground = e => { for (; e; e = e.parentElement) {
    const c = levels(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } };
  const poor = new Set();
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) || e.closest('svg')) continue;
    const [a, b] = [light(levels(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) poor.add(`${e.tagName}.${e.className} ${((a + .05) / (b + .05)).toFixed(2)}`);
  }
  return [...poor];
})()
"""
