"""Spans that continue the caller's trace (W3C Trace Context), with OpenTelemetry where it is installed.

The steps of a request are measured anyway, so its spans are made at its end, with the times they had; nothing is
carried through the code. Importing this does not import OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

_STANDARD_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a request, in nanoseconds since 1970."""

    name: str
    began_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class Trace:
    """What one picture went through. ``headers`` are the request's; ``code`` is ``ok`` or the problem's code."""

    name: str
    headers: Mapping[str, str]
    code: str
    steps: Sequence[Step]
    attributes: Mapping[str, str | int] = field(default_factory=dict)


class Tracer(Protocol):
    """Whoever wants to know."""

    def __call__(self, trace: Trace) -> None:
        """Take a trace over. Does not block."""


def no_tracer(trace: Trace) -> None:
    """Want to know nothing."""


def open_telemetry(provider: TracerProvider) -> Tracer:
    """Return a tracer that makes spans with ``provider``: one of kind server, with a child for each step."""
    from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    tracer = provider.get_tracer("onprem_backend")
    propagator = TraceContextTextMapPropagator()

    def record(trace: Trace) -> None:
        parent = propagator.extract(dict(trace.headers))
        began_ns = min(step.began_ns for step in trace.steps)
        span = tracer.start_span(trace.name, parent, SpanKind.SERVER, dict(trace.attributes), start_time=began_ns)
        if trace.code != "ok":
            span.set_status(StatusCode.ERROR, trace.code)
        context = set_span_in_context(span)
        for step in trace.steps:
            child = tracer.start_span(step.name, context, start_time=step.began_ns)
            child.end(step.ended_ns)
        span.end(max(step.ended_ns for step in trace.steps))

    return record


def tracer_from_environment(environ: Mapping[str, str], service: str) -> Tracer:
    """Return a tracer that sends to the OTLP endpoint of OpenTelemetry's own variables, or one that does nothing when
    none is set. Raises ``RuntimeError`` when one is set and the extra ``otel`` is not installed."""
    if not any(environ.get(name) for name in _STANDARD_VARIABLES):
        return no_tracer
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise RuntimeError(f"an OTLP endpoint is set, but the extra otel is not installed: {error}") from error
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return open_telemetry(provider)
