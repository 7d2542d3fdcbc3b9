"""The promises of ARCHITECTURE.md that need the whole: a real gateway process, its config file, real backends."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from crossfade.config.toggle import write_toggle
from shadow.account import RouteAccount
from shadow.exchange import SkipReason
from shadow.store.reader import Reader
from tests.e2e.gateway_process import gateway_process, write_config
from tests.fakes.backend import Backend, Peer, answering, plain

SIZES = [0, 1, 65_535, 65_536, 65_537, 5 * 1024 * 1024, 20 * 1024 * 1024]


def sleeping(release: threading.Event) -> Callable[[Peer], None]:
    """Return a script that reads each request and answers only once ``release`` is set."""

    def script(peer: Peer) -> None:
        while peer.read_request() is not None:
            release.wait(30)
            peer.send(plain())

    return script


@contextmanager
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as opened:
        yield opened


def test_m01_a_slow_shadow_does_not_delay_the_next_request_on_the_connection(tmp_path: Path) -> None:
    release = threading.Event()
    with Backend(answering(plain(b"cloud"))) as cloud, Backend(sleeping(release)) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url, shadow_timeout_s=30)
        with gateway_process(config, port) as gateway, client(gateway.url) as http:
            http.post("/", content=b"warm")
            for _ in range(5):
                assert http.post("/", content=b"x" * 100_000).content == b"cloud"
            with ThreadPoolExecutor(20) as many:
                answers = list(many.map(lambda _: http.post("/", content=b"y"), range(20)))
            assert {answer.content for answer in answers} == {b"cloud"}
            account = gateway.account()
            assert (account["received"], account["recorded"]) == (26, 0), "the shadow has answered nothing yet"
            release.set()
            assert gateway.wait_drained(26)["recorded"] == 26


def test_m02_the_shadow_gets_the_very_same_body_at_every_size(tmp_path: Path) -> None:
    bodies = [os.urandom(size) for size in SIZES]
    with Backend(answering(plain())) as cloud, Backend(answering(plain())) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url, shadow_timeout_s=20)
        with gateway_process(config, port) as gateway, client(gateway.url) as http:
            for body in bodies:
                assert http.post("/declared", content=body).status_code == 200
                assert http.post("/chunked", content=iter([body[:10], body[10:]])).status_code == 200
            assert gateway.wait_drained(2 * len(bodies))["recorded"] == 2 * len(bodies)
    sent = sorted([hashlib.sha256(body).digest() for body in bodies] * 2)
    for backend in (cloud, onprem):
        assert sorted(hashlib.sha256(request.body).digest() for request in backend.requests) == sent


def test_m06_the_two_legs_share_no_headers(tmp_path: Path) -> None:
    with (
        Backend(answering(plain())) as cloud,
        Backend(answering(plain())) as onprem,
        gateway_process(*write_config(tmp_path, cloud.url, onprem.url)) as gateway,
    ):
        authority = onprem.url.removeprefix("http://").encode()
        with client(gateway.url) as http, ThreadPoolExecutor(20) as many:
            list(many.map(lambda number: http.get(f"/{number}", headers={"Cookie": "a=1"}), range(200)))
        assert gateway.wait_drained(200)["recorded"] == 200
    assert len(cloud.requests) == len(onprem.requests) == 200
    assert all(request.values(b"authorization") == [b"Bearer k3y"] for request in cloud.requests)
    assert all(request.values(b"cookie") == [b"a=1"] for request in cloud.requests)
    assert not any(request.values(b"x-crossfade-shadow") for request in cloud.requests)
    assert all(request.values(b"x-crossfade-shadow") == [b"1"] for request in onprem.requests)
    assert all(request.values(b"host") == [authority] for request in onprem.requests)


def test_a_copy_is_never_mirrored_again(tmp_path: Path) -> None:
    """Two gateways that mirror to each other, or one to itself, would else never stop."""
    with Backend(answering(plain())) as cloud:
        config, port = write_config(tmp_path, cloud.url, "http://127.0.0.1:1")
        config.write_text(config.read_text().replace("http://127.0.0.1:1", f"http://127.0.0.1:{port}"))
        with gateway_process(config, port) as gateway, client(gateway.url) as http:
            http.get("/")
            account = gateway.wait_drained(2)
    assert account["recorded"] == 1
    assert account["skipped"] == {SkipReason.IS_A_COPY: 1}
    assert len(cloud.requests) == 2


def test_m12_secrets_reach_neither_the_shadow_nor_the_store(tmp_path: Path) -> None:
    secrets = {"Authorization": "Bearer client", "Cookie": "session=1", "X-Api-Key": "key-1"}
    with (
        Backend(answering(plain())) as cloud,
        Backend(answering(plain())) as onprem,
        gateway_process(*write_config(tmp_path, cloud.url, onprem.url)) as gateway,
        client(gateway.url) as http,
    ):
        http.post("/", content=b"x", headers=secrets)
        http.delete("/", headers=secrets)
        account = gateway.wait_drained(2)
    assert account["skipped"] == {SkipReason.METHOD_NOT_ALLOWED: 1}
    (copy,) = onprem.requests
    assert not any(copy.values(name.lower().encode()) for name in secrets)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("crossfade.db*"))
    assert not [value for value in (b"Bearer client", b"session=1", b"key-1", b"k3y") if value in stored]


def test_p23_the_toggle_moves_new_requests_and_leaves_those_under_way(tmp_path: Path) -> None:
    release = threading.Event()
    with Backend(sleeping(release)) as cloud, Backend(answering(plain(b"onprem"))) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        with gateway_process(config, port) as gateway, ThreadPoolExecutor(1) as background, client(gateway.url) as http:
            under_way = background.submit(httpx.post, gateway.url, content=b"old", trust_env=False, timeout=30)
            assert cloud.wait_requests(1)
            write_toggle(config, "all", ["onprem"], who="test", now=datetime.now(UTC))
            wait_applied(gateway.status, {"onprem": 100})
            assert http.post("/", content=b"new").content == b"onprem"
            good = config.read_text()
            for bad in ("", "routes: [", good.replace("baseline: cloud", "baseline: clod"), good[: len(good) // 2]):
                config.write_text(bad)
                rejected = wait_rejected(gateway.status)
                assert rejected
                assert http.post("/", content=b"still").content == b"onprem"
            config.write_text(good.replace("active: onprem", "active: cloud"))
            wait_applied(gateway.status, {"cloud": 100})
            release.set()
            assert under_way.result().content == b"ok"
            assert http.get("/").content == b"ok"


def test_fifty_toggles_under_load_fail_no_request(tmp_path: Path) -> None:
    with Backend(answering(plain(b"cloud"))) as cloud, Backend(answering(plain(b"onprem"))) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        with gateway_process(config, port) as gateway, ThreadPoolExecutor(4) as clients:
            stop = threading.Event()
            loads = [clients.submit(load, gateway.url, stop) for _ in range(4)]
            for number in range(50):
                write_toggle(config, "all", [f"onprem={(number * 37) % 101}"], who="test", now=datetime.now(UTC))
                time.sleep(0.02)  # the pace of the toggles is the test's input
            wait_applied(gateway.status, None)
            stop.set()
            answers = [answer for job in loads for answer in job.result()]
    assert {status for status, _ in answers} == {200}
    assert {body for _, body in answers} == {b"cloud", b"onprem"}


def load(url: str, stop: threading.Event) -> list[tuple[int, bytes]]:
    """Send requests of many callers until told to stop; at most 20,000."""
    answers = []
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        for number in range(20_000):
            if stop.is_set():
                break
            answer = http.get("/", headers={"X-Api-Key": str(number)})
            answers.append((answer.status_code, answer.content))
    return answers


def test_what_was_in_flight_when_the_gateway_was_killed_is_counted_as_lost(tmp_path: Path) -> None:
    release = threading.Event()
    with Backend(answering(plain())) as cloud, Backend(sleeping(release)) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url, shadow_timeout_s=20)
        with gateway_process(config, port) as gateway, client(gateway.url) as http:
            for _ in range(7):
                http.post("/", content=b"x")
            wait_for(lambda: saved_in_flight(tmp_path) == 7)
            gateway.kill()
        release.set()
        later = Reader.open(f"sqlite:///{tmp_path}/crossfade.db", tmp_path / "bodies")
        for slate in (tmp_path / "slates").glob("*.slate"):
            slate.unlink()  # as when the whole machine went down: the store alone tells, once the run is silent
        wait_for(lambda: later.accounts()["all"].skipped.get(SkipReason.LOST) == 7)
        assert later.accounts()["all"].balanced
        later.close()


def saved_in_flight(folder: Path) -> int:
    """Read how many are in flight from the accounts that the gateway keeps in the store."""
    reader = Reader.open(f"sqlite:///{folder}/crossfade.db", folder / "bodies")
    try:
        account = reader.accounts().get("all")
        return account.in_flight if account else 0
    finally:
        reader.close()


def wait_for(condition: Callable[[], bool], timeout_s: float = 60) -> None:
    """Poll another process's state until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came to it"
        time.sleep(0.05)


