"""A store that the real job has measured, the dashboard over it on a real port, and a real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from compare.dashboard.app import create_app
from compare.job import run
from compare.plan import Plan
from compare.results import Results
from shadow.exchange import Exchange
from shadow.store.reader import Reader
from tests.compare.dashboard.filling import LATER, POLICIES, everything, fill
from tests.compare.dashboard.ramping import PaperToggle, paper_ramps
from tests.compare.dashboard.serving import running

CHROMIUM = Path("/usr/bin/chromium")
NOTICE = "The baseline of this run is a stand-in for a cloud."
TOGGLE: Mapping[str, Mapping[str, float]] = {"classify": {"cloud": 75, "onprem": 25}, "restore": {"cloud": 100}}


@dataclass(frozen=True, slots=True)
class Site:
    """A running dashboard; ``seen`` is what its audit was told."""

    url: str
    reader: Reader
    exchanges: tuple[Exchange, ...]
    seen: list[Mapping[str, object]] = field(default_factory=list)

    def of(self, route: str) -> list[Exchange]:
        return [each for each in self.exchanges if each.route == route]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    """An empty store."""
    reader = Reader.open(f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "bodies")
    yield reader
    reader.close()


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("dashboard")
    url, bodies = f"sqlite:///{folder / 'store.db'}", folder / "bodies"
    exchanges = everything()
    fill(url, bodies, exchanges)
    reader = Reader.open(url, bodies)
    seen: list[Mapping[str, object]] = []
    try:
        run(reader, POLICIES, workers=0, now=lambda: LATER)
        app = create_app(
            reader,
            Results(reader.engine),
            POLICIES,
            ramps=paper_ramps(reader, PaperToggle(), {policy.route: Plan() for policy in POLICIES}),
            notice=NOTICE,
            serving=lambda: TOGGLE,
            audit=seen.append,
            now=lambda: LATER,
        )
        with running(app) as address:
            yield Site(address, reader, tuple(exchanges), seen)
    finally:
        reader.close()


@pytest.fixture(scope="module")
def browser(site: Site) -> Iterator[Browser]:
    """A browser for one module: while playwright is there, its event loop occupies this thread, so the store (which is
    filled by asyncio) has to be there first, and no other test may need a loop until it is gone."""
    assert site.url
    if not CHROMIUM.exists():
        message = f"{CHROMIUM} is not installed: the pages cannot be tried in a browser"
        if os.environ.get("CROSSFADE_NOTHING_SKIPPED") == "1":
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield chromium
        chromium.close()
