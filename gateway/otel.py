"""Spans written by hand with the OpenTelemetry SDK, exported by OTLP over HTTP.

Names and attributes follow the stable HTTP semantic conventions (1.23 and later); a query is never recorded, because
it may hold secrets. Sampling is decided at the head: by the client's flag where it sends a trace context, else for a
share of the traces. Export runs in the SDK's own thread with a bounded queue: a collector that is slow or dead costs
spans, never requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from urllib.parse import urlsplit

from opentelemetry import trace as api
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.arrival import Arrival
from gateway.fields import values_of
from gateway.forwarding import FieldChange
from gateway.settings import Route, TracingSettings
from gateway.tracing import RequestTrace
from shadow.exchange import Headers

EXPORT_S = 5.0
MAX_QUEUED = 4096

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})
_CONTEXT_FIELDS = frozenset({b"traceparent", b"tracestate"})


def export_to(settings: TracingSettings) -> SpanProcessor:
    """Return a processor that sends spans to the settings' endpoint."""
    exporter = OTLPSpanExporter(endpoint=settings.endpoint, timeout=EXPORT_S)
    return BatchSpanProcessor(exporter, max_queue_size=MAX_QUEUED)


class OtelTracing:
    """Owns the provider and, with it, the processor."""

    def __init__(self, settings: TracingSettings, processor: SpanProcessor) -> None:
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(settings.sample)),
            resource=Resource.create({"service.name": "crossfade-gateway"}),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("crossfade.gateway")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, arrival: Arrival) -> RequestTrace:
        """Begin the server span."""
        parent = self._propagator.extract(arrival.headers, Context(), _Fields())
        span = self._tracer.start_span(
            _method(arrival), context=parent, kind=SpanKind.SERVER, attributes=_server_attributes(arrival)
        )
        return _Trace(self._tracer, self._propagator, span, arrival)

    async def aclose(self) -> None:
        """Export what is finished and end the exporter's thread."""
        await asyncio.to_thread(self._provider.shutdown)


class _Fields(Getter[Headers]):
    """Reads header fields for the propagator."""

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        values = [value.decode("latin-1") for value in values_of(carrier, key.encode("latin-1"))]
        return values or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name.decode("latin-1") for name, _ in carrier]


class _Trace:
    def __init__(
        self, tracer: api.Tracer, propagator: TraceContextTextMapPropagator, span: Span, arrival: Arrival
    ) -> None:
        self._tracer = tracer
        self._propagator = propagator
        self._span = span
        self._arrival = arrival
        self._attempt: Span | None = None

    def note_route(self, route: Route) -> None:
        if self._span.is_recording():
            self._span.update_name(f"{_method(self._arrival)} {route.path}")
            self._span.set_attributes({"http.route": route.path, "crossfade.route": route.name})

    def begin_attempt(self, backend: str, server: str, resends: int) -> FieldChange:
        self.end_attempt(None, "retried")
        self._attempt = self._tracer.start_span(
            _method(self._arrival),
            context=api.set_span_in_context(self._span, Context()),
            kind=SpanKind.CLIENT,
            attributes=_client_attributes(self._arrival, backend, server, resends)
            if self._span.is_recording()
            else None,
        )
        return self._change(self._attempt)

    def end_attempt(self, status: int | None, error: str | None) -> None:
        span, self._attempt = self._attempt, None
        if span is not None:
            _note(span, status, error, fails_from=400)
            span.end()

    def note_answer(self, status: int | None, error: str | None) -> None:
        _note(self._span, status, error, fails_from=500)

    def context(self) -> FieldChange:
        return self._change(self._span)

    def end(self) -> None:
        self.end_attempt(None, "cancelled")
        self._span.end()

    def _change(self, span: Span) -> FieldChange:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, api.set_span_in_context(span, Context()))
        return FieldChange(_CONTEXT_FIELDS, tuple(_encoded(carrier.items())))


def _encoded(fields: Iterable[tuple[str, str]]) -> Iterable[tuple[bytes, bytes]]:
    return ((name.encode("latin-1"), value.encode("latin-1")) for name, value in fields)


def _note(span: Span, status: int | None, error: str | None, *, fails_from: int) -> None:
    if not span.is_recording():
        return
    if status is not None:
        span.set_attribute("http.response.status_code", status)
    failed = status is None or status >= fails_from
    if failed or error in ("cancelled", "truncated"):
        span.set_attribute("error.type", error or str(status))
        span.set_status(Status(StatusCode.ERROR))


def _method(arrival: Arrival) -> str:
    return arrival.method if arrival.method in _METHODS else "_OTHER"


def _server_attributes(arrival: Arrival) -> dict[str, str]:
    attributes = {
        "http.request.method": _method(arrival),
        "url.path": arrival.path.decode("latin-1"),
        "url.scheme": arrival.scheme,
        "crossfade.request_id": arrival.id,
    }
    if arrival.peer:
        attributes["client.address"] = arrival.peer
    for attribute, field in (("server.address", b"host"), ("user_agent.original", b"user-agent")):
        if value := arrival.first_value(field):
            attributes[attribute] = value
    return attributes


def _client_attributes(arrival: Arrival, backend: str, server: str, resends: int) -> dict[str, str | int]:
    url = urlsplit(server)
    attributes: dict[str, str | int] = {
        "http.request.method": _method(arrival),
        "url.full": server + arrival.path.decode("latin-1"),
        "server.address": url.hostname or "",
        "server.port": url.port or (443 if url.scheme == "https" else 80),
        "crossfade.backend": backend,
    }
    if resends:
        attributes["http.request.resend_count"] = resends
    return attributes
