"""Which answers go on while they are read, so that no time for the whole of one means anything. Pure."""

from __future__ import annotations

_EVENTS = "text/event-stream"  # WHATWG HTML section 9.2
_STREAMS = frozenset(
    {
        _EVENTS,
        "application/x-ndjson",  # what ollama sends, and nobody registered
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonlines",
        "application/stream+json",
        "application/json-seq",  # RFC 7464
        "multipart/x-mixed-replace",  # a camera's pictures, one after the other
    }
)


def is_stream(content_type: str) -> bool:
    """Say whether a Content-Type is that of events, lines or pictures that come one by one."""
    return _essence(content_type) in _STREAMS


def is_events(content_type: str) -> bool:
    """Say whether it is a stream of events, of which it is noted when each came."""
    return _essence(content_type) == _EVENTS


def _essence(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()
