"""`crossfade replay`: recorded requests go to a real backend when they are due, and the answers become a run."""

from __future__ import annotations

import asyncio
import gzip
import json
import signal
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from crossfade.cli import app
from crossfade.replay.speed import Schedule, Speed, parse_speed
from shadow.exchange import Exchange
from shadow.keeping import Bodies, KeepRule
from shadow.store.reader import Reader
from shadow.store.store import Store
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.authority import Authority
from tests.shadow.bench import body_of, exchange_of

ROOT = Path(__file__).parents[2]
BEGIN = datetime.now(UTC) - timedelta(hours=2)
CONFIG = """\
backends:
  cloud: {{servers: ["http://127.0.0.1:1"]}}
  onprem: {{servers: ["{onprem}"], auth: {{header: Authorization, value: "Bearer k3y"}}, timeout_s: 20{more}}}
routes:
  - {{name: classify, match: {{path: /v1/classify}}, baseline: cloud, candidate: onprem, active: cloud,
      compare: {{kind: bytes, min_pairs: 5}}}}
store: {{url: "sqlite:///crossfade.db", bodies: bodies}}
audit: audit.jsonl
"""


def recorded(number: int, gap_s: float = 0.05) -> Exchange:
    """Return a recorded exchange, answered by the cloud with ``ok``; every third has a large body."""
    content = b"picture %d " % number * (2000 if number % 3 == 0 else 1)
    headers = ((b"Host", b"api.example"), (b"Authorization", b"Bearer theirs"), (b"X-Kind", b"cat"))
    made = exchange_of(f"id-{number}", headers=headers, body=body_of(content, media_type="image/png"))
    answer = replace(made.primary, body=body_of(b"ok", media_type="text/plain"))
    leg = replace(answer, backend="onprem")
    at = BEGIN + timedelta(seconds=number * gap_s)
    return replace(made, received_at=at, primary=answer, shadow=leg)


def setup(folder: Path, onprem: str, exchanges: list[Exchange], rule: KeepRule | None = None, more: str = "") -> Path:
    config = folder / "crossfade.yaml"
    config.write_text(CONFIG.format(onprem=onprem, more=more), encoding="utf-8")

    async def fill() -> None:
        store = Store.open(f"sqlite:///{folder}/crossfade.db", folder / "bodies")
        store.configure({"classify": rule or KeepRule()})
        for exchange in exchanges:
            await store.save(exchange)
        await store.aclose()

    asyncio.run(fill())
    return config


def taking(seconds: float, arrivals: list[float]) -> Callable[[Peer], None]:
    """Return a backend's script that takes its time over each answer."""

    def script(peer: Peer) -> None:
        while peer.read_request() is not None:
            arrivals.append(time.monotonic())
            time.sleep(seconds)  # a slow backend: the time is the point
            peer.send(plain(b"ok"))

    return script


def silent(peer: Peer) -> None:
    """Take requests and answer none."""
    while peer.read_request() is not None:
        pass


def options(config: Path) -> list[str]:
    return ["--route", "classify", "--to", "onprem", "--since", "3h", "--config", str(config), "--name", "run-1"]


def command(config: Path) -> list[str]:
    return [sys.executable, "-m", "crossfade.cli", "replay", *options(config)]


def run(config: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["replay", *options(config), *arguments], env={"COLUMNS": "140"})
    return result.exit_code, result.output


def stored(config: Path, route: str = "classify~run-1") -> list[Exchange]:
    reader = Reader.open(f"sqlite:///{config.parent}/crossfade.db", config.parent / "bodies")
    try:
        return reader.exchanges(route, limit=1000)
    finally:
        reader.close()


