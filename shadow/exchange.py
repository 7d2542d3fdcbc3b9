"""The vocabulary of the record: what was asked, what each backend answered, and why a request left no pair.

Standard library only, so that every room can speak it without pulling anything in. All values are frozen, which mypy
sees to; a failure is a value and never an exception. Body bytes are shared, never copied: a body is the very tuple of
``bytes`` objects that the server delivered (``chunks``), or, where they are large, a sequence that reads them from the
disk, or ``None`` where they were not kept (only their hash and size are known).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(*, frozen, slots):
        """Make a dataclass that is frozen for the type checker alone. The check when the program runs would take seven
        times as long as all the rest of making an object, for every request."""
        return dataclass(slots=slots, unsafe_hash=frozen)


Headers = tuple[tuple[bytes, bytes], ...]
"""Header fields as they crossed the wire: order, case, repetition and raw bytes kept (RFC 9110 section 5)."""


class SkipReason(StrEnum):
    """Why a received request was not recorded. Each is a counter and a line on the status page. A name that only
    another version knows, of a rolling update say, reads as ``LOST``: what was received stays counted."""

    NOT_SAMPLED = "not_sampled"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TOO_LARGE = "body_too_large"
    BUDGET_FULL = "budget_full"
    QUEUE_FULL = "queue_full"
    BREAKER_OPEN = "breaker_open"
    SERVED_BY_CANDIDATE = "served_by_candidate"
    FELL_BACK = "fell_back"
    IS_A_COPY = "is_a_copy"
    CLIENT_GONE = "client_gone"
    SHUTDOWN = "shutdown"
    STORE_FAILED = "store_failed"
    LOST = "lost"

    @classmethod
    def _missing_(cls, value: object) -> SkipReason:
        return cls.LOST


class FailureKind(StrEnum):
    """How a backend failed to give a whole answer. A complete answer with a 5xx status has no failure of this kind. A
    name that only another version knows reads as ``PROTOCOL``: a failure stays a failure."""

    CONNECT = "connect"
    TIMEOUT = "timeout"
    RESET = "reset"
    PROTOCOL = "protocol"
    TRUNCATED = "truncated"
    TOO_LARGE = "too_large"
    CANCELLED = "cancelled"

    @classmethod
    def _missing_(cls, value: object) -> FailureKind:
        return cls.PROTOCOL


class Role(StrEnum):
    """The part an observation plays in its exchange."""

    PRIMARY = "primary"
    SHADOW = "shadow"
    CONTROL = "control"


@record(frozen=True, slots=True)
class Failure:
    """What went wrong on one leg; ``detail`` is for a person and holds no address and no secret."""

    kind: FailureKind
    detail: str = ""


def _sha256(chunks: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


class LateDigest:
    """A sha256 in hex, made when somebody first asks for it, in whatever thread that is."""

    __slots__ = ("_make", "_text")

    def __init__(self, make: Callable[[], str]) -> None:
        self._make = make
        self._text = ""

    @classmethod
    def of(cls, chunks: Sequence[bytes]) -> LateDigest:
        """Return that of the chunks, which are let go of once it is made."""
        return cls(partial(_sha256, chunks))

    def __str__(self) -> str:
        make = self._make  # looked at before the text, which another thread sets before it lets go of what makes it
        if not self._text:
            self._text = make()
            self._make = str
        return self._text

    def __eq__(self, other: object) -> bool:
        return str(self) == str(other) if isinstance(other, str | LateDigest) else NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))


@record(frozen=True, slots=True)
class Body:
    """A message body. ``size_bytes`` is of the whole body that crossed, and so is the ``digest``: its sha256 in
    lower-case hex, empty where nothing was kept and nobody asked for it.

    Of an exchange that comes from the store ``sha256`` is the store's keyed digest instead, equal where the bytes are
    equal, and ``place`` names the object with the bytes where they are not in ``chunks``. ``media_type`` is the raw
    Content-Type value decoded as Latin-1 (empty when absent); ``content_encoding`` likewise. With ``on_disk`` going
    through the chunks reads a file.
    """

    digest: str | LateDigest
    size_bytes: int
    media_type: str = ""
    content_encoding: str = ""
    chunks: Sequence[bytes] | None = None
    place: str = ""
    on_disk: bool = False

    def __iter__(self) -> Iterator[bytes]:
        """Yield the kept chunks; nothing when the bytes were not kept."""
        return iter(self.chunks or ())

    @property
    def sha256(self) -> str:
        """The digest as text; making it may take a millisecond for each megabyte."""
        return str(self.digest)

    @property
    def held_bytes(self) -> int:
        """Bytes of memory this body keeps alive."""
        return 0 if self.on_disk else sum(map(len, self.chunks or ()))


@record(frozen=True, slots=True)
class Request:
    """What the client sent: ``target`` is the raw request-target (path and query), byte for byte."""

    method: str
    target: bytes
    headers: Headers
    body: Body


@record(frozen=True, slots=True)
class Observation:
    """What one backend did with one request.

    Durations are seconds on a monotonic clock from the moment the request was handed to the backend's transport,
    without the time spent waiting for the client (a slow upload, a slow reader): that is not the backend's.
    ``arrivals_s`` holds the offset of every chunk for event streams, else it is empty; ``arrival_bytes`` the sizes of
    the same chunks, empty where they are not known. ``status`` is ``None`` when no
    status line came; ``body`` is ``None`` when no body was begun.
    """

    backend: str
    server: str
    status: int | None = None
    headers: Headers = ()
    body: Body | None = None
    first_byte_s: float | None = None
    total_s: float | None = None
    arrivals_s: tuple[float, ...] = ()
    failure: Failure | None = None
    arrival_bytes: tuple[int, ...] = ()

    @property
    def failed(self) -> bool:
        """Whether this leg is an error: no whole answer, or a server error (5xx)."""
        return self.failure is not None or self.status is None or self.status >= 500


@record(frozen=True, slots=True)
class Exchange:
    """One request with all its answers. ``id`` is made by the gateway, is unique, and is what pairs are joined by.

    ``client_request_id`` is whatever the client called it and may repeat. ``sequence`` is 0 until the store gives the
    exchange its place in the order of writing.
    """

    id: str
    route: str
    received_at: datetime
    request: Request
    primary: Observation
    shadow: Observation | None = None
    control: Observation | None = None
    skipped: SkipReason | None = None
    client_request_id: str = ""
    sequence: int = 0

    def with_leg(self, role: Role, seen: Observation) -> Exchange:
        """Return the exchange with what the shadow or the control did; ``dataclasses.replace`` takes several times as
        long."""
        shadow = seen if role is Role.SHADOW else self.shadow
        control = seen if role is Role.CONTROL else self.control
        return Exchange(
            self.id,
            self.route,
            self.received_at,
            self.request,
            self.primary,
            shadow,
            control,
            self.skipped,
            self.client_request_id,
            self.sequence,
        )

    def observations(self) -> Iterator[tuple[Role, Observation]]:
        """Yield the legs that took place, in the order primary, shadow, control."""
        yield Role.PRIMARY, self.primary
        if self.shadow is not None:
            yield Role.SHADOW, self.shadow
        if self.control is not None:
            yield Role.CONTROL, self.control

    def bodies(self) -> Iterator[Body]:
        """Yield the request's body, then those of the legs that have one."""
        yield self.request.body
        for _, leg in self.observations():
            if leg.body is not None:
                yield leg.body

    @property
    def held_bytes(self) -> int:
        """Bytes of body memory this exchange keeps alive over all its legs."""
        held_bytes = self.request.body.held_bytes
        for leg in (self.primary, self.shadow, self.control):
            if leg is not None and leg.body is not None:
                held_bytes += leg.body.held_bytes
        return held_bytes
