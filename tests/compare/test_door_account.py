"""Case R14: what the gateway refused is counted from a real gateway to the report, beside the accounts."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from compare.job import RouteResult, run
from compare.markdown import render_markdown
from compare.policy import Kind
from compare.report import render_report, to_json
from compare.verdict import verdict_from_json
from gateway.settings import Limit
from shadow.store.reader import Reader
from tests.compare.examples import labels, policy
from tests.fakes.backend import Backend, answering, plain
from tests.gateway.harness import one_route, running, stored
from tests.gateway.test_access import ACME, OLD
from tests.gateway.test_account import settled

NOW = datetime(2026, 5, 5, tzinfo=UTC)
KEY = (b"X-Api-Key", OLD)
LIMIT = "3/hour"
REFUSED = {"key_missing": 2, "body_too_large": 1, "rate_limited": 4}
SENTENCE = "Not among the received: 7 that the gateway itself refused (4 rate limited, 2 key missing, 1 body too large)"


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> tuple[RouteResult, list[int], list[int]]:
    """Return the route's result, the statuses the client got, and how many requests each backend got."""
    folder = tmp_path_factory.mktemp("door")
    body = plain(labels(("cat", 0.9), ("dog", 0.1)))
    with Backend(answering(body)) as cloud, Backend(answering(body)) as onprem:
        settings = stored(one_route(cloud.url, onprem.url, limits=(Limit(LIMIT),), max_body_bytes=100), folder)
        with running(replace(settings, callers=(ACME,)), mirror=True) as gateway:
            asked = [([KEY], b"x")] * 7 + [([], b"x")] * 2 + [([KEY], b"x" * 101)]
            statuses = [gateway.request("POST", "/", fields, each).status for fields, each in asked]
            assert gateway.request("GET", "/-/live").status == 200
            assert settled(gateway, 3)["refused"] == REFUSED
        reached = [len(cloud.requests), len(onprem.requests)]
    return _compare(folder), statuses, reached


def _compare(folder: Path) -> RouteResult:
    reader = Reader.open(f"sqlite:///{folder}/crossfade.db", folder / "bodies")
    try:
        (found,) = run(reader, [policy(Kind.CLASSIFICATION, route="all")], workers=0, now=lambda: NOW)
        return found
    finally:
        reader.close()


def test_r14_refusals_reach_no_side_and_stand_beside_both_accounts(
    judged: tuple[RouteResult, list[int], list[int]],
) -> None:
    found, statuses, reached = judged
    assert statuses == [200] * 3 + [429] * 4 + [401] * 2 + [413]
    assert reached == [3, 3], "zero hits of a refused request, also at the shadow"
    coverage = found.verdict.coverage
    assert (coverage.received, coverage.recorded, coverage.skipped, coverage.losses) == (3, 3, {}, {})
    assert coverage.balanced
    assert coverage.refused_at_door == REFUSED
    assert verdict_from_json(found.verdict.to_json()) == found.verdict


def test_r14_refusals_are_named_in_the_report_and_its_twins(judged: tuple[RouteResult, list[int], list[int]]) -> None:
    results = [judged[0]]
    assert SENTENCE in render_report(results, None, generated_at=NOW)
    assert SENTENCE.replace("_", " ") in render_markdown(results, generated_at=NOW)
    (twin,) = json.loads(to_json(results, generated_at=NOW))["verdicts"]
    assert twin["coverage"]["refused_at_door"] == REFUSED


def test_a_verdict_from_before_refusals_were_counted_is_still_read(
    judged: tuple[RouteResult, list[int], list[int]],
) -> None:
    old = json.loads(judged[0].verdict.to_json())
    del old["coverage"]["refused_at_door"]
    coverage = verdict_from_json(json.dumps(old)).coverage
    assert (coverage.received, coverage.refused_at_door, coverage.beside()) == (3, {}, "")
