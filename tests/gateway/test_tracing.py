"""Spans of requests, over real sockets, with an exporter in memory; and the exporter itself against a collector."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from gateway.otel import OtelTracing
from gateway.settings import ServerRules, Settings, TracingSettings
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.client import encode
from tests.gateway.harness import Running, one_route, running, with_backend, with_limits

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED = [(b"traceparent", f"00-{TRACE}-{PARENT}-01".encode()), (b"tracestate", b"vendor=1")]


@contextmanager
def traced(settings: Settings, sample: float = 1.0) -> Iterator[tuple[Running, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    settings = replace(settings, tracing=TracingSettings("http://collector.test/v1/traces", sample))
    with running(
        settings, tracing_factory=lambda chosen: OtelTracing(chosen, SimpleSpanProcessor(exporter))
    ) as gateway:
        yield gateway, exporter


def by_kind(exporter: InMemorySpanExporter, kind: SpanKind) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.kind is kind]


def ids(span: ReadableSpan | None) -> tuple[str, str]:
    assert span is not None
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_request_has_a_server_span_and_below_it_a_client_span_whose_context_the_backend_gets() -> None:
    with Backend(answering(plain())) as backend:
        with traced(one_route(backend.url)) as (gateway, exporter):
            fields = [*SAMPLED, (b"User-Agent", b"tests/1")]
            assert gateway.request("POST", "/v1/predict?key=secret", fields, b"x").status == 200
            exchange = gateway.taps.wait()[0]
        (server,), (client,) = by_kind(exporter, SpanKind.SERVER), by_kind(exporter, SpanKind.CLIENT)
        sent, port = backend.requests[0], backend.port
    assert ids(server)[0] == ids(client)[0] == TRACE
    assert server.parent is not None
    assert client.parent is not None
    assert f"{server.parent.span_id:016x}" == PARENT
    assert f"{client.parent.span_id:016x}" == ids(server)[1]
    assert sent.values(b"traceparent") == [f"00-{TRACE}-{ids(client)[1]}-01".encode()]
    assert sent.values(b"tracestate") == [b"vendor=1"]
    copied = dict(exchange.request.headers)
    assert copied[b"traceparent"] == f"00-{TRACE}-{ids(server)[1]}-01".encode(), "the shadow's span belongs below ours"
    assert server.name == "POST /*"
    assert attributes(server) == {
        "http.request.method": "POST", "url.path": "/v1/predict", "url.scheme": "http", "http.route": "/*",
        "http.response.status_code": 200, "client.address": "127.0.0.1", "server.address": "gateway.test",
        "user_agent.original": "tests/1", "crossfade.route": "all", "crossfade.request_id": exchange.id,
    }  # fmt: skip
    assert attributes(client) == {
        "http.request.method": "POST", "url.full": f"http://127.0.0.1:{port}/v1/predict",
        "server.address": "127.0.0.1", "server.port": port, "http.response.status_code": 200,
        "crossfade.backend": "cloud",
    }  # fmt: skip
    assert "secret" not in str([attributes(span) for span in (server, client)])


@pytest.mark.parametrize("broken", [None, b"00-zz-1-01", b"00-" + b"0" * 32 + b"-" + PARENT.encode() + b"-01"])
def test_without_a_valid_context_a_trace_begins_here_by_share(broken: bytes | None) -> None:
    fields = [] if broken is None else [(b"traceparent", broken)]
    with Backend(answering(plain())) as backend:
        with traced(one_route(backend.url), sample=1.0) as (gateway, exporter):
            gateway.request("GET", "/", fields)
        assert len(exporter.get_finished_spans()) == 2
        with traced(one_route(backend.url), sample=0.0) as (gateway, exporter):
            gateway.request("GET", "/", fields)
        assert exporter.get_finished_spans() == ()
        flags = []
        for request in backend.requests:
            (value,) = request.values(b"traceparent")
            match = re.fullmatch(rb"00-[0-9a-f]{32}-[0-9a-f]{16}-([0-9a-f]{2})", value)
            assert match is not None
            flags.append(int(match[1], 16) & 1)
    assert flags == [1, 0], "what is not sampled here is not to be sampled below"


def test_the_client_decides_for_its_own_trace() -> None:
    with Backend(answering(plain())) as backend:
        with traced(one_route(backend.url), sample=0.0) as (gateway, exporter):
            gateway.request("GET", "/", SAMPLED)
        assert len(exporter.get_finished_spans()) == 2
        with traced(one_route(backend.url), sample=1.0) as (gateway, exporter):
            gateway.request("GET", "/", [(b"traceparent", f"00-{TRACE}-{PARENT}-00".encode())])
        assert exporter.get_finished_spans() == ()


def test_each_attempt_has_a_span_of_its_own() -> None:
    with socket.socket() as held, Backend(answering(plain())) as alive:
        held.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{held.getsockname()[1]}"
        settings = with_backend(
            one_route(dead, alive.url, fallback=True), "cloud", rules=ServerRules(breaker_failures=100)
        )
        with traced(settings) as (gateway, exporter):
            assert gateway.request("GET", "/").status == 200
        first, second = sorted(by_kind(exporter, SpanKind.CLIENT), key=lambda span: span.start_time or 0)
    assert (attributes(first)["error.type"], first.status.status_code) == ("connect", StatusCode.ERROR)
    assert attributes(second)["http.request.resend_count"] == 1
    assert [attributes(span)["crossfade.backend"] for span in (first, second)] == ["cloud", "onprem"]
    assert attributes(second)["http.response.status_code"] == 200


def test_refusals_failures_and_cut_answers_are_told_apart() -> None:
    def cut(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")

    with Backend(cut) as backend:
        with traced(with_limits(one_route(backend.url), "1/minute")) as (gateway, exporter):
            with gateway.client() as client:
                client.send(encode("GET", "/"))
                client.read_head()
                assert client.read_up_to(100) == b"hello"
            gateway.taps.wait(1)
            assert gateway.request("GET", "/").status == 429
        broken, refused = by_kind(exporter, SpanKind.SERVER)
        assert (attributes(broken)["error.type"], broken.status.status_code) == ("truncated", StatusCode.ERROR)
        assert (attributes(refused)["http.response.status_code"], refused.status.status_code) == (
            429, StatusCode.UNSET,
        )  # fmt: skip
    with Backend(answering(b"nonsense\r\n\r\n")) as backend:
        with traced(one_route(backend.url)) as (gateway, exporter):
            assert gateway.request("POST", "/", body=b"x").status == 502
        (failed,) = by_kind(exporter, SpanKind.SERVER)
    assert attributes(failed)["error.type"] == "backend_protocol_error"
    assert failed.status.status_code is StatusCode.ERROR


def test_without_tracing_a_context_passes_untouched_and_none_is_invented() -> None:
    with Backend(answering(plain())) as backend, running(one_route(backend.url)) as gateway:
        gateway.request("GET", "/", [(b"traceparent", b"whatever it says")])
        gateway.request("GET", "/")
        assert [request.values(b"traceparent") for request in backend.requests] == [[b"whatever it says"], []]


def test_spans_reach_a_collector_and_a_dead_one_costs_no_request() -> None:
    with Backend(answering(plain())) as backend, Backend(answering(plain(b""))) as collector:
        endpoint = TracingSettings(f"{collector.url}/v1/traces", 1.0)
        with running(replace(one_route(backend.url), tracing=endpoint)) as gateway:
            assert gateway.request("GET", "/").status == 200
        (export,) = collector.requests
        assert export.line == b"POST /v1/traces HTTP/1.1"
        assert b"crossfade-gateway" in export.body
        assert b"crossfade.request_id" in export.body
        gone = replace(endpoint, endpoint="http://127.0.0.1:1/v1/traces")
        with running(replace(one_route(backend.url), tracing=gone)) as gateway:
            assert gateway.request("GET", "/").status == 200
