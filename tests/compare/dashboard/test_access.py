"""Viewers, reviewers and operators: who may see and change what, and that everything is audited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import httpx
import pytest
from starlette.datastructures import Headers

from compare.dashboard.access import HERE, Access, Role, Visitor
from compare.dashboard.app import create_app
from compare.dashboard.security import is_own_form
from compare.plan import Plan
from compare.ramp import Phase
from compare.rampbook import RampBook
from compare.results import Results
from tests.compare.dashboard.conftest import Site
from tests.compare.dashboard.filling import LATER, POLICIES
from tests.compare.dashboard.ramping import PaperToggle, paper_ramps
from tests.compare.dashboard.serving import running

TOKENS = {Role.VIEWER: "view-token", Role.REVIEWER: "review-token", Role.OPERATOR: "operate-token"}
PROXIED = Access(
    user_header="X-User", proxies=("10.0.0.0/8",), reviewers=frozenset({"rea"}), operators=frozenset({"ona"})
)


@pytest.mark.parametrize(
    ("headers", "peer", "visitor"),
    [
        ([("x-user", "ona")], "10.1.2.3", Visitor("ona", Role.OPERATOR)),
        ([("x-user", "rea")], "10.1.2.3", Visitor("rea", Role.REVIEWER)),
        ([("x-user", "vic")], "10.1.2.3", Visitor("vic", Role.VIEWER)),
        ([("x-user", "ona")], "192.168.1.1", None),
        ([("x-user", "vic"), ("x-user", "ona")], "10.1.2.3", None),
        ([("x-user", " ")], "10.1.2.3", None),
        ([], "10.1.2.3", None),
        ([("x-user", "ona")], "nonsense", None),
    ],
)
def test_a_user_is_believed_from_a_trusted_proxy_only(
    headers: list[tuple[str, str]], peer: str, visitor: Visitor | None
) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    assert PROXIED.named(Headers(raw=raw), peer) == visitor


def test_tokens_are_never_shown() -> None:
    assert "view-token" not in repr(Access(TOKENS))
    assert HERE.may(Role.OPERATOR)


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ({}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "same-site"}, False),
        ({"origin": "http://127.0.0.1:8088", "host": "127.0.0.1:8088"}, True),
        ({"origin": "http://evil.example", "host": "127.0.0.1:8088"}, False),
        ({"origin": "null", "host": "127.0.0.1:8088"}, False),
    ],
)
def test_a_form_of_another_site_is_told_from_ones_own(headers: Mapping[str, str], own: bool) -> None:
    assert is_own_form(Headers(headers)) is own


class Place:
    """A dashboard with three tokens and a ramp, and what its audit was told."""

    def __init__(self, site: Site, url: str, seen: list[Mapping[str, object]], toggle: PaperToggle) -> None:
        self.site, self.url, self.seen, self.toggle = site, url, seen, toggle

    def ask(self, role: Role, path: str, form: Mapping[str, str] | None = None, **headers: str) -> httpx.Response:
        fields = {"authorization": f"Bearer {TOKENS[role]}", **headers}
        if form is None:
            return httpx.get(self.url + path, headers=fields, trust_env=False)
        return httpx.post(self.url + path, headers=fields, data=dict(form), trust_env=False)


@pytest.fixture
def place(site: Site) -> Iterator[Place]:
    seen: list[Mapping[str, object]] = []
    toggle = PaperToggle()
    results = Results(site.reader.engine)
    plans = {policy.route: Plan(mirrors_back=policy.route != "restore") for policy in POLICIES}
    ramps = paper_ramps(site.reader, toggle, plans)
    app = create_app(
        site.reader, results, POLICIES, access=Access(TOKENS), ramps=ramps, audit=seen.append, now=lambda: LATER
    )
    with running(app, "0.0.0.0") as url:
        yield Place(site, url, seen, toggle)


def test_a_viewer_sees_verdicts_and_no_body(place: Place) -> None:
    pair, text = place.site.of("restore")[1], place.site.of("classify")[0]
    assert place.ask(Role.VIEWER, "/routes/restore").status_code == 200
    assert "/thumbs/" not in place.ask(Role.VIEWER, "/routes/restore").text
    page = place.ask(Role.VIEWER, f"/pairs/{pair.id}").text
    assert "<img" not in page
    assert "label" in page
    assert "predictions" not in place.ask(Role.VIEWER, f"/pairs/{text.id}").text
    assert "predictions" in place.ask(Role.REVIEWER, f"/pairs/{text.id}").text
    place.seen.clear()
    for path in (f"/bodies/{pair.id}/primary", f"/thumbs/{pair.id}/primary", f"/differences/{pair.id}"):
        refused = place.ask(Role.VIEWER, path)
        assert (refused.status_code, refused.json()["code"]) == (403, "role_too_low"), path
    assert place.seen == []


def test_a_reviewer_sees_bodies_labels_pairs_and_each_of_it_is_audited(place: Place) -> None:
    pair = place.site.of("restore")[1]
    assert place.ask(Role.REVIEWER, f"/bodies/{pair.id}/primary").status_code == 200
    labelled = place.ask(Role.REVIEWER, f"/pairs/{pair.id}/label", {"label": "acceptable", "next": f"/pairs/{pair.id}"})
    assert (labelled.status_code, labelled.headers["location"]) == (303, f"/pairs/{pair.id}")
    assert [line["event"] for line in place.seen] == ["body_revealed", "pair_labelled"]
    assert all(str(line["who"]).startswith("reviewer at ") for line in place.seen)
    assert "acceptable, said reviewer at" in place.ask(Role.REVIEWER, f"/pairs/{pair.id}").text
    drafts = place.ask(Role.VIEWER, "/routes/restore").text
    assert "Drafts of a policy change" in drafts
    assert "mismatch_margin" in drafts
    place.ask(Role.REVIEWER, f"/pairs/{pair.id}/label", {"label": "real"})
    assert "Drafts of a policy change" not in place.ask(Role.VIEWER, "/routes/restore").text


def test_a_label_moves_no_verdict(place: Place) -> None:
    results = Results(place.site.reader.engine)
    before = results.latest_verdict("restore")
    for pair in place.site.of("restore")[:5]:
        place.ask(Role.REVIEWER, f"/pairs/{pair.id}/label", {"label": "real"})
    assert results.latest_verdict("restore") == before


def test_an_operator_moves_traffic_and_nobody_else(place: Place) -> None:
    for role in (Role.VIEWER, Role.REVIEWER):
        refused = place.ask(role, "/routes/classify/ramp", {"action": "start"})
        assert (refused.status_code, refused.json()["code"]) == (403, "role_too_low")
    assert "Start the ramp" not in place.ask(Role.REVIEWER, "/routes/classify").text
    assert "Start the ramp" in place.ask(Role.OPERATOR, "/routes/classify").text
    started = place.ask(Role.OPERATOR, "/routes/classify/ramp", {"action": "start"})
    assert (started.status_code, started.headers["location"]) == (303, "/routes/classify#ramp")
    page = place.ask(Role.VIEWER, "/routes/classify").text
    assert "Nobody watches this ramp" in page
    place.toggle.shares["classify"] = 25
    assert place.ask(Role.OPERATOR, "/routes/classify/ramp", {"action": "pause"}).status_code == 303
    assert place.ask(Role.OPERATOR, "/routes/classify/ramp", {"action": "abort"}).status_code == 303
    assert place.toggle.shares["classify"] == 0
    assert [line["event"] for line in place.seen] == ["ramp_start", "ramp_pause", "ramp_abort"]
    entry = RampBook(place.site.reader.engine).read("classify")
    assert entry is not None
    assert entry.ramp.phase is Phase.ABORTED
    assert entry.ramp.by.startswith("operator at ")


def test_what_may_not_be_is_said_on_the_page(place: Place) -> None:
    refused = place.ask(Role.OPERATOR, "/routes/restore/ramp", {"action": "start"})
    assert (refused.status_code, refused.json()["code"]) == (409, "refused")
    assert "shadow.both_ways: true" in refused.json()["detail"]
    korean = {"accept": "text/html", "accept-language": "ko"}
    page = place.ask(Role.OPERATOR, "/routes/restore/ramp", {"action": "start"}, **korean).text
    assert "restore 경로는 양방향으로 미러링되지 않아" in page
    assert place.ask(Role.OPERATOR, "/routes/classify/ramp", {"action": "explode"}).status_code == 400
    assert place.ask(Role.OPERATOR, "/routes/nothing/ramp", {"action": "start"}).status_code == 404
    pair = place.site.of("restore")[1]
    assert place.ask(Role.REVIEWER, f"/pairs/{pair.id}/label", {"label": "<script>"}).status_code == 400


def test_a_form_of_another_site_changes_nothing(place: Place) -> None:
    asked = place.ask(Role.OPERATOR, "/routes/classify/ramp", {"action": "abort"}, origin="http://evil.example")
    assert (asked.status_code, asked.json()["code"]) == (403, "foreign_form")
    assert place.seen == []


def test_a_writer_that_fails_is_said_and_the_wish_is_kept(place: Place) -> None:
    place.toggle.broken = "the API server does not answer"
    asked = place.ask(Role.OPERATOR, "/routes/classify/ramp", {"action": "abort"})
    assert asked.status_code == 409
    assert "is on record, but the toggle cannot be written from here" in asked.json()["detail"]
    assert asked.json()["detail"].endswith("the API server does not answer")
    entry = RampBook(place.site.reader.engine).read("classify")
    assert entry is not None
    assert (entry.ramp.phase, entry.ramp.settled) == (Phase.ABORTED, False)
