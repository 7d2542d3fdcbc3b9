"""Nothing that came in may vanish: the gateway's own count against the mirror's, with the real mirror and store."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.app import stock_transport
from shadow.exchange import SkipReason
from shadow.rule import MirrorLimits, ShadowRule
from shadow.sampling import BURST
from shadow.store.reader import Reader
from tests.fakes.backend import Backend, Peer, Script, plain
from tests.fakes.shadow_server import refusing
from tests.gateway.client import Answer, Client, encode
from tests.gateway.harness import METHODS, WAIT_S, Running, applied, one_route, running, stored, with_route


def settled(gateway: Running, received: int) -> Any:
    """Wait until so many were received and none is under way; the account balances at every look before."""

    def done(status: Any) -> bool:
        account = status["routes"]["all"]["account"]
        assert account["balanced"], account
        return bool(account["received"] == received and account["in_flight"] == 0)

    return gateway.wait_status(done)["routes"]["all"]["account"]


def test_received_is_recorded_plus_skipped(cloud: Backend, onprem: Backend, tmp_path: Path) -> None:
    rule = ShadowRule(percent=100, methods=frozenset({"GET", "POST"}), max_body_bytes=10)
    settings = stored(one_route(cloud.url, onprem.url, shadow=rule), tmp_path)
    with running(settings, mirror=True) as gateway:
        for method, body in [("GET", None), ("POST", b"small"), ("POST", b"much too large"), ("DELETE", None)]:
            assert gateway.request(method, "/", body=body).body == b"cloud"
        account = settled(gateway, 4)
        metrics = gateway.request("GET", "/-/metrics").body
        assert gateway.status()["mirror"]["budget_used_bytes"] == 0
    assert account["recorded"] == 2
    assert account["skipped"] == {SkipReason.BODY_TOO_LARGE: 1, SkipReason.METHOD_NOT_ALLOWED: 1}
    assert [request.body for request in onprem.requests if request.body] == [b"small"]
    assert b'crossfade_recorded_total{route="all"} 2.0' in metrics
    assert b'crossfade_skipped_total{reason="body_too_large",route="all"} 1.0' in metrics


def test_a_route_that_a_reload_removes_keeps_its_account(cloud: Backend, onprem: Backend, tmp_path: Path) -> None:
    settings = stored(one_route(cloud.url, onprem.url, shadow=ShadowRule(percent=0)), tmp_path)
    other = replace(settings.routes[0], name="other", path="/other")
    with running(replace(settings, routes=(other, *settings.routes)), mirror=True) as gateway:
        for target in ("/other", "/"):
            assert gateway.request("GET", target).body == b"cloud"
        gateway.source.replace(settings)
        gateway.wait_status(applied(1))
    assert settings.store_url is not None
    with running(settings, mirror=True) as gateway:  # settles what the first one may have left behind
        gateway.request("GET", "/")
    account = Reader.open(settings.store_url, tmp_path / "bodies").accounts()["other"]
    assert (account.received, account.in_flight, account.skipped) == (1, 0, {SkipReason.NOT_SAMPLED: 1})


@pytest.mark.usefixtures("each_parser")
def test_what_was_refused_before_it_had_a_route_is_on_the_page(cloud: Backend, onprem: Backend, tmp_path: Path) -> None:
    settings = stored(one_route(cloud.url, onprem.url, path="/v1/*"), tmp_path)
    with running(settings, mirror=True) as gateway:
        assert gateway.request("GET", "/nowhere").status == 404
        assert gateway.request("PATCH", "/v1/x").status == 405
        for broken in (b"GET / HTTP/1.1\r\nbad field\r\n\r\n", b"GET /v1/x HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"):
            assert gateway.send(broken).status == 400
        assert gateway.request("GET", "/v1/x").body == b"cloud"
        status = gateway.status()
        metrics = gateway.request("GET", "/-/metrics").body
    assert status["refused"] == {"route_not_found": 1, "method_not_allowed": 1, "bad_request": 2}
    assert b'crossfade_refused_total{code="bad_request",route=""} 2.0' in metrics
    assert (status["routes"]["all"]["account"]["received"], status["routes"]["all"]["account"]["refused"]) == (1, {})


def test_a_slate_that_cannot_be_written_is_a_warning_at_the_start_and_nothing_else(
    cloud: Backend, onprem: Backend, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    settings = stored(one_route(cloud.url, onprem.url), tmp_path)
    with running(replace(settings, mirror=MirrorLimits(slate_dir=str(tmp_path / "file"))), mirror=True) as gateway:
        assert gateway.request("GET", "/").body == b"cloud"
        assert settled(gateway, 1)["recorded"] == 1
    (warning,) = [record.getMessage() for record in caplog.records if "slate_dir" in record.getMessage()]
    assert "File exists" in warning
    assert "if this process is killed" in warning


def test_a_request_under_way_is_in_flight(onprem: Backend, tmp_path: Path) -> None:
    go_on = threading.Event()

    def script(peer: Peer) -> None:
        while peer.read_request() is not None:
            go_on.wait(30)
            peer.send(plain())

    with Backend(script) as cloud, running(stored(one_route(cloud.url, onprem.url), tmp_path), mirror=True) as gateway:
        with gateway.client() as client:
            client.send(encode("GET", "/"))
            assert cloud.wait_requests(1)
            account = gateway.status()["routes"]["all"]["account"]
            assert (account["received"], account["in_flight"], account["balanced"]) == (1, 1, True)
            go_on.set()
            client.read()
        assert settled(gateway, 1)["recorded"] == 1


def test_a_body_is_not_kept_while_the_shadow_refuses_and_is_counted_all_the_same(tmp_path: Path) -> None:
    go_on = threading.Event()

    def script(peer: Peer) -> None:
        while peer.read_request() is not None:
            go_on.wait(30)
            peer.send(plain())

    rule = ShadowRule(percent=100, methods=METHODS)
    limits = MirrorLimits(breaker_failures=1, breaker_reset_s=1000.0)
    with Backend(script) as cloud, refusing() as nobody:
        settings = replace(stored(one_route(cloud.url, nobody, shadow=rule), tmp_path), mirror=limits)
        with running(settings, mirror=True) as gateway, gateway.client() as client:

            def held_bytes(expected: int) -> int:
                client.send(encode("POST", "/", body=bytes(100_000)))
                assert cloud.wait_requests(expected)
                return int(gateway.status()["mirror"]["budget_used_bytes"])

            assert held_bytes(1) == 100_000
            go_on.set()
            client.read()
            assert settled(gateway, 1)["recorded"] == 1, "with its failure, which opens the breaker"
            go_on.clear()
            assert held_bytes(2) == 0
            go_on.set()
            client.read()
            assert settled(gateway, 2)["skipped"] == {SkipReason.BREAKER_OPEN: 1}


def test_a_client_that_left_is_skipped_or_recorded_and_never_forgotten(onprem: Backend, tmp_path: Path) -> None:
    heads = threading.Semaphore(0)

    def script(peer: Peer) -> None:
        peer.read_head()
        heads.release()
        peer.wait_closed()

    with (
        Backend(script) as cloud,
        running(stored(one_route(cloud.url, onprem.url), tmp_path), mirror=True) as gateway,
        gateway.client() as in_the_middle,
        gateway.client() as after_all_was_sent,
    ):
        in_the_middle.send(encode("POST", "/", [(b"Content-Length", b"9")]) + b"part")
        assert heads.acquire(timeout=WAIT_S)
        in_the_middle.reset()
        assert cloud.wait_for(lambda: cloud.open_connections == 0)
        after_all_was_sent.send(encode("POST", "/", body=b"x"))
        assert heads.acquire(timeout=WAIT_S)
        after_all_was_sent.reset()
        account = settled(gateway, 2)
    assert account["skipped"] == {SkipReason.CLIENT_GONE: 1}
    assert account["recorded"] == 1, "the request was whole: its pair is kept"
    assert [request.body for request in onprem.requests] == [b"x"]


def test_what_the_candidate_served_is_not_compared_with_itself(cloud: Backend, onprem: Backend, tmp_path: Path) -> None:
    settings = stored(one_route(cloud.url, onprem.url, active={"onprem": 100}), tmp_path)
    with running(settings, mirror=True) as gateway:
        assert gateway.request("GET", "/").body == b"onprem"
        assert settled(gateway, 1)["skipped"] == {SkipReason.SERVED_BY_CANDIDATE: 1}
    assert cloud.requests == []


def test_a_full_byte_budget_costs_the_copy_and_not_the_request(cloud: Backend, onprem: Backend, tmp_path: Path) -> None:
    settings = replace(one_route(cloud.url, onprem.url), mirror=MirrorLimits(byte_budget_bytes=1000))
    with running(stored(settings, tmp_path), mirror=True) as gateway:
        assert gateway.request("POST", "/", body=b"x" * 2000).body == b"cloud"
        assert gateway.request("POST", "/", body=b"x" * 500).body == b"cloud"
        account = settled(gateway, 2)
        assert gateway.status()["mirror"]["budget_used_bytes"] == 0
    assert account["skipped"] == {SkipReason.BUDGET_FULL: 1}
    assert cloud.requests[0].body == b"x" * 2000


@pytest.mark.parametrize("data", [encode("GET", "/a?b"), encode("POST", "/x", [(b"X-A", b"1")], b"hello")])
def test_the_client_sees_the_same_with_mirroring_on_and_off(
    cloud: Backend, onprem: Backend, tmp_path: Path, data: bytes
) -> None:
    def seen(answer: Answer) -> tuple[object, ...]:
        varying = (b"x-request-id", b"date")
        return answer.status, [field for field in answer.fields if field[0] not in varying], answer.body

    on = stored(one_route(cloud.url, onprem.url, shadow=ShadowRule(percent=100, methods=METHODS)), tmp_path)
    off = with_route(on, shadow=ShadowRule(percent=0))
    with running(on, mirror=True) as gateway:
        with_mirror = seen(gateway.send(data))
        settled(gateway, 1)
    with running(off, mirror=True, transport_factory=stock_transport) as gateway:
        without = seen(gateway.send(data))
        assert settled(gateway, 1)["skipped"] == {SkipReason.NOT_SAMPLED: 1}
    assert with_mirror == without
    assert len(onprem.requests) == 1
    strip = (b"x-request-id",)
    first, second = ([f for f in request.fields if f[0] not in strip] for request in cloud.requests)
    assert first == second


def test_a_defect_in_a_transport_is_a_500_that_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            raise LookupError("an inner secret")

    with running(one_route("http://backend.test"), transport_factory=Broken) as gateway:
        answer = gateway.request("GET", "/")
        exchange = gateway.taps.wait()[0]
        metrics = gateway.request("GET", "/-/metrics").body
    assert (answer.status, answer.code) == (500, "internal_error")
    assert b"secret" not in answer.body
    assert exchange.skipped is SkipReason.LOST
    assert b"crossfade_internal_errors_total 1.0" in metrics
    assert any(exchange.id in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("side", ["upload", "download"])
def test_a_slow_client_does_not_make_the_backend_slow(side: str) -> None:
    """What a client takes to send or to read belongs to no backend: the shadow's latency has no such part."""
    clock = Ticking()
    big = b"x" * 40_000_000

    half = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_head()
        peer.read_some()
        half.set()
        peer.read_some()
        peer.send(plain(big if side == "download" else b"ok"))

    with (
        Backend(script) as cloud,
        running(one_route(cloud.url), clock=clock.read) as gateway,
        gateway.client() as client,
    ):
        client.send(encode("POST", "/", [(b"Content-Length", b"2")]) + b"a")
        assert half.wait(30)  # the gateway waits for its client, and no longer for a connection
        if side == "upload":
            clock.advance(30.0)
        client.send(b"b")
        if side == "download":
            client.read_head()
            wait_until_full(client)
            clock.advance(30.0)
            assert len(client.read_up_to(len(big))) == len(big)
        else:
            client.read()
        (exchange,) = gateway.taps.wait()
    assert exchange.primary.total_s is not None
    assert exchange.primary.total_s < 5


