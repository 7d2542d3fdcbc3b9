"""Live numbers: what is said of each look, one look for many pages, and nothing guessed."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace

import anyio
import httpx
import pytest

from compare.dashboard.app import create_app
from compare.dashboard.live import Feed
from compare.dashboard.snapshot import GatewayView, Progress, Snapshot
from compare.dashboard.views.livewords import live_bars, live_texts
from compare.results import Results
from tests.compare.dashboard.conftest import Site
from tests.compare.dashboard.filling import POLICIES
from tests.compare.dashboard.serving import running

MIRROR: Mapping[str, object] = {
    "queued": 3,
    "in_flight": 7,
    "budget_used_bytes": 64_000_000,
    "budget_total_bytes": 256_000_000,
    "breakers": {"onprem": "closed"},
    "store_works": True,
    "defects": 0,
}
FINE = Snapshot(GatewayView(True, {"r": 10}, {}, MIRROR), {"r": Progress(10, 10)}, {"r": 2.5})


def test_a_healthy_look_is_said_in_words() -> None:
    assert live_texts(FINE) == {
        "rate:r": "2.5 requests/s",
        "rate": "2.5 requests/s",
        "mirror": "healthy",
        "queue": "3 waiting, 7 under way",
        "budget": "64 MB of 256 MB (25.0 %)",
        "breakers": "all closed",
        "store": "writes",
        "limits": "none hit",
        "job": "everything recorded is compared",
    }
    assert live_bars(FINE) == {"budget": 25.0, "job": 100.0}


@pytest.mark.parametrize(
    ("change", "place", "said"),
    [
        ({"breakers": {"onprem": "open", "cloud": "closed"}}, "breakers", "onprem open"),
        ({"store_works": False}, "store", "does not write: exchanges are lost"),
        ({"store_works": False}, "mirror", "needs a look"),
        ({"breakers": {"onprem": "half_open"}}, "mirror", "needs a look"),
        ({"defects": 1}, "mirror", "needs a look"),
    ],
)
def test_what_is_wrong_is_said(change: Mapping[str, object], place: str, said: str) -> None:
    gateway = replace(FINE.gateway, mirror={**MIRROR, **change})
    assert live_texts(replace(FINE, gateway=gateway))[place] == said


def test_a_gateway_that_does_not_answer_is_not_guessed_at() -> None:
    texts = live_texts(Snapshot(GatewayView(), {"r": Progress(10, 4)}))
    assert texts["mirror"].startswith("The gateway does not answer")
    assert (texts["rate"], texts["queue"]) == ("no gateway answers", "–")
    assert texts["job"] == "6 requests wait for the next comparison"


def test_limits_and_a_running_job_are_named() -> None:
    look = replace(
        FINE,
        gateway=replace(FINE.gateway, refused={"r": 2, "s": 40, "t": 0}),
        progress={"r": Progress(1000, 400)},
        comparing=frozenset({"r"}),
    )
    texts = live_texts(look)
    assert texts["limits"] == "s 40 times, r 2 times"
    assert texts["job"] == "comparing r: 600 requests to go"
    assert live_bars(look)["job"] == 40.0


def test_rates_come_from_the_last_looks_and_a_restart_is_not_negative() -> None:
    clock, views = [0.0], [{"r": 100}]
    looks = [0]

    def gateways() -> GatewayView:
        looks[0] += 1
        return GatewayView(True, views[0])

    feed = Feed(gateways, lambda: {"r": Progress(5, looks[0])}, lambda: clock[0])

    async def look() -> Snapshot:
        return await feed.look()

    assert anyio.run(look).rates == {"r": None}
    clock[0], views[0] = 2.0, {"r": 130}
    second = anyio.run(look)
    assert second.rates == {"r": 15.0}
    assert second.comparing == {"r"}
    assert anyio.run(look) is second, "one look serves every page for a second"
    assert looks == [2]
    clock[0], views[0] = 3.0, {"r": 4}
    assert anyio.run(look).rates == {"r": None}


def test_a_page_hears_of_a_change_without_asking(site: Site) -> None:
    views = [GatewayView(True, {"classify": 10}, {}, MIRROR)]
    app = create_app(site.reader, Results(site.reader.engine), POLICIES, gateways=lambda: views[0])
    with running(app) as url, httpx.stream("GET", f"{url}/-/events", trust_env=False, timeout=30) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))
        assert next(lines)["texts"]["mirror"] == "healthy"
        views[0], changed = replace(views[0], mirror={**MIRROR, "store_works": False}), time.monotonic()
        while next(lines)["texts"]["mirror"] != "needs a look":
            pass
        assert time.monotonic() - changed < 20.0
