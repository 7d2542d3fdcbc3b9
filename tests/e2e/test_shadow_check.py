"""`crossfade shadow check` against a real gateway: what works is said to work, and what does not is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from crossfade.cli import app
from tests.e2e.gateway_process import gateway_process, write_config
from tests.fakes.backend import Backend, answering, plain

JSON = plain(b'{"label": "cat"}', fields=b"Content-Type: application/json\r\n")


def check(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["shadow", "check", "--config", str(config), "--timeout", "10", *arguments])


def outcomes(result: Result) -> dict[str, str]:
    told: Any = json.loads(result.stdout)
    return {step["name"]: step["outcome"] for step in told["steps"]}


def test_each_step_of_a_mirror_that_works_is_ok_and_one_that_fails_is_named(tmp_path: Path) -> None:
    with Backend(answering(JSON)) as cloud, Backend(answering(JSON)) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        with gateway_process(config, port):
            friendly, machine = check(config, "all"), check(config, "all", "--json")
            onprem.close()
            refused = check(config, "all", "--json")
        down, gone = check(config, "all", "--json"), check(config, "nothing")
        config.write_text(config.read_text().replace("percent: 100", "percent: 0"))
        off = check(config, "all")
    assert (friendly.exit_code, machine.exit_code) == (0, 0), friendly.stdout
    assert outcomes(machine) == dict.fromkeys(("answered", "shadow", "stored", "compared"), "ok")
    assert "the outputs are identical" in friendly.stdout
    assert (len(cloud.requests), len(onprem.requests)) == (3, 2), "each of them once"
    assert onprem.requests[0].body.startswith(b"\x89PNG")
    assert refused.exit_code == 1
    assert outcomes(refused)["shadow"] == "failed"
    assert (off.exit_code, gone.exit_code) == (2, 2)
    assert "is not mirrored" in off.stderr
    assert "there is no route nothing; the config has all" in gone.stderr
    assert (down.exit_code, outcomes(down)) == (1, {"answered": "failed"})


def test_a_request_that_is_not_chosen_is_unsure(tmp_path: Path) -> None:
    with Backend(answering(JSON)) as cloud, Backend(answering(JSON)) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        config.write_text(config.read_text().replace("percent: 100", "percent: 0.0001"))
        with gateway_process(config, port):
            result = check(config, "all", "--json")
    assert result.exit_code == 10
    assert outcomes(result) == {"answered": "ok", "mirrored": "unsure"}


def problem(body: bytes) -> bytes:
    return plain(body, status=b"500 Oops", fields=b"Content-Type: application/problem+json\r\n")


STATUS = plain(b'{"routes": {}}', fields=b"Content-Type: application/json\r\n")


@pytest.mark.parametrize(
    ("answers", "steps"),
    [
        ((plain(b"<html>"),), {"answered": "failed"}),
        ((plain(b"[]"),), {"answered": "failed"}),
        ((plain(b"{}"),), {"answered": "failed"}),
        ((STATUS, JSON, plain(b"<html>")), {"answered": "ok", "mirrored": "failed"}),
        ((STATUS, problem(b"oops"), plain(b"<html>")), {"answered": "unsure", "mirrored": "failed"}),
    ],
)
def test_what_is_no_gateway_or_goes_away_is_a_step_that_failed(
    answers: tuple[bytes, ...], steps: dict[str, str], tmp_path: Path
) -> None:
    with Backend(answering(*answers)) as other, Backend(answering(JSON)) as onprem:
        config, _ = write_config(tmp_path, other.url, onprem.url)
        result = check(config, "all", "--gateway", other.url, "--json")
    assert (result.exit_code, outcomes(result)) == (1, steps), result.output


def status(received: int, in_flight: int = 0, **skipped: int) -> bytes:
    """Return a gateway's status page."""
    account = {"received": received, "in_flight": in_flight, "skipped": skipped}
    body = json.dumps({"routes": {"all": {"account": account}}}).encode()
    return plain(body, fields=b"Content-Type: application/json\r\n")


@pytest.mark.parametrize(
    ("under_way", "later", "outcome", "seen"),
    [
        (0, status(11, queue_full=3), "failed", "skipped: queue_full"),
        (1, status(11, queue_full=3), "unsure", "of all requests meanwhile some were skipped: queue_full"),
        (0, status(14, queue_full=3), "unsure", "of all requests meanwhile some were skipped: queue_full"),
        (0, status(14, queue_full=2), "failed", "no skip was counted"),
    ],
)
def test_a_skip_is_this_requests_only_where_no_other_came(
    under_way: int, later: bytes, outcome: str, seen: str, tmp_path: Path
) -> None:
    with Backend(answering(status(10, under_way, queue_full=2), JSON, later)) as gateway:
        config, _ = write_config(tmp_path, gateway.url, "http://127.0.0.1:9")
        result = check(config, "all", "--gateway", gateway.url, "--json", "--timeout", "1")
    assert outcomes(result) == {"answered": "ok", "mirrored": outcome}
    assert seen in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("--path", "http://other.example/"), "must begin with /"), (("--gateway", "http://a:port"), "is no URL")],
)
def test_an_address_that_cannot_be_asked_is_told(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    config, _ = write_config(tmp_path, "http://127.0.0.1:9", "http://127.0.0.1:9")
    result = check(config, "all", *arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output


@pytest.mark.parametrize("command", ["check", "work"])
def test_the_help_teaches(command: str) -> None:
    result = CliRunner().invoke(app, ["shadow", command, "--help"])
    assert result.exit_code == 0
    assert "shadow" in result.stdout
