"""What the dashboard answers to a program: headers, bodies, troubles, the audit, the account."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from compare.dashboard.access import Access, Role
from compare.dashboard.app import create_app
from compare.dashboard.security import PAGE_POLICY
from compare.dashboard.server import serve
from compare.job import run
from compare.results import Results
from shadow.exchange import Exchange
from shadow.store.reader import Reader
from tests.compare.dashboard.conftest import NOTICE, Site
from tests.compare.dashboard.filling import LATER, POLICIES, SVG, cut_out, fill, hostile
from tests.compare.dashboard.serving import running

TOKEN = "correct-horse-battery"
PAGE = {"accept": "text/html"}


@pytest.fixture
def client(site: Site) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=site.url, headers=PAGE) as client:
        yield client


def test_every_answer_carries_the_headers_that_keep_content_inert(client: httpx.Client, site: Site) -> None:
    pair = site.of("hostile")[1].id
    picture = site.of("restore")[1].id
    paths = ("/", "/routes/hostile", f"/pairs/{pair}", f"/bodies/{pair}/primary", f"/thumbs/{picture}/primary")
    for path in (*paths, f"/differences/{picture}", "/static/crossfade.css", "/-/live", "/nowhere", "/pairs/none"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "same-origin", path
        assert headers["content-security-policy"].startswith("default-src 'none'"), path
        assert "unsafe" not in headers["content-security-policy"], path
        assert (
            "script-src 'self';" in headers["content-security-policy"]
            or "sandbox" in headers["content-security-policy"]
        )
    assert client.get("/").headers["content-security-policy"] == PAGE_POLICY
    refused = httpx.get(site.url, headers={"host": "evil.example"})
    assert refused.headers["content-security-policy"] == PAGE_POLICY


def test_c10_no_body_goes_out_as_anything_that_a_browser_would_run(client: httpx.Client, site: Site) -> None:
    for pair in site.of("hostile"):
        for role in ("primary", "shadow", "request"):
            answer = client.get(f"/bodies/{pair.id}/{role}")
            assert answer.headers["content-type"] == "application/octet-stream"
            assert re.fullmatch(r'attachment; filename="[0-9a-f]{8}-\w+\.bin"', answer.headers["content-disposition"])
            assert "sandbox" in answer.headers["content-security-policy"]
    assert client.get(f"/bodies/{site.of('hostile')[1].id}/primary").content == SVG


def test_c10_pages_have_no_inline_script_or_style_or_event(client: httpx.Client, site: Site) -> None:
    paths = ["/", "/routes/hostile", "/routes/restore", *(f"/pairs/{pair.id}" for pair in site.of("hostile"))]
    for path in paths:
        text = client.get(path).text
        assert re.findall(r"<script(?![^>]* src=\"/static/)", text) == [], path
        assert re.findall(r"<style|<[^>]+ style=|<[^>]+ on\w+=", text) == [], path


def test_a_picture_goes_out_made_anew_and_as_a_download_byte_for_byte(client: httpx.Client, site: Site) -> None:
    pair = site.of("restore")[1]
    shown = client.get(f"/bodies/{pair.id}/request")
    assert shown.headers["content-type"] == "image/png"
    assert shown.content.startswith(b"\x89PNG")
    assert client.get(f"/bodies/{pair.id}/request?download").content == b"".join(pair.request.body)


def test_each_reveal_of_content_is_one_line_of_the_audit(client: httpx.Client, site: Site) -> None:
    pair = site.of("restore")[1].id
    for path, shown in (
        (f"/bodies/{pair}/shadow", "body"),
        (f"/bodies/{pair}/shadow?download", "download"),
        (f"/thumbs/{pair}/shadow", "thumbnail"),
        (f"/differences/{pair}", "difference"),
    ):
        before = len(site.seen)
        client.get(path)
        (line,) = site.seen[before:]
        assert (line["event"], line["shown"], line["exchange"]) == ("body_revealed", shown, pair)
        assert line["at"] == LATER.isoformat()
    before = len(site.seen)
    client.get(f"/pairs/{site.of('classify')[0].id}")
    assert [line["shown"] for line in site.seen[before:]] == ["text", "text"]


def test_a_page_that_shows_no_content_is_no_reveal(client: httpx.Client, site: Site) -> None:
    before = len(site.seen)
    for path in ("/", "/routes/restore", "/nowhere", f"/pairs/{site.of('restore')[1].id}"):
        client.get(path)
    assert site.seen[before:] == []


def test_credentials_never_reach_a_page(client: httpx.Client, site: Site) -> None:
    text = client.get(f"/pairs/{site.of('restore')[1].id}").text
    assert "very-secret" not in text
    assert "[redacted]" in text


def test_the_account_on_every_page_adds_up(client: httpx.Client) -> None:
    for path in ("/", "/routes/classify", "/routes/restore"):
        footer = re.sub("<[^>]+>", "", client.get(path).text.split('<footer class="account"')[1]).replace(",", "")
        received, recorded, in_flight, skipped = map(
            int, re.findall(r"(\d+) (?:received|recorded|in flight|skip)", footer)
        )
        assert received == recorded + in_flight + skipped > 0
        stored, compared, lost, waiting = map(int, re.findall(r"(\d+) (?:stored|compared|not comp|waiting)", footer))
        assert stored == compared + lost + waiting > 0
        assert "does not add up" not in footer
    assert "(40 not sampled, 2 budget full)" in client.get("/routes/classify").text


@pytest.mark.parametrize("path", ["/", "/routes/classify"])
def test_r14_what_the_gateway_refused_stands_beside_the_account(client: httpx.Client, path: str) -> None:
    page = client.get(path).text
    assert "beside these, 8 refused by the gateway itself (7 rate limited, 1 key unknown)" in page
    assert "Not among the received: 8 that the gateway itself refused (7 rate limited, 1 key unknown)." in page
    assert "refused by the gateway" not in client.get("/routes/restore").text


def test_what_needs_a_person_comes_first(client: httpx.Client) -> None:
    cards = re.findall(r'<h2><a href="/routes/([\w-]+)">', client.get("/").text)
    assert cards == ["hostile", "restore", "classify", "remove-background", "waiting"]


def test_the_route_page_names_the_fault_the_pairs_and_the_policy(client: httpx.Client) -> None:
    text = client.get("/routes/restore").text
    assert "restore must not be switched" in text
    assert "onprem swaps red and blue in 38 of 59 pairs" in text
    assert re.search(r"epoch 1 \(policy [0-9a-f]{12}, cloud net-1, onprem net-1\)", text)
    assert "valid however often you look" in text
    assert NOTICE in text


@pytest.mark.parametrize(
    ("query", "pairs"),
    [
        ("", 24),
        ("?page=3", 12),
        ("?page=99999999999", 24),
        ("?page=-1", 24),
        ("?page=9999", 0),
        ("?show=mismatch", 24),
        ("?show=mismatch&page=2", 15),
        ("?show=mismatch&page=3", 0),
        ("?show=broken", 1),
        ("?show=failed", 1),
        ("?show=identical", 20),
        ("?show=%3Cscript%3E", 24),
        ("?diagnosis=rotated", 1),
        ("?diagnosis=no_such", 0),
    ],
)
def test_the_list_of_pairs_is_filtered_and_paged_by_the_address(client: httpx.Client, query: str, pairs: int) -> None:
    assert len(re.findall(r'<li><a href="/pairs/', client.get(f"/routes/restore{query}").text)) == pairs


def test_the_most_urgent_pair_is_the_first_of_the_list(client: httpx.Client, site: Site) -> None:
    first = re.search(r'<li><a href="/pairs/(\w+)', client.get("/routes/restore").text)
    assert first is not None
    assert first[1] == site.of("restore")[7].id


def test_c12_times_are_in_utc_and_say_so_whatever_the_zone_of_the_server(client: httpx.Client, site: Site) -> None:
    path, zone = f"/pairs/{site.of('restore')[1].id}", os.environ.get("TZ")
    pages = set()
    try:
        for name in ("UTC", "Asia/Seoul"):
            os.environ["TZ"] = name
            time.tzset()
            pages.add(client.get(path).text)
    finally:
        os.environ.pop("TZ") if zone is None else os.environ.update(TZ=zone)
        time.tzset()
    assert len(pages) == 1
    assert "04 May 2026 12:00:00 UTC" in pages.pop()


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/nowhere", 404, "not_found"),
        ("/pairs/none", 404, "not_found"),
        ("/routes/%3Cscript%3E", 404, "not_found"),
        ("/bodies/none/primary", 404, "not_found"),
        ("/bodies/{pair}/control", 404, "not_found"),
        ("/bodies/{pair}/everything", 404, "not_found"),
        ("/thumbs/{pair}/primary", 415, "not_a_picture"),
        ("/differences/{pair}", 415, "not_a_picture"),
    ],
)
def test_troubles_are_a_calm_page_for_people_and_problem_json_for_programs(
    client: httpx.Client, site: Site, path: str, status: int, code: str
) -> None:
    path = path.format(pair=site.of("hostile")[0].id)
    page, problem = client.get(path), client.get(path, headers={"accept": "*/*"})
    assert (page.status_code, problem.status_code) == (status, status)
    assert "<h1>" in page.text
    assert "<script>" not in page.text
    assert problem.headers["content-type"] == "application/problem+json"
    assert problem.json()["code"] == code


def test_a_name_that_is_not_this_machines_is_refused_on_loopback(site: Site) -> None:
    port = site.url.rpartition(":")[2]
    for host, status in ((f"localhost:{port}", 200), (f"[::1]:{port}", 200), (f"evil.example:{port}", 421), ("", 421)):
        assert httpx.get(site.url, headers={"host": host}).status_code == status, host


def test_the_process_says_that_it_lives_and_had_no_fault(client: httpx.Client) -> None:
    assert client.get("/-/live").json() == {"status": "ok", "faults": 0}


def test_a_dashboard_before_the_first_request_says_what_to_do(reader: Reader) -> None:
    app = create_app(reader, Results(reader.engine), POLICIES)
    with running(app) as url, httpx.Client(base_url=url, headers=PAGE) as client:
        overview, route = client.get("/").text, client.get("/routes/restore").text
    assert "There is no verdict yet." in overview
    assert "Send traffic for this route through the gateway" in overview
    assert "No request has come through the gateway yet." in overview
    assert "restore has no verdict yet" in route
    assert "run <code>crossfade compare</code>" in route


def test_a_dashboard_without_any_route_says_what_to_do(reader: Reader) -> None:
    with running(create_app(reader, Results(reader.engine), ())) as url:
        assert "Describe two backends and a route" in httpx.get(url, headers=PAGE).text


def measured(tmp_path: Path, reader: Reader) -> list[Exchange]:
    exchanges = [*cut_out(), *hostile()]
    fill(f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "bodies", exchanges)
    run(reader, POLICIES, workers=0, now=lambda: LATER)
    return exchanges


def test_purged_bodies_leave_numbers_and_a_note_not_broken_pictures(tmp_path: Path, reader: Reader) -> None:
    exchanges = measured(tmp_path, reader)
    reader.purge(LATER + timedelta(days=3650))
    with (
        running(create_app(reader, Results(reader.engine), POLICIES)) as url,
        httpx.Client(base_url=url, headers=PAGE) as client,
    ):
        pair, listed = client.get(f"/pairs/{exchanges[0].id}").text, client.get("/routes/remove-background").text
        text_pair = client.get(f"/pairs/{exchanges[-1].id}").text
        body = client.get(f"/bodies/{exchanges[0].id}/primary", headers={"accept": "*/*"})
        thumb, heat = client.get(f"/thumbs/{exchanges[0].id}/primary"), client.get(f"/differences/{exchanges[0].id}")
    assert "<img" not in pair + listed + text_pair
    assert "not kept any more" in pair
    assert "not kept any more" in listed
    assert "not kept any more" in text_pair
    assert (body.status_code, body.json()["code"]) == (410, "body_purged")
    assert (thumb.status_code, heat.status_code) == (410, 410)


def test_a_verdict_of_an_older_policy_is_shown_as_such(tmp_path: Path, reader: Reader) -> None:
    measured(tmp_path, reader)
    changed = [replace(policy, min_pairs=61) for policy in POLICIES]
    with running(create_app(reader, Results(reader.engine), changed)) as url:
        text = httpx.get(f"{url}/routes/remove-background", headers=PAGE).text
    assert "the policy has changed since" in text
    assert "30 pairs" in text
    assert '<li><a href="/pairs/' in text


def test_a_route_that_left_the_config_is_still_shown(tmp_path: Path, reader: Reader) -> None:
    exchanges = measured(tmp_path, reader)
    with running(create_app(reader, Results(reader.engine), ())) as url, httpx.Client(base_url=url) as client:
        assert client.get("/routes/hostile", headers=PAGE).status_code == 200
        assert client.get(f"/pairs/{exchanges[-1].id}", headers=PAGE).status_code == 200


def test_a_store_that_cannot_be_read_is_a_trouble_and_not_a_fault(tmp_path: Path, reader: Reader) -> None:
    app = create_app(reader, Results(reader.engine), POLICIES)
    with running(app) as url, httpx.Client(base_url=url) as client:
        with reader.engine.begin() as connection:
            connection.exec_driver_sql("DROP TABLE exchanges")
        answer = client.get("/")
        assert (answer.status_code, answer.json()["code"]) == (503, "store_failed")
        assert client.get("/-/live").json()["faults"] == 0


def test_beyond_loopback_nothing_is_shown_before_the_token(reader: Reader) -> None:
    app = create_app(reader, Results(reader.engine), POLICIES, access=Access({Role.OPERATOR: TOKEN}))
    with running(app, "0.0.0.0") as url, httpx.Client(base_url=url, headers=PAGE) as client:
        for path in (
            "/",
            "/routes/restore",
            "/pairs/x",
            "/bodies/x/primary",
            "/thumbs/x/primary",
            "/differences/x",
            "/no",
        ):
            answer = client.get(path)
            assert answer.status_code == 401, path
            assert "restore" not in answer.text.replace(path, ""), path
            assert client.get(path, headers={"accept": "*/*"}).json()["code"] == "token_required"
        assert client.get("/-/live").status_code == 200
        assert client.get("/static/crossfade.css").status_code == 200
        assert client.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401


def test_the_login_form_sets_a_strict_cookie_and_leads_back(reader: Reader) -> None:
    app = create_app(reader, Results(reader.engine), POLICIES, access=Access({Role.OPERATOR: TOKEN}))
    with running(app, "0.0.0.0") as url, httpx.Client(base_url=url, headers=PAGE) as client:
        form = client.get("/routes/restore?show=failed")
        assert 'value="/routes/restore?show=failed"' in form.text
        wrong = client.post("/login", data={"token": "wrong", "next": "/routes/restore"})
        assert (wrong.status_code, "set-cookie" in wrong.headers) == (401, False)
        assert 'value="/routes/restore"' in wrong.text
        right = client.post("/login", data={"token": TOKEN, "next": "/routes/restore?show=failed"})
        assert (right.status_code, right.headers["location"]) == (303, "/routes/restore?show=failed")
        cookie = right.headers["set-cookie"].lower()
        assert TOKEN not in cookie
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert client.get("/routes/restore").status_code == 200
        away = client.post("/login", data={"token": TOKEN, "next": "//evil.example/"})
        assert away.headers["location"] == "/"
        assert client.post("/login", content=b"token=" + b"x" * 20_000).status_code == 400
        assert client.post("/login", content=b"&".join([b"a=b"] * 50)).status_code == 400


@pytest.mark.parametrize("token", [None, ""])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "crossfade.example"])
def test_beyond_loopback_it_refuses_to_start_without_a_token(reader: Reader, host: str, token: str | None) -> None:
    app = create_app(
        reader, Results(reader.engine), POLICIES, access=Access({} if token is None else {Role.OPERATOR: token})
    )
    with pytest.raises(ValueError, match="CROSSFADE_DASHBOARD_TOKEN"):
        serve(app, host, 0, print)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]"])
def test_on_loopback_no_token_is_needed(reader: Reader, host: str) -> None:
    with running(create_app(reader, Results(reader.engine), POLICIES), host) as url:
        assert httpx.get(url, headers=PAGE).status_code == 200
