"""Several servers of a backend, and the other backend in its place, over real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.settings import HealthCheck, ServerRules, Settings
from shadow.exchange import FailureKind, SkipReason
from shadow.rule import ShadowRule
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.client import encode
from tests.gateway.harness import METHODS, Running, one_route, running, stored, with_backend
from tests.gateway.test_account import settled

OVERLOADED = plain(b"later", status=b"503 Service Unavailable", fields=b"Retry-After: 7\r\n")


@contextmanager
def backends(count: int, answer: bytes | None = None) -> Iterator[list[Backend]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Backend(answering(answer or plain(b"%d" % number)))) for number in range(count)]


def with_servers(settings: Settings, *urls: str, **rules: Any) -> Settings:
    return with_backend(settings, "cloud", servers=urls, rules=ServerRules(**rules))


@pytest.fixture
def dead_url() -> Iterator[str]:
    """An address that refuses connections, held so that nobody else gets it."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def server_states(gateway: Running, backend: str = "cloud") -> dict[str, str]:
    return {name: server["state"] for name, server in gateway.status()["backends"][backend].items()}


def calls_open(status: Any) -> list[int]:
    return [one["outstanding"] for one in status["backends"]["cloud"].values()]


def states_are(*states: str) -> Callable[[Any], bool]:
    return lambda status: sorted(one["state"] for one in status["backends"]["cloud"].values()) == sorted(states)


def test_servers_are_used_evenly() -> None:
    with backends(3) as servers:
        settings = with_servers(one_route(servers[0].url), *(server.url for server in servers))
        with running(settings) as gateway, gateway.client() as client:
            for _ in range(90):
                assert client.request("GET", "/").status == 200
        assert min(len(server.requests) for server in servers) >= 20


def test_a_busy_server_gets_no_more_while_another_is_free() -> None:
    go_on = threading.Event()

    def slow(peer: Peer) -> None:
        while peer.read_request() is not None:
            go_on.wait(30)
            peer.send(plain(b"slow"))

    with (
        Backend(slow) as busy,
        Backend(answering(plain(b"fast"))) as free,
        running(with_servers(one_route(free.url), busy.url, free.url)) as gateway,
    ):
        waiting = [gateway.client() for _ in range(2)]
        for client in waiting:  # at the latest the second one meets the slow server
            client.send(encode("GET", "/"))
        assert busy.wait_requests(1)
        gateway.wait_status(lambda status: sorted(calls_open(status)) == [0, 1])
        assert [gateway.request("GET", "/").body for _ in range(20)] == [b"fast"] * 20
        go_on.set()
        for client in waiting:
            assert client.read().status == 200
            client.close()


@pytest.mark.parametrize(("method", "body"), [("GET", None), ("POST", b"an upload"), ("DELETE", None)])
def test_a_refused_connection_goes_to_another_server(dead_url: str, method: str, body: bytes | None) -> None:
    with Backend(answering(plain())) as alive:
        settings = with_servers(one_route(alive.url), dead_url, alive.url, eject_after=100, breaker_failures=100)
        with running(settings) as gateway:
            for _ in range(20):
                assert gateway.request(method, "/", body=body).status == 200
            metrics = gateway.request("GET", "/-/metrics").body
            exchanges = gateway.taps.wait(20)
        assert [request.body for request in alive.requests] == [body or b""] * 20
        assert {exchange.primary.server for exchange in exchanges} == {alive.url}
    tries = int(metrics.split(b'crossfade_retries_total{backend="cloud"} ')[1].split(b".")[0])
    assert 1 <= tries <= 20


def test_a_streamed_upload_goes_to_another_server_whole(dead_url: str) -> None:
    with Backend(answering(plain())) as alive:
        settings = with_servers(one_route(alive.url), dead_url, alive.url, eject_after=100, breaker_failures=100)
        with running(settings) as gateway, gateway.client() as client:
            for _ in range(6):
                client.send(encode("POST", "/", [(b"Transfer-Encoding", b"chunked")]))
                for _ in range(20):
                    client.send(b"2710\r\n" + b"x" * 10_000 + b"\r\n")
                client.send(b"0\r\n\r\n")
                assert client.read("POST").status == 200
        assert [len(request.body) for request in alive.requests] == [200_000] * 6


def test_a_post_that_may_have_been_executed_goes_nowhere_else() -> None:
    def breaks(peer: Peer) -> None:
        peer.read_request()

    with Backend(breaks) as first, Backend(breaks) as second, Backend(answering(plain(b"other"))) as other:
        settings = with_servers(one_route(first.url, other.url, fallback=True), first.url, second.url)
        with running(settings) as gateway:
            answer = gateway.request("POST", "/", body=b"once")
            assert answer.status == 502
            assert len(first.requests) + len(second.requests) == 1
            assert other.requests == []


