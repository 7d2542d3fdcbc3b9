"""What a kernel is given: the request and both answers, decoded from the wire, nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Question:
    """The request. ``data`` is ``None`` where its body was not kept."""

    media_type: str = ""
    data: bytes | None = None
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class Answer:
    """One side's answer: its body after content decoding, and its raw Content-Type.

    ``arrivals_s`` and ``arrival_bytes`` are when the chunks of an event stream came, from the moment the request was
    sent, and how large they were on the wire; ``encoded`` says that a content encoding was undone since.
    """

    media_type: str
    data: bytes
    status: int = 200
    arrivals_s: tuple[float, ...] = ()
    arrival_bytes: tuple[int, ...] = ()
    encoded: bool = False

    @property
    def kind(self) -> str:
        """The media type in lower case without its parameters."""
        return self.media_type.split(";")[0].strip().lower()

    @property
    def is_event_stream(self) -> bool:
        """Whether the answer says it is server-sent events."""
        return self.kind == "text/event-stream"