def wait_applied(status: Callable[[], dict[str, dict[str, object]]], active: dict[str, int] | None) -> None:
    """Wait until the status shows this split (any when ``None``) and no rejected file."""

    def applied() -> bool:
        seen = status()
        route = seen["routes"]["all"]
        assert isinstance(route, dict)
        return seen["config"]["rejected"] is None and active in (None, route["active"])

    wait_for(applied)


def wait_rejected(status: Callable[[], dict[str, dict[str, object]]]) -> object:
    """Wait until the status shows a rejected file; return why."""
    wait_for(lambda: status()["config"]["rejected"] is not None)
    return status()["config"]["rejected"]


def test_kill_9_under_load_loses_by_count_exactly_what_was_not_stored(tmp_path: Path) -> None:
    """Killed between two savings of its account, the gateway must neither be believed to have lost what it had stored
    nor forget what it had received: the next one shows both at once, on its own page and in the store; so does the one
    after several in a row."""
    sent, answered = list[int](), list[int]()

    def send(url: str) -> None:
        with client(url) as http, suppress(httpx.TransportError):
            while True:
                sent.append(1)
                http.post("/", content=b"x" * 20_000)
                answered.append(1)

    with Backend(answering(plain())) as cloud, Backend(answering(plain())) as onprem:
        config, port = write_config(tmp_path, cloud.url, onprem.url)
        for killed in (1, 3):
            with gateway_process(config, port) as gateway, ThreadPoolExecutor(8) as many:
                enough = gateway.account()["recorded"] + 50
                for _ in range(8):
                    many.submit(send, gateway.url)
                try:
                    gateway.wait_status(partial(has_recorded, enough))
                finally:
                    gateway.kill()  # which ends the senders too
            with gateway_process(config, port) as heir:
                page, total, stored = heir.status(), *read_books(tmp_path)
                shown = page["routes"]["all"]["account"]
                assert total.balanced
                assert (total.recorded, total.in_flight) == (stored, 0)
                assert len(answered) <= len(cloud.requests) <= total.received <= len(sent)
                assert set(total.skipped) <= {SkipReason.LOST, SkipReason.QUEUE_FULL}
                assert page["taken_over"] == killed
                assert shown["balanced"]
                assert f'crossfade_received_total{{route="all"}} {shown["received"]}.0' in heir.get("/-/metrics").text
                assert shown["received"] == total.received
                assert shown["skipped"].get("lost", 0) == total.skipped.get(SkipReason.LOST, 0)
                if killed == 1:
                    heir.kill()  # two in a row: the next one goes on from both
    assert not list((tmp_path / "slates").glob("*.slate")), "each was settled once and removed"


def has_recorded(count: int, status: Any) -> bool:
    return bool(status["routes"]["all"]["account"]["recorded"] >= count)


def read_books(folder: Path) -> tuple[RouteAccount, int]:
    """Return the route's account over all runs, and how many exchanges are stored."""
    reader = Reader.open(f"sqlite:///{folder}/crossfade.db", folder / "bodies")
    try:
        return reader.accounts()["all"], reader.count("all")
    finally:
        reader.close()


@pytest.mark.parametrize("name", ["cloud", "onprem"])
def test_a_backend_that_refuses_is_a_clean_502_or_a_recorded_failure(name: str, tmp_path: Path) -> None:
    with Backend(answering(plain(b"alive"))) as alive:
        dead = "http://127.0.0.1:1"
        urls = (dead, alive.url) if name == "cloud" else (alive.url, dead)
        with gateway_process(*write_config(tmp_path, *urls)) as gateway, client(gateway.url) as http:
            answer = http.post("/", content=b"x")
            account = gateway.wait_drained(1)
    if name == "cloud":
        assert (answer.status_code, answer.json()["code"]) == (502, "backend_unreachable")
    else:
        assert answer.content == b"alive"
    assert account["recorded"] == 1