def wait_until_full(client: Client) -> None:
    """Wait until the kernel takes no more for this client: then the gateway waits for it to read."""
    looks = [-1]
    while len(set(looks[-5:])) > 1 or looks[-1] <= 0:
        looks.append(client.unread_bytes())
        time.sleep(0.1)  # the kernel tells of no such event


class Ticking:
    """A monotonic clock that a test can push ahead."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def read(self) -> float:
        return time.monotonic() + self._ahead_s

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds


def test_a_users_requests_are_mirrored_together_and_a_reload_changes_how_many(
    cloud: Backend, onprem: Backend, tmp_path: Path
) -> None:
    rule = ShadowRule(percent=50, sample_by="x-user")
    settings = stored(one_route(cloud.url, onprem.url, shadow=rule), tmp_path)

    def send_all(gateway: Running) -> None:
        with gateway.client() as client:
            for n in range(60):
                assert client.request("GET", "/", [(b"X-User", b"user-%d" % (n % 20))]).status == 200

    with running(settings, mirror=True) as gateway:
        send_all(gateway)
        half = settled(gateway, 60)
        by_user = Counter(request.values(b"x-user")[0] for request in onprem.requests)
        gateway.source.replace(with_route(settings, shadow=replace(rule, percent=100)))
        gateway.wait_status(applied(1))
        send_all(gateway)
        whole = settled(gateway, 120)
        gateway.source.replace(with_route(settings, shadow=replace(rule, percent=100, rate_per_s=0.001)))
        gateway.wait_status(applied(2))
        send_all(gateway)
        limited = settled(gateway, 180)
    assert 0 < half["recorded"] < 60
    assert set(by_user.values()) == {3}, "of each user all three or none"
    assert whole["recorded"] - half["recorded"] == 60
    assert limited["recorded"] - whole["recorded"] <= BURST
    assert limited["skipped"] == {SkipReason.NOT_SAMPLED: 180 - limited["recorded"]}


class Unhurried:
    """Sends pieces of a body, each when the gateway's memory has room for it: no disk is too slow for that."""

    PIECE_BYTES = 8 * 1024 * 1024
    SPARE_BYTES = 20 * 1024 * 1024
    """Half of the budget: what is above goes to the disk."""

    def __init__(self) -> None:
        self.gateway: Running | None = None

    def send(self, peer: Client | Peer, data: bytes) -> None:
        assert self.gateway is not None
        for at in range(0, len(data), self.PIECE_BYTES):
            peer.send(data[at : at + self.PIECE_BYTES])
            self.gateway.wait_status(lambda status: status["mirror"]["budget_used_bytes"] <= self.SPARE_BYTES)

    def answering(self, answer: bytes) -> Script:
        def script(peer: Peer) -> None:
            while peer.read_request() is not None:
                self.send(peer, answer)

        return script


