"""What happens to header fields on their way through: pure functions, fields in, fields out.

Order, repetition and value bytes are kept (RFC 9110 section 5.3, 5.5). Only these are taken out or put in:

* hop-by-hop fields and those that ``Connection`` nominates (RFC 9110 section 7.6.1), in both directions, and
  ``Trailer``, because the server below hands on no trailers (section 6.5.1 lets an intermediary drop them);
* ``Expect``: the gateway itself answered it (section 10.1.1);
* ``Host`` becomes the target's authority (section 7.2);
* ``X-Request-Id`` is the gateway's own, upstream and downstream; the client's is kept in the exchange, not forwarded;
* for a backend with a credential of its own, the client's ``Authorization`` and any field of the credential's name go,
  and the credential comes;
* what the caller of ``request_fields`` drops and adds: forwarded fields and the trace context;
* of a request also the same names with an underscore for a hyphen (``shadow.field_names``), and ``Content_Length``;
* ``Date`` is added to an answer that has none (section 6.6.1 asks an intermediary with a clock to do so).

Nothing else is invented: no User-Agent, Accept, Accept-Encoding, Via or Server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from gateway.lines import encode_lines
from gateway.settings import Credential
from shadow.exchange import Headers
from shadow.field_names import HOP_BY_HOP, nominated, with_aliases

Fields = Sequence[tuple[bytes, bytes]]
REQUEST_ID = b"x-request-id"

_LENGTH = frozenset({b"content-length"})
_NOT_TO_BACKEND = with_aliases(HOP_BY_HOP | {b"host", b"expect", REQUEST_ID} | _LENGTH) - _LENGTH
_NOT_TO_CLIENT = HOP_BY_HOP | {REQUEST_ID}
_SECOND = timedelta(seconds=1)


class InvalidAnswer(ValueError):
    """A backend's answer cannot be passed on as HTTP."""


def encode_fields(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return the fields as lines. Raises ``InvalidAnswer`` for one that cannot be sent."""
    lines = encode_lines(fields)
    if lines is None:
        raise InvalidAnswer("field")
    return lines


class HttpDate:
    """Writes a Date field's value (RFC 9110 section 5.6.7), which takes long, once a second."""

    def __init__(self) -> None:
        self._begin = self._end = datetime.min.replace(tzinfo=UTC)
        self._text = b""

    def __call__(self, moment: datetime) -> bytes:
        """Return the moment, which must be in UTC."""
        if not self._begin <= moment < self._end:
            self._begin = moment.replace(microsecond=0)
            self._end = self._begin + _SECOND
            self._text = format_datetime(self._begin, usegmt=True).encode("ascii")
        return self._text


def values_of(headers: Fields, name: bytes) -> list[bytes]:
    """Return the values of all fields with this lower-case name, in order."""
    size = len(name)  # compared first: a name of another length is another name, and no copy is made of it
    return [value for key, value in headers if len(key) == size and key.lower() == name]


def list_members(headers: Fields, name: bytes) -> list[bytes]:
    """Return the comma-separated members of all fields of this name, lower case, empty ones dropped."""
    values = values_of(headers, name)
    if not values:
        return []
    members = [member.strip().lower() for value in values for member in value.split(b",")]
    return [member for member in members if member]


def request_fields(
    headers: Headers,
    *,
    authority: bytes,
    request_id: str,
    credential: Credential | None,
    chunked: bool,
    dropped: frozenset[bytes],
    added: Iterable[tuple[bytes, bytes]],
) -> list[tuple[bytes, bytes]]:
    """Return the fields of the request to the backend, whose names are in lower case and stay as they are. ``chunked``
    says that its body has no declared length."""
    gone = _NOT_TO_BACKEND | dropped if dropped else _NOT_TO_BACKEND
    if credential is not None:
        gone |= credential.replaced
    if b"connection" in dict(headers):
        gone |= nominated(values_of(headers, b"connection"))
    fields = [(b"host", authority)]
    fields += [field for field in headers if field[0] not in gone]
    fields += added
    fields.append((REQUEST_ID, request_id.encode("ascii")))
    if credential is not None:
        fields.append(credential.pair)
    if chunked:
        fields.append((b"transfer-encoding", b"chunked"))
    return fields


def lower_names(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Return the fields with their names in lower case."""
    return [(name.lower(), value) for name, value in headers]


def answer_fields(
    fields: list[tuple[bytes, bytes]],
    names: Collection[bytes],
    *,
    method: str,
    status: int,
    request_id: str,
    date: bytes,
    added: Iterable[tuple[bytes, bytes]],
) -> list[tuple[bytes, bytes]]:
    """Return the fields of the answer to the client; the backend's have their ``names`` in lower case, ``added`` come
    last. The list that comes in may be the one that is returned.

    Content-Length stays where it describes a body or its absence (HEAD, 304: RFC 9110 section 8.6) and goes from a 204,
    which must not have one. Raises ``InvalidAnswer`` for a status that is no final one.
    """
    if not 200 <= status <= 599:
        raise InvalidAnswer("status")
    gone = _NOT_TO_CLIENT
    if b"connection" in names:
        gone |= nominated(values_of(fields, b"connection"))
    if status == 204 or (method == "CONNECT" and status < 300):
        gone |= _LENGTH
    if not gone.isdisjoint(names):
        fields = [field for field in fields if field[0] not in gone]
    if b"date" not in names:
        fields.append((b"date", date))
    fields.append((REQUEST_ID, request_id.encode("ascii")))
    fields += added
    return fields


def has_no_body(method: str, status: int) -> bool:
    """Say whether an answer ends with its header section whatever its fields say (RFC 9112 section 6.3)."""
    return method == "HEAD" or status in (204, 304)


def claims_body(headers: Headers) -> bool:
    """Say whether the fields announce body bytes."""
    return bool(values_of(headers, b"transfer-encoding")) or any(
        value.strip() != b"0" for value in values_of(headers, b"content-length")
    )
