"""`crossfade pair export`: a case that stands on its own, private, with a curl command that a shell cannot misread."""

from __future__ import annotations

import io
import json
import os
import shlex
import stat
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from compare.curl import curl_command
from compare.dashboard.access import Access, Role
from compare.dashboard.app import create_app
from compare.results import Results
from crossfade.cli import app
from crossfade.comparison import open_reader
from crossfade.composition import policies
from crossfade.config.loading import load_config
from crossfade.pair_export import pair_case, zipped
from tests.compare.dashboard.serving import running
from tests.crossfade.test_replay import recorded, setup, stored
from tests.crossfade.test_replay import run as replayed
from tests.fakes.backend import Backend, answering, plain


def run(config: Path, *arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["pair", "export", *arguments, "--config", str(config)], env={"COLUMNS": "140"})
    return result.exit_code, result.stdout, result.output


def test_a_pair_is_a_folder_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    config = setup(tmp_path, "http://127.0.0.1:9", [recorded(n) for n in range(6)])
    CliRunner().invoke(app, ["compare", "--config", str(config), "--workers", "1"])
    out = tmp_path / "case"
    code, _, output = run(config, "id-3", "--out", str(out))
    assert code == 0, output
    assert (out / "request.body.bin").read_bytes() == b"".join(recorded(3).request.body)
    asked = json.loads((out / "request.json").read_text())
    assert (asked["method"], asked["target"], asked["file"]) == ("POST", "/v1/classify", "request.body.bin")
    assert ["Authorization", "[redacted]"] in asked["headers"]
    answer = json.loads((out / "shadow.json").read_text())
    assert (answer["backend"], answer["status"], answer["total_s"]) == ("onprem", 200, 0.2)
    assert (out / "primary.body.bin").read_bytes() == b"ok"
    assert json.loads((out / "measurement.json").read_text())["exchange_id"] == "id-3"
    assert "id-3" in (out / "README.md").read_text()
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in out.iterdir()} == {0o600}
    assert '"pair_exported"' in (tmp_path / "audit.jsonl").read_text()
    code, _, output = run(config, "id-3", "--out", str(out))
    assert (code, "is there already" in output) == (2, True)
    for place in (config / "folder", config / "pair.zip"):  # below a file
        code, _, output = run(config, "id-3", "--out", str(place))
        assert (code, output.startswith(f"crossfade: {config}")) == (2, True), output


def test_a_pair_of_a_replay_comes_with_its_measurement(tmp_path: Path) -> None:
    with Backend(answering(plain(b"ok"))) as onprem:
        config = setup(tmp_path, onprem.url, [recorded(0)])
        assert replayed(config, "--speed", "max")[0] == 0
    CliRunner().invoke(app, ["compare", "--route", "classify~run-1", "--config", str(config), "--workers", "1"])
    (pair,) = stored(config)
    assert run(config, pair.id, "--out", str(tmp_path / "case"))[0] == 0
    assert json.loads((tmp_path / "case" / "measurement.json").read_text())["exchange_id"] == pair.id


def test_whoever_has_no_name_is_in_the_audit_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = setup(tmp_path, "http://127.0.0.1:9", [recorded(0)])
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
    code, _, output = run(config, "id-0", "--out", str(tmp_path / "case"))
    assert code == 0, output
    assert '"who": "uid 4000000000"' in (tmp_path / "audit.jsonl").read_text()


def test_a_zip_holds_the_same_and_curl_is_printed_when_asked(tmp_path: Path) -> None:
    config = setup(tmp_path, "http://127.0.0.1:9", [recorded(0)])
    out = tmp_path / "case.zip"
    code, printed, _ = run(config, "id-0", "--out", str(out), "--curl")
    assert code == 0
    with zipfile.ZipFile(out) as archive:
        assert archive.read("request.body.bin") == b"".join(recorded(0).request.body)
        assert printed.strip() in archive.read("curl.sh").decode()
    assert shlex.split(printed)[-1] == "http://127.0.0.1:9/v1/classify"
    assert "Authorization" not in printed
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "evil", [b"$(touch /tmp/owned)", b"`id`", b"a' ; rm -rf / #", b'"; reboot; "', b"@/etc/passwd"]
)
def test_what_a_client_sent_is_no_shell_and_no_file_for_curl(evil: bytes) -> None:
    made = recorded(0)
    request = replace(made.request, target=b"/" + evil, headers=((b"X-Evil", evil),))
    words = shlex.split(curl_command(request, "http://127.0.0.1:9", None))
    assert words[-1] == f"http://127.0.0.1:9/{evil.decode()}"
    assert words[words.index("-H") + 1] == f"X-Evil: {evil.decode()}"


def test_an_id_that_is_not_there_is_told(tmp_path: Path) -> None:
    config = setup(tmp_path, "http://127.0.0.1:9", [recorded(0)])
    code, _, output = run(config, "nothing", "--out", str(tmp_path / "x"))
    assert (code, "there is no pair nothing" in output) == (2, True)
    assert not (tmp_path / "x").exists()


def test_a_body_that_is_not_kept_is_said_to_be_missing_in_the_command(tmp_path: Path) -> None:
    gone = replace(recorded(0).request.body, chunks=None)
    made = replace(recorded(0), request=replace(recorded(0).request, body=gone, headers=((b"X-Latin", b"\xe9"),)))
    config = setup(tmp_path, "http://127.0.0.1:9", [made])
    out = tmp_path / "case[bold]"
    code, printed, output = run(config, "id-0", "--out", str(out), "--curl")
    assert (code, str(out) in output) == (0, True), output
    assert printed.startswith("# The body of the request is not kept")
    assert b"X-Latin: \xe9" in (out / "curl.sh").read_bytes()


def test_pairs_of_one_replay_have_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ids = [f"20260504-120000-{number}-id" for number in (1, 2)]
    config = setup(tmp_path, "http://127.0.0.1:9", [replace(recorded(n), id=id_) for n, id_ in enumerate(ids)])
    for id_ in ids:
        assert run(config, id_)[0] == 0
        assert (tmp_path / f"pair-{id_}" / "README.md").exists()


def test_the_dashboard_gives_reviewers_the_same_case_and_audits_it(tmp_path: Path) -> None:
    config = load_config(setup(tmp_path, "http://127.0.0.1:9", [recorded(0)]), secrets=False)
    reader, seen = open_reader(config), list[Mapping[str, object]]()
    dashboard = create_app(
        reader,
        Results(reader.engine),
        policies(config),
        access=Access({Role.VIEWER: "view-token", Role.REVIEWER: "review-token"}),
        audit=seen.append,
        case=lambda exchange_id: zipped(pair_case(reader, config, exchange_id)[0]),
    )
    try:
        with running(dashboard, "0.0.0.0") as url, httpx.Client(base_url=url, trust_env=False) as client:
            refused = client.get("/pairs/id-0/case", headers={"authorization": "Bearer view-token"})
            assert (refused.status_code, refused.json()["code"], seen) == (403, "role_too_low", [])
            client.headers.update({"authorization": "Bearer review-token"})
            assert client.get("/pairs/id-9/case").status_code == 404
            page = client.get("/pairs/id-0", headers={"accept": "text/html"}).text
            assert 'href="/pairs/id-0/case"' in page
            seen.clear()
            answer = client.get("/pairs/id-0/case")
    finally:
        reader.close()
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == 'attachment; filename="pair.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.read("request.body.bin") == b"".join(recorded(0).request.body)
        assert "README.md" in archive.namelist()
    assert [(line["event"], line["shown"], line["exchange"]) for line in seen] == [("body_revealed", "case", "id-0")]