def test_pictures_of_48_mib_are_mirrored_whole_with_a_memory_budget_below_them(tmp_path: Path) -> None:
    """Question and answers are larger than the budget of memory, because all of them wait on the disk."""
    big = os.urandom(48 * 1024 * 1024)
    pace = Unhurried()
    with Backend(pace.answering(plain(big))) as cloud, Backend(pace.answering(plain(big[::-1]))) as shadow:
        rule = ShadowRule(percent=100, methods=METHODS, max_body_bytes=64 * 1024 * 1024)
        settings = one_route(cloud.url, shadow.url, shadow=rule, max_body_bytes=64 * 1024 * 1024)
        limits = MirrorLimits(byte_budget_bytes=40 * 1024 * 1024, spool_dir=str(tmp_path))
        with running(replace(stored(settings, tmp_path), mirror=limits), mirror=True) as gateway:
            pace.gateway = gateway
            with gateway.client() as client:
                pace.send(client, encode("POST", "/", body=big))
                assert client.read().body == big
            account = settled(gateway, 1)
            gateway.wait_status(lambda status: status["mirror"]["budget_used_bytes"] == 0)
        assert account["recorded"] == 1, account
        assert shadow.requests[0].body == big
    reader = Reader.open(f"sqlite:///{tmp_path}/crossfade.db", tmp_path / "bodies")
    (exchange,) = reader.exchanges()
    assert exchange.shadow is not None
    assert exchange.shadow.body is not None
    assert reader.load(exchange.request.body) == big
    assert reader.load(exchange.shadow.body) == big[::-1]
    reader.close()
