"""The picture comparer, the keys, the live numbers and accessibility, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.compare.dashboard.conftest import Site
from tests.compare.dashboard.test_browser import PAGES, Watch, address, watched

AXE_PAGES = ("/", "/routes/restore", "/routes/classify", "/pairs/restore/1", "/pairs/classify/0", "/pairs/hostile/1")
VISIBLE = "[...document.querySelectorAll('figure .pic')].filter(e => e.offsetParent).length"


@pytest.fixture
def pair(browser: Browser, site: Site) -> Iterator[tuple[Page, Watch]]:
    """The page of a pair whose pictures differ."""
    with watched(browser, 1280) as (page, watch):
        page.goto(address(site, "/pairs/restore/1"), wait_until="load")
        yield page, watch


def look_at_charts(page: Page) -> None:
    """Bring one chart after the other into view, and wait until it is drawn."""
    for chart in page.locator("[data-chart]").all():
        chart.scroll_into_view_if_needed()
        chart.locator("xpath=self::*[@data-drawn]").wait_for(timeout=60_000)  # no eval: the policy forbids it


def pressed(page: Page) -> str:
    return page.inner_text('[data-mode][aria-pressed="true"]').split("\n")[0].strip()


@pytest.mark.parametrize(
    ("key", "mode", "pictures"),
    [("1", "side by side", 3), ("2", "slider", 1), ("3", "onion skin", 1), ("4", "blink", 1), ("5", "heat map", 1)],
)
def test_a_key_leads_to_each_view(pair: tuple[Page, Watch], key: str, mode: str, pictures: int) -> None:
    page, watch = pair
    page.keyboard.press(key)
    assert pressed(page).startswith(mode)
    assert page.evaluate(VISIBLE) == pictures
    assert watch.complaints == []


def test_the_worst_tile_fills_the_view_and_all_pictures_follow(pair: tuple[Page, Watch]) -> None:
    page, _ = pair
    page.keyboard.press("6")
    places = page.evaluate("[...document.querySelectorAll('.layers')].map(e => e.style.transform)")
    assert len(set(places)) == 1
    assert "scale(1)" not in places[0]
    page.keyboard.press("0")
    assert "scale(1)" in page.evaluate("document.querySelector('.layers').style.transform")


def test_zoom_and_pan_are_the_same_for_all_and_work_by_keyboard(pair: tuple[Page, Watch]) -> None:
    page, _ = pair
    page.keyboard.press("+")
    page.focus("[data-viewer]")
    page.keyboard.press("ArrowRight")
    places = set(page.evaluate("[...document.querySelectorAll('.layers')].map(e => e.style.transform)"))
    assert places == {"translate(-40px, 0px) scale(1.5)"}
    assert page.inner_text("[data-zoom]") == "150 %"


def test_the_slider_cuts_and_the_onion_skin_fades_the_candidate(pair: tuple[Page, Watch]) -> None:
    page, _ = pair
    over = "document.querySelectorAll('.layers')[1].style"
    page.keyboard.press("2")
    page.fill("input[type=range]", "30")
    assert page.evaluate(f"{over}.clipPath") == "inset(0px 0px 0px 30%)"
    page.keyboard.press("3")
    assert (page.evaluate(f"{over}.opacity"), page.evaluate(f"{over}.clipPath")) == ("0.3", "")
    page.keyboard.press("1")
    assert page.evaluate(f"{over}.opacity") == ""


def test_no_view_fetches_a_body_again(pair: tuple[Page, Watch], site: Site) -> None:
    def fetched() -> int:
        return sum(line.get("shown") in ("body", "difference") for line in site.seen)

    page, _ = pair
    before = fetched()
    for key in "2345612":
        page.keyboard.press(key)
    page.click('[data-ground="black"]')
    page.wait_for_timeout(200)
    assert fetched() == before


def test_keys_walk_through_the_list_and_label_a_pair(browser: Browser, site: Site) -> None:
    with watched(browser, 1280) as (page, watch):
        page.goto(f"{site.url}/routes/restore#pairs")
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        first = page.get_attribute(".pairs a", "href")
        assert page.evaluate("document.activeElement.getAttribute('href')") == first
        page.keyboard.press("Enter")
        page.wait_for_url("**/pairs/**")
        with page.expect_navigation():
            page.keyboard.press("r")
        assert "real, said this machine" in page.inner_text("#label")
        assert page.url.endswith(str(first)), "back at the same place of the list"
        assert watch.complaints == []


def test_in_the_list_keys_open_a_view_of_a_pair_and_label_it(browser: Browser, site: Site) -> None:
    with watched(browser, 1280) as (page, watch):
        page.goto(f"{site.url}/routes/restore?show=different")
        page.keyboard.press("r")
        assert page.url.endswith("?show=different"), "nothing is chosen yet"
        page.keyboard.press("j")
        chosen = str(page.get_attribute(".pairs a", "data-pair"))
        with page.expect_navigation():
            page.keyboard.press("u")
        assert page.url == f"{site.url}/routes/restore?show=different"
        page.keyboard.press("j")
        page.keyboard.press("4")
        page.wait_for_url("**/pairs/**#view-4")
        assert urlsplit(page.url).path == chosen
        assert pressed(page).startswith("blink")
        assert "unsure, said this machine" in page.inner_text("#label")
        assert watch.complaints == []


def test_charts_come_alive_in_view_with_the_numbers_of_the_server(browser: Browser, site: Site) -> None:
    with watched(browser, 1280) as (page, watch):
        asked: list[str] = []
        page.on("request", lambda request: asked.append(urlsplit(request.url).path))
        page.set_viewport_size({"width": 1280, "height": 300})
        page.goto(f"{site.url}/routes/classify", wait_until="load")
        assert not [path for path in asked if path.startswith("/plotly/")], "nothing of it before it is looked at"
        look_at_charts(page)
        assert page.evaluate("document.querySelector('.plot').data.at(-1).y.at(-1)") == 1
        assert page.evaluate("document.querySelectorAll('.plot')[1].data[0].y.reduce((sum, n) => sum + n)") == 790
        assert page.locator(".drawn:visible").count() == 0
        assert watch.complaints == [], "the page's policy allows what plotly does"
        page.emulate_media(media="print")
        assert page.locator(".drawn:visible").count() == 2, "on paper the drawings stay"


def test_live_numbers_come_without_a_reload(browser: Browser, site: Site) -> None:
    with watched(browser, 1280) as (page, watch):
        page.goto(site.url)
        page.locator("body[data-connected=yes]").wait_for()
        assert page.inner_text('[data-live="mirror"]').startswith("The gateway does not answer")
        assert "compared" in page.inner_text('[data-live="job"]')
        assert watch.complaints == []


def test_a_ramp_is_started_and_aborted_with_a_second_thought(browser: Browser, site: Site) -> None:
    with watched(browser, 390) as (page, watch):
        page.goto(f"{site.url}/routes/classify#ramp")
        page.click("summary:has-text('Start the ramp')")
        page.click("button:has-text('Start the ramp: yes')")
        page.wait_for_url("**/routes/classify#ramp")
        assert "running" in page.inner_text("#ramp")
        assert "Nobody watches this ramp" in page.inner_text("#ramp")
        page.click("summary:has-text('Bring everything back')")
        page.click("button:has-text('Bring everything back: yes')")
        page.locator("#ramp", has_text="Back at 0 %").wait_for()
        assert watch.complaints == []
    assert [line["event"] for line in site.seen][-2:] == ["ramp_start", "ramp_abort"]


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_no_serious_violation(browser: Browser, site: Site, width: int, theme: str) -> None:
    assert set(AXE_PAGES) <= {*PAGES, "/pairs/hostile/1"}
    axe = Axe()
    with watched(browser, width, theme) as (page, _):
        page.context.new_cdp_session(page).send("Page.setBypassCSP", {"enabled": True})  # for axe's own script
        for path in AXE_PAGES:
            page.goto(address(site, path), wait_until="load")
            if path == "/routes/classify":
                look_at_charts(page)
            found = axe.run(page).response["violations"]
            serious = [
                (v["id"], [n["target"] for n in v["nodes"]][:3])
                for v in found
                if v["impact"] in ("serious", "critical")
            ]
            assert serious == [], path