def test_a_server_that_fails_is_ejected_and_the_last_one_is_not() -> None:
    broken = plain(b"", status=b"502 Bad Gateway")
    with Backend(answering(broken)) as bad, Backend(answering(plain())) as good:
        settings = with_servers(one_route(good.url), bad.url, good.url, eject_after=3, eject_s=60)
        with running(settings) as gateway:
            statuses = [gateway.request("GET", "/").status for _ in range(40)]
            assert statuses.count(502) == 3
            assert server_states(gateway) == {bad.url: "ejected", good.url: "up"}
            metrics = gateway.request("GET", "/-/metrics").body.decode()
        assert f'crossfade_server_up{{backend="cloud",server="{bad.url}"}} 0.0' in metrics
        assert f'crossfade_server_ejections_total{{backend="cloud",server="{bad.url}"}} 1.0' in metrics
        alone = with_servers(one_route(bad.url), bad.url, eject_after=3, eject_s=60)
        with running(alone) as gateway:
            assert {gateway.request("GET", "/").status for _ in range(20)} == {502}
            assert server_states(gateway) == {bad.url: "up"}


def test_a_server_that_refuses_connections_is_left_alone_and_tried_again(dead_url: str) -> None:
    settings = with_servers(one_route(dead_url), dead_url, breaker_failures=2, breaker_reset_s=60)
    with running(settings) as gateway:
        codes = [gateway.request("POST", "/", body=b"x").code for _ in range(4)]
        assert codes == ["backend_unreachable"] * 2 + ["backend_unavailable"] * 2
        answer = gateway.request("GET", "/")
        assert (answer.status, answer.values(b"retry-after")) == (503, [b"1"])
        exchanges = gateway.taps.wait(5)
        assert [exchange.skipped for exchange in exchanges][2:] == [SkipReason.BREAKER_OPEN] * 3
        assert server_states(gateway) == {dead_url: "broken"}
    settings = with_servers(one_route(dead_url), dead_url, breaker_failures=1, breaker_reset_s=0)
    with running(settings) as gateway:
        assert gateway.request("GET", "/").code == "backend_unreachable"
        assert server_states(gateway) == {dead_url: "broken"}
        with Backend(answering(plain(b"back"))) as back:
            moved = with_servers(settings, dead_url, back.url, breaker_failures=1, breaker_reset_s=0)
            gateway.source.replace(moved)
            gateway.wait_status(states_are("broken", "up"))
            assert gateway.request("GET", "/").body == b"back"


def test_checks_take_a_server_out_and_bring_it_back() -> None:
    healthy = threading.Event()

    def script(peer: Peer) -> None:
        while (request := peer.read_request()) is not None:
            sick = request.target == b"/health" and not healthy.is_set()
            peer.send(plain(b"", status=b"500 Sick") if sick else plain(b"served"))

    check = HealthCheck("/health", interval_s=0.02, up_after=2, down_after=2)
    with (
        Backend(script) as sick,
        Backend(answering(plain(b"well"))) as well,
        running(with_servers(one_route(well.url), sick.url, well.url, check=check)) as gateway,
    ):
        gateway.wait_status(states_are("down", "up"))
        assert {gateway.request("GET", "/").body for _ in range(10)} == {b"well"}
        healthy.set()
        gateway.wait_status(states_are("up", "up"))
        assert {gateway.request("GET", "/").body for _ in range(10)} == {b"well", b"served"}
        gateway.source.replace(with_servers(one_route(well.url), well.url, check=check))
        gateway.wait_status(states_are("up"))
        asked = len(sick.requests)
        gateway.wait_status(lambda status: True)
        assert len(sick.requests) - asked <= 1, "a server that is gone from the settings is checked no more"
        assert len(gateway.taps.wait(20)) == 20, "checks are no requests"


def test_with_every_server_down_by_its_checks_they_are_tried_all_the_same() -> None:
    def script(peer: Peer) -> None:
        while (request := peer.read_request()) is not None:
            peer.send(plain(b"", status=b"404 No") if request.target == b"/typo" else plain())

    check = HealthCheck("/typo", interval_s=0.02, down_after=1)
    with Backend(script) as only, running(with_servers(one_route(only.url), only.url, check=check)) as gateway:
        gateway.wait_status(states_are("down"))
        assert gateway.request("GET", "/").status == 200


