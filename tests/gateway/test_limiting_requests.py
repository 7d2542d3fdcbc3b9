"""Limits as a client meets them, over real sockets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.settings import Cors, Limit, Route, Settings
from tests.fakes.backend import Backend, answering, plain
from tests.gateway.client import encode
from tests.gateway.harness import applied, one_route, running, stored, with_limits, with_route

ORIGIN = (b"Origin", b"http://a.test")
PREFLIGHT = [ORIGIN, (b"Access-Control-Request-Method", b"POST")]
EXPOSED = b"Retry-After, RateLimit, RateLimit-Policy, X-Request-Id"


def two_routes(backend: Backend, **changes: object) -> Settings:
    """Return settings with the routes ``light`` at /light and ``heavy`` at /heavy, which costs three."""
    settings = one_route(backend.url)
    (route,) = settings.routes
    light = replace(route, name="light", path="/light")
    heavy = replace(route, name="heavy", path="/heavy", cost=3)
    return replace(settings, routes=(light, heavy), **changes)  # type: ignore[arg-type]


def test_r14_health_and_preflights_pass_and_a_refused_body_stays_unread(backend: Backend) -> None:
    settings = with_limits(one_route(backend.url, methods=frozenset({"POST"})), "1/minute")
    settings = with_route(settings, cors=Cors(("http://a.test",)))
    with running(settings) as gateway:
        assert gateway.request("POST", "/", body=b"x").status == 200
        for page in ("live", "ready", "status", "metrics"):
            assert gateway.request("GET", f"/-/{page}").status == 200
        for _ in range(3):
            assert gateway.request("OPTIONS", "/", PREFLIGHT).status == 200
        assert gateway.request("OPTIONS", "/").code == "method_not_allowed"
        assert gateway.request("OPTIONS", "/", PREFLIGHT[1:]).code == "method_not_allowed"
        assert gateway.request("OPTIONS", "/", PREFLIGHT, b"x").code == "method_not_allowed"
        with gateway.client() as client:
            client.send(encode("POST", "/", [ORIGIN, (b"Content-Length", b"%d" % (5 * 1024 * 1024))]))
            answer = client.read("POST")
            assert answer.code == "rate_limited"
            assert int(answer.values(b"retry-after")[0]) >= 1
            assert answer.values(b"access-control-allow-origin") == [b"http://a.test"]
            assert answer.values(b"access-control-expose-headers") == [EXPOSED]
            assert answer.values(b"vary") == [b"Origin"]
            assert answer.values(b"connection") == [b"close"]
            assert client.at_end()
        assert [request.line.split()[0] for request in backend.requests] == [b"POST", *[b"OPTIONS"] * 3]
        assert gateway.status()["routes"]["all"]["account"]["received"] == 4
        metrics = gateway.request("GET", "/-/metrics").body
        assert b'crossfade_refused_total{code="rate_limited",route="all"} 1.0' in metrics
    assert gateway.taps.wait(4)


def test_r14_a_refused_upload_ends_without_a_reset(backend: Backend) -> None:
    with running(with_limits(one_route(backend.url), "1/minute")) as gateway:
        assert gateway.request("GET", "/").status == 200
        with gateway.client() as client:
            assert client.request("POST", "/", body=b"x" * 500 * 1024).code == "rate_limited"
            # With bytes left unread the kernel would send a RST, which can take the answer with it.
            assert client.sock.recv(1) == b""
    assert len(backend.requests) == 1


def test_r14_a_refused_request_reaches_neither_backend_nor_shadow(tmp_path: Path) -> None:
    with Backend(answering(plain())) as cloud, Backend(answering(plain())) as onprem:
        settings = stored(with_limits(one_route(cloud.url, onprem.url), "1/minute"), tmp_path)
        with running(settings, mirror=True) as gateway:
            statuses = [gateway.request("POST", "/", body=b"x" * 5 * 1024 * 1024).status for _ in range(3)]
            assert statuses == [200, 429, 429]
            assert gateway.status()["routes"]["all"]["account"]["received"] == 1
        assert (len(cloud.requests), len(onprem.requests)) == (1, 1), "the mirror has drained"


@pytest.mark.parametrize(
    ("cors", "origin", "allowed"),
    [
        (Cors(("http://a.test",)), b"http://a.test", [b"http://a.test"]),
        (Cors(("http://a.test",)), b"http://b.test", []),
        (Cors(("*",)), b"http://b.test", [b"http://b.test"]),
        (Cors(("http://a.test",)), b"http://a.test.evil", []),
        (None, b"http://a.test", []),
    ],
)
def test_r14_only_the_pages_of_the_config_may_read_a_refusal(
    backend: Backend, cors: Cors | None, origin: bytes, allowed: list[bytes]
) -> None:
    settings = with_route(with_limits(one_route(backend.url), "1/minute"), cors=cors)
    with running(settings) as gateway:
        first = gateway.request("GET", "/", [(b"Origin", origin)])
        answer = gateway.request("GET", "/", [(b"Origin", origin)])
    assert first.values(b"access-control-allow-origin") == [], "a backend's answer is the backend's"
    assert answer.code == "rate_limited"
    assert answer.values(b"access-control-allow-origin") == allowed
    assert answer.values(b"access-control-allow-credentials") == []


def test_r14_credentials_and_failures_of_a_backend_have_them_too(backend: Backend) -> None:
    cors = Cors(("http://a.test",), credentials=True)
    with running(one_route("http://127.0.0.1:9", backend.url, cors=cors)) as gateway:
        answer = gateway.request("GET", "/", [ORIGIN])
    assert answer.code == "backend_unreachable"
    assert answer.values(b"access-control-allow-origin") == [b"http://a.test"]
    assert answer.values(b"access-control-allow-credentials") == [b"true"]


def test_an_admitted_answer_says_how_much_is_left(backend: Backend) -> None:
    with running(with_limits(one_route(backend.url), "3/minute")) as gateway:
        answers = [gateway.request("GET", "/") for _ in range(2)]
    assert [answer.values(b"ratelimit-policy") for answer in answers] == [[b'"3/60s";q=3;w=60']] * 2
    assert [answer.values(b"ratelimit")[0].split(b";t=")[0] for answer in answers] == [b'"3/60s";r=2', b'"3/60s";r=1']


def test_a_limit_of_the_gateway_holds_over_all_routes_and_callers(backend: Backend) -> None:
    shared = Limit("8/minute", per="everyone")
    proxies = replace(one_route(backend.url).limits, trusted_proxies=("127.0.0.1/32",))
    settings = two_routes(backend, gateway_limits=(shared,), limits=proxies)

    with running(settings) as gateway:
        statuses = [
            gateway.request("GET", path, [(b"X-Forwarded-For", b"192.0.2.%d" % number)]).status
            for number, path in enumerate(["/heavy", "/light", "/heavy", "/heavy", "/light", "/light"])
        ]
    assert statuses == [200, 200, 200, 429, 200, 429], "3, 1 and 3 make 7; then 3 do not fit, 1 does"


def test_a_cost_that_never_fits_is_refused_with_the_settings(backend: Backend) -> None:
    settings = one_route(backend.url)
    with running(settings) as gateway:
        gateway.source.replace(with_route(settings, limits=("10/minute",), cost=11))
        status = gateway.wait_status(lambda status: status["config"]["rejected"] is not None)
    assert "costs 11" in status["config"]["rejected"]


def test_r09_bytes_that_never_fit_get_an_answer_of_their_own(backend: Backend) -> None:
    settings = with_route(one_route(backend.url), limits=(Limit("1/minute", unit="megabyte"),))
    with running(settings) as gateway:
        assert gateway.request("GET", "/").values(b"ratelimit") == [], "no bytes, no cost"
        answer = gateway.request("POST", "/", body=b"x" * 600_000)
        assert answer.values(b"ratelimit-policy") == [b'"1MB/60s";q=1000000;qu="content-bytes";w=60']
        assert answer.values(b"ratelimit")[0].startswith(b'"1MB/60s";r=400000;')
        second = gateway.request("POST", "/", body=b"x" * 600_000)
        assert (second.status, second.code) == (429, "rate_limited")
        never = gateway.request("POST", "/", body=b"x" * 1_000_001)
        assert (never.status, never.code) == (413, "cost_exceeds_limit")
        assert never.values(b"retry-after") == []
        with gateway.client() as client:
            client.send(encode("POST", "/", [(b"Transfer-Encoding", b"chunked")]))
            unknown = client.read("POST")
        assert (unknown.status, unknown.code) == (411, "length_required")


def test_a_dry_run_is_marked_and_counted(backend: Backend) -> None:
    settings = with_route(one_route(backend.url), limits=(Limit("1/minute", dry_run=True),))
    with running(settings) as gateway:
        answers = [gateway.request("GET", "/") for _ in range(3)]
        metrics = gateway.request("GET", "/-/metrics").body
    assert [answer.status for answer in answers] == [200] * 3
    assert [answer.values(b"x-crossfade-dry-run") for answer in answers] == [[], [b'"1/60s"'], [b'"1/60s"']]
    assert answers[0].values(b"ratelimit-policy") == []
    assert b'crossfade_limits_dry_run_total{limit="1/60s",route="all"} 2.0' in metrics


@pytest.mark.usefixtures("each_parser")
def test_a_header_tells_callers_apart_and_those_without_it_are_their_address(backend: Backend) -> None:
    settings = with_route(one_route(backend.url), limits=(Limit("1/minute", per="header:X-Tenant"),))
    with running(settings) as gateway:

        def statuses(*values: bytes) -> list[int]:
            fields = [(b"X-Tenant", value) for value in values]
            return [gateway.request("GET", "/", fields).status for _ in range(2)]

        assert statuses(b"a") == statuses(b"b") == statuses(b"a", b"b") == statuses(b"{}:") == statuses() == [200, 429]
        assert statuses(b"127.0.0.1") == [200, 429], "nobody can claim to be another's address"
        assert statuses(b"") == [429, 429]
        assert statuses(b"a ") == statuses(b"\ta\t") == [429, 429], "white space around a value is none of it"


def test_r07_a_number_that_is_lowered_while_it_runs_keeps_its_count(backend: Backend) -> None:
    settings = with_limits(one_route(backend.url), "100/minute")
    with running(settings) as gateway:
        for _ in range(20):
            assert gateway.request("GET", "/").status == 200
        gateway.source.replace(with_route(settings, limits=("10/minute",)))
        gateway.wait_status(applied(1))
        answer = gateway.request("GET", "/")
        assert answer.code == "rate_limited"
        assert 55 <= int(answer.values(b"retry-after")[0]) <= 60


def test_routes_do_not_share_what_is_counted_per_route(backend: Backend) -> None:
    settings = two_routes(backend)

    def limited(route: Route) -> Route:
        return replace(route, limits=("3/minute",))

    with running(replace(settings, routes=tuple(map(limited, settings.routes)))) as gateway:
        statuses = [gateway.request("GET", path).status for path in ("/light", "/heavy", "/light", "/heavy")]
    assert statuses == [200, 200, 200, 429]
