"""Server-sent events out of a recorded body, as a browser reads them (WHATWG HTML section 9.2.6).

A stream is compared as events: how they were cut into chunks is the network's. Each event keeps the place of its end
in the body, so that the chunk that completed it, and with it the moment of its arrival, can be found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_EVENTS = 200_000
_LINE = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Event:
    """One dispatched event. ``end`` is how many bytes of the body had come when it was complete."""

    name: str
    data: str
    end: int


@dataclass(frozen=True, slots=True)
class Stream:
    """The events of a body. ``cut`` says that the body ends inside of an event."""

    events: tuple[Event, ...]
    cut: bool


def read_stream(body: bytes) -> Stream | None:
    """Return the events, ``None`` when the body is no UTF-8 text or has more than ``MAX_EVENTS``. Linear."""
    start = 3 if body.startswith(b"\xef\xbb\xbf") else 0
    try:
        body.decode()
    except UnicodeDecodeError as error:
        if error.end < len(body):  # a character that is cut at the very end is a cut stream
            return None
    events: list[Event] = []
    name, data = "", list[str]()
    while (found := _LINE.search(body, start)) is not None:
        line = body[start : found.start()].decode("utf-8", "replace")
        start = found.end()
        if line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "event":
                name = value
            continue
        if data:
            if len(events) == MAX_EVENTS:
                return None
            events.append(Event(name or "message", "\n".join(data), start))
        name, data = "", []
    return Stream(tuple(events), bool(data) or start < len(body))