@pytest.mark.parametrize("fallback", [True, False])
@pytest.mark.parametrize("body", [None, b"an upload"])
def test_the_other_backend_answers_what_the_first_refuses(dead_url: str, fallback: bool, body: bytes | None) -> None:
    with Backend(answering(plain(b"onprem"))) as onprem:
        url = onprem.url
        with running(one_route(dead_url, url, fallback=fallback)) as gateway:
            answer = gateway.request("POST", "/", body=body or b"")
            exchange = gateway.taps.wait()[0]
            metrics = gateway.request("GET", "/-/metrics").body
    if not fallback:
        assert (answer.code, exchange.skipped, onprem.requests) == ("backend_unreachable", None, [])
        return
    assert (answer.status, answer.body, answer.values(b"x-crossfade-fallback")) == (200, b"onprem", [b"1"])
    assert onprem.requests[0].body == (body or b"")
    assert (exchange.skipped, exchange.primary.backend, exchange.primary.server) == (
        SkipReason.FELL_BACK, "onprem", url,
    )  # fmt: skip
    assert b'crossfade_fallbacks_total{backend="onprem",route="all"} 1.0' in metrics


@pytest.mark.parametrize("chunked", [True, False])
def test_the_other_backend_gets_the_whole_body_when_the_first_is_overloaded(chunked: bool) -> None:
    body = b"y" * 300_000
    framed = (b"%x\r\n" % 300_000) + body + b"\r\n0\r\n\r\n"
    with (
        Backend(answering(OVERLOADED)) as cloud,
        Backend(answering(plain(b"onprem"))) as onprem,
        running(one_route(cloud.url, onprem.url, fallback=True)) as gateway,
        gateway.client() as client,
    ):
        for _ in range(3):
            if chunked:
                client.send(encode("POST", "/", [(b"Transfer-Encoding", b"chunked")]) + framed)
            else:
                client.send(encode("POST", "/", body=body))
            assert client.read("POST").body == b"onprem"
    assert [request.body for request in onprem.requests] == [body] * 3
    assert [request.body for request in cloud.requests] == [body] * 3


def test_a_body_that_could_not_be_kept_does_not_fall_back() -> None:
    with Backend(answering(OVERLOADED)) as cloud, Backend(answering(plain(b"onprem"))) as onprem:
        settings = replace(one_route(cloud.url, onprem.url, fallback=True), replay_budget_bytes=1000)
        with running(settings) as gateway:
            answer = gateway.request("POST", "/", body=b"y" * 1001)
            assert (answer.status, answer.body, answer.values(b"retry-after")) == (503, b"later", [b"7"])
            for _ in range(5):  # what was kept is given back each time
                assert gateway.request("POST", "/", body=b"y" * 1000).body == b"onprem"
            skips = [exchange.skipped for exchange in gateway.taps.wait(6)]
    assert skips == [None] + [SkipReason.FELL_BACK] * 5


def test_an_overload_without_retry_after_and_one_at_both_is_passed_on() -> None:
    bare = plain(b"", status=b"503 Service Unavailable")
    with Backend(answering(bare)) as cloud, Backend(answering(plain(b"onprem"))) as onprem:
        with running(one_route(cloud.url, onprem.url, fallback=True)) as gateway:
            assert gateway.request("GET", "/").status == 503
        assert onprem.requests == []
    with Backend(answering(OVERLOADED)) as cloud, Backend(answering(OVERLOADED)) as onprem:
        with running(one_route(cloud.url, onprem.url, fallback=True)) as gateway:
            answer = gateway.request("GET", "/")
            assert (answer.status, answer.values(b"retry-after")) == (503, [b"7"])
        assert (len(cloud.requests), len(onprem.requests)) == (1, 1)


def test_with_nobody_left_the_failure_is_the_last_ones(dead_url: str) -> None:
    with running(one_route(dead_url, dead_url, fallback=True)) as gateway:
        assert gateway.request("GET", "/").code == "backend_unreachable"
        primary = gateway.taps.wait()[0].primary
    assert primary.failure is not None
    assert primary.failure.kind is FailureKind.CONNECT


def test_a_fallback_is_in_the_account_and_nobody_is_compared_with_itself(dead_url: str, tmp_path: Path) -> None:
    rule = ShadowRule(percent=100, methods=METHODS, both_ways=True)
    with Backend(answering(plain(b"onprem"))) as onprem:
        settings = stored(one_route(dead_url, onprem.url, fallback=True, shadow=rule), tmp_path)
        with running(settings, mirror=True) as gateway:
            for _ in range(8):  # also after the breaker has opened, when the first backend is not even asked
                assert gateway.request("GET", "/").body == b"onprem"
            account = settled(gateway, 8)
        assert account["skipped"] == {SkipReason.FELL_BACK: 8}
        assert len(onprem.requests) == 8