def test_recorded_requests_are_sent_as_they_were_and_the_answers_are_a_run_to_compare(tmp_path: Path) -> None:
    with Backend(answering(plain(b"ok"))) as onprem:
        config = setup(tmp_path, onprem.url, [recorded(n) for n in range(12)])
        code, output = run(config, "--speed", "max", "--concurrency", "4")
        assert (code, "sent 12, stored 12" in output) == (0, True), output
        bodies = sorted(request.body for request in onprem.requests)
        assert bodies == sorted(b"".join(recorded(n).request.body) for n in range(12))
        for request in onprem.requests:
            assert request.values(b"authorization") == [b"Bearer k3y"]  # the backend's own, never the client's
            assert request.values(b"x-kind") == [b"cat"]
            assert request.values(b"x-crossfade-shadow") == [b"1"]
    found = stored(config)
    assert {(e.primary.backend, e.shadow and e.shadow.backend) for e in found} == {("recorded", "onprem")}
    assert {e.received_at for e in found} == {recorded(n).received_at for n in range(12)}
    code, output = run(config, "--speed", "max")  # its answers would be mixed with the first run's
    assert (code, "there is a run run-1 of classify already" in output) == (2, True), output
    result = CliRunner().invoke(
        app, ["compare", "--route", "classify~run-1", "--config", str(config), "--workers", "1"]
    )
    assert "12" in result.output, result.output
    assert result.exit_code in (0, 10), result.output
    audit = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert (audit[0]["event"], audit[0]["run"], audit[0]["to"]) == ("replayed", "classify~run-1", "onprem")


def test_a_backend_on_a_unix_socket_is_asked_there(tmp_path: Path) -> None:
    with Backend(answering(plain(b"ok")), path=tmp_path / "model.sock") as onprem:
        config = setup(tmp_path, onprem.url, [recorded(n) for n in range(3)])
        code, output = run(config, "--speed", "max")
        assert (code, "sent 3, stored 3" in output) == (0, True), output
        assert len(onprem.requests) == 3
    assert {exchange.shadow and exchange.shadow.server for exchange in stored(config)} == {onprem.url}


def test_a_backend_with_its_own_authority_name_and_client_certificate_is_spoken_to_so(tmp_path: Path) -> None:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(tmp_path, "model.test"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(authority.bundle(tmp_path))
    authority.issue(tmp_path, "gateway.test", stem="client")
    tls = ", tls: {ca: authority.pem, server_name: model.test, certificate: client.pem, key: client.key}"
    with Backend(answering(plain(b"ok")), tls=context) as onprem:
        config = setup(tmp_path, onprem.url, [recorded(n) for n in range(3)], more=tls)
        code, output = run(config, "--speed", "max")
        assert (code, "sent 3, stored 3" in output) == (0, True), output


def test_requests_go_through_the_proxy_of_the_gateway(tmp_path: Path) -> None:
    with Backend(answering(plain(b"ok"))) as proxy:
        config = setup(tmp_path, "http://model.invalid", [recorded(n) for n in range(3)])
        with config.open("a", encoding="utf-8") as file:
            file.write(f"gateway: {{transport: httpx, proxy: '{proxy.url}'}}\n")
        code, output = run(config, "--speed", "max")
        assert (code, "sent 3, stored 3" in output) == (0, True), output
        assert all(request.line.startswith(b"POST http://model.invalid/") for request in proxy.requests)


def test_what_does_not_fit_together_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    config = setup(tmp_path, f"unix://{tmp_path}/model.sock", [recorded(0)])
    with config.open("a", encoding="utf-8") as file:
        file.write("gateway: {transport: httpx}\n")
    code, output = run(config)
    assert (code, "Unix sockets need gateway.transport: own" in " ".join(output.split())) == (2, True), output


def test_answers_that_differ_from_the_recorded_ones_are_found(tmp_path: Path) -> None:
    with Backend(answering(plain(b"no"))) as onprem:
        config = setup(tmp_path, onprem.url, [recorded(n) for n in range(6)])
        assert run(config, "--speed", "max")[0] == 0
    file = tmp_path / "out.json"
    judged = ["--route", "classify~run-1", "--config", str(config), "--workers", "1", "--json", str(file)]
    CliRunner().invoke(app, ["compare", *judged])
    assert file.read_text().count('"different"') >= 1


def test_the_gaps_are_the_recorded_ones_scaled_and_slow_answers_hold_nothing_up(tmp_path: Path) -> None:
    arrivals: list[float] = []
    with Backend(taking(1.5, arrivals)) as onprem:
        config = setup(tmp_path, onprem.url, [recorded(n, gap_s=1.0) for n in range(6)])
        code, output = run(config, "--speed", "10x")
    assert (code, "held back" in output) == (0, False), output
    assert len(arrivals) == 6
    assert 0.4 < arrivals[-1] - arrivals[0] < 5.0, "half a second; one after the other they would take seven"


def test_a_load_that_concurrency_held_back_is_told(tmp_path: Path) -> None:
    with Backend(taking(0.4, [])) as onprem:
        config = setup(tmp_path, onprem.url, [recorded(n) for n in range(6)])
        _, output = run(config, "--speed", "1000/s", "--concurrency", "1")
    assert "held back: 5 requests waited for one of 1 places" in " ".join(output.split())


def test_loops_limits_and_what_cannot_be_sent_are_counted(tmp_path: Path) -> None:
    gone = replace(recorded(3).request.body, chunks=None)
    exchanges = [recorded(n) for n in range(3)]
    exchanges.append(replace(recorded(3), request=replace(recorded(3).request, body=gone)))
    exchanges.append(recorded(4))
    with Backend(answering(plain(b"ok"))) as onprem:
        config = setup(tmp_path, onprem.url, exchanges)
        code, output = run(config, "--speed", "max", "--loop", "3")
        assert (code, "sent 12, stored 12" in output) == (0, True), output
        assert "3 (the body of the request is not kept)" in output
        assert len({exchange.id for exchange in stored(config)}) == 12


@pytest.mark.parametrize("encoding", [b"", b"gzip"])
def test_a_redacted_body_goes_out_as_it_was_kept_with_fields_that_fit_it(encoding: bytes, tmp_path: Path) -> None:
    content = b'{"user": "somebody with a long name"}'
    content = gzip.compress(content) if encoding else content
    body = body_of(content, media_type="application/json", content_encoding=encoding.decode())
    headers = ((b"Content-Type", b"application/json"), *([(b"Content-Encoding", encoding)] if encoding else []))
    answer = replace(recorded(0).primary, body=body_of(b"{}", media_type="application/json"))
    made = replace(recorded(0), request=exchange_of(headers=headers, body=body).request, primary=answer, shadow=None)
    with Backend(answering(plain(b"{}", fields=b"Content-Type: application/json\r\n"))) as onprem:
        config = setup(tmp_path, onprem.url, [made], KeepRule(redact_json=("user",)))
        code, output = run(config)
        assert (code, "with redacted values: 1" in output) == (0, True), output
        assert onprem.requests[0].body == b'{"user":"[redacted]"}'
        assert onprem.requests[0].values(b"content-encoding") == []


def test_the_name_of_a_credential_is_not_sent_without_its_value(tmp_path: Path) -> None:
    with Backend(answering(plain(b"ok"))) as onprem:
        config = setup(tmp_path, onprem.url, [recorded(0)])
        text = config.read_text().replace(', auth: {header: Authorization, value: "Bearer k3y"}', "")
        text = text.replace("active: cloud,", "active: cloud, shadow: {forward_headers: [Authorization]},")
        config.write_text(text, encoding="utf-8")
        code, output = run(config)
        assert code == 0, output
        assert onprem.requests[0].values(b"authorization") == []


def test_a_body_that_somebody_changed_is_told(tmp_path: Path) -> None:
    config = setup(tmp_path, "http://127.0.0.1:9", [recorded(0)])
    for file in (tmp_path / "bodies").glob("*/*/*"):
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    code, output = run(config)
    assert (code, "a body is not what was stored" in output) == (2, True), output


@pytest.mark.parametrize("arguments", [["replay"], ["pair", "export", "id-0"]])
def test_a_database_that_is_damaged_is_told_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    config = setup(tmp_path, "http://127.0.0.1:9", [recorded(0)])
    with closing(sqlite3.connect(tmp_path / "crossfade.db")) as database:
        (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
        (page,) = database.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'observations'").fetchone()
    with (tmp_path / "crossfade.db").open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xff" * page_bytes)
    result = CliRunner().invoke(
        app, [*arguments, *(options(config) if arguments == ["replay"] else ["--config", str(config)])]
    )
    assert (result.exit_code, result.stderr) == (2, "crossfade: the store: database disk image is malformed\n")


def test_the_sending_ends_when_its_time_is_over_also_as_fast_as_can_be(tmp_path: Path) -> None:
    with Backend(taking(0.05, [])) as onprem:
        config = setup(tmp_path, onprem.url, [recorded(n) for n in range(3)])
        code, output = run(config, "--speed", "max", "--loop", "200", "--concurrency", "1", "--max-seconds", "0.5")
    assert (code, 1 <= len(stored(config)) < 100) == (0, True), output


def test_a_backend_that_refuses_is_a_failure_by_name(tmp_path: Path) -> None:
    config = setup(tmp_path, "http://127.0.0.1:9", [recorded(n) for n in range(3)])
    code, output = run(config, "--speed", "max")
    assert code == 1
    assert "failed: 3 connect" in output
    assert {e.shadow and e.shadow.failure and e.shadow.failure.kind.value for e in stored(config)} == {"connect"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--speed", "fast"], "a speed is 1x"),
        (["--speed", "0x"], "a speed is 1x"),
        (["--to", "nowhere"], "there is no backend nowhere; there is cloud, onprem"),
        (["--route", "nowhere"], "there is no route nowhere"),
        (["--since", "1s"], "nothing is recorded in that time"),
        (["--name", "a/b"], "letters, digits"),
    ],
)
def test_what_cannot_be_run_is_told(arguments: list[str], message: str, tmp_path: Path) -> None:
    config = setup(tmp_path, "http://127.0.0.1:9", [recorded(0)])
    code, output = run(config, *arguments)
    assert code == 2
    assert message in " ".join(output.split())


def test_a_name_under_which_nothing_was_sent_is_free(tmp_path: Path) -> None:
    with Backend(answering(plain(b"ok"))) as onprem:
        config = setup(tmp_path, onprem.url, [recorded(0)])
        assert run(config, "--since", "1s")[0] == 2
        code, output = run(config)
    assert (code, "sent 1, stored 1" in output) == (0, True), output


def test_a_route_that_keeps_hashes_only_cannot_be_replayed_and_says_why(tmp_path: Path) -> None:
    config = setup(tmp_path, "http://127.0.0.1:9", [recorded(0)], KeepRule(Bodies.HASHES))
    code, output = run(config)
    assert code == 2
    assert "1 (the body of the request is not kept)" in output


def test_ctrl_c_stops_the_sending_keeps_what_was_answered_and_balances(tmp_path: Path) -> None:
    with Backend(answering(plain(b"ok"))) as onprem:
        config = setup(tmp_path, onprem.url, [recorded(n, gap_s=0.1) for n in range(300)])
        process = subprocess.Popen(command(config), cwd=ROOT, stdout=subprocess.PIPE, text=True)
        onprem.wait_requests(5)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    found = stored(config)
    assert f"stored {len(found)}" in output
    assert 5 <= len(found) < 300
    reader = Reader.open(f"sqlite:///{tmp_path}/crossfade.db", tmp_path / "bodies")
    account = reader.accounts()["classify~run-1"]
    reader.close()
    assert account.balanced
    assert (account.recorded, account.in_flight) == (len(found), 0)


def test_ctrl_c_does_not_wait_for_a_place_under_way(tmp_path: Path) -> None:
    with Backend(silent) as onprem:
        config = setup(tmp_path, onprem.url, [recorded(n) for n in range(4)])
        process = subprocess.Popen(
            [*command(config), "--speed", "max", "--concurrency", "1"], cwd=ROOT, stdout=subprocess.DEVNULL
        )
        assert onprem.wait_requests(1)
        time.sleep(0.5)  # until the second waits for the first one's place
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert time.monotonic() - began < 15, "five seconds for what is under way, not twenty until it times out"


@given(
    st.lists(st.floats(0, 100), min_size=1, max_size=20),
    st.sampled_from([Speed(factor=1.0), Speed(factor=10.0), Speed(rate_per_s=50.0), Speed()]),
)
def test_times_never_go_back_and_gaps_are_scaled(gaps: list[float], speed: Speed) -> None:
    schedule, at, due = Schedule(speed), BEGIN, []
    for gap_s in gaps:
        at += timedelta(seconds=gap_s)
        due.append(schedule.due_s(at))
    assert due[0] == 0
    assert due == sorted(due)
    if speed.factor is not None:
        assert due[-1] == pytest.approx(sum(gaps[1:]) / speed.factor, abs=1e-4)
    if speed.rate_per_s is not None:
        assert due[-1] == pytest.approx((len(gaps) - 1) / speed.rate_per_s)
    schedule.again()
    assert schedule.due_s(BEGIN) >= due[-1]


def test_speeds_are_read_as_people_write_them() -> None:
    assert parse_speed("2.5x") == Speed(factor=2.5)
    assert parse_speed("50/s") == parse_speed("50") == Speed(rate_per_s=50)
    assert parse_speed("max") == Speed()
