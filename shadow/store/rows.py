"""Turn exchanges into rows and back, losslessly but for the boundaries between a body's chunks, which are not kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from shadow.exchange import Body, Exchange, Failure, FailureKind, Headers, Observation, Request, Role, SkipReason

Row = Mapping[Any, Any]
"""A row by column name."""

SealBody = Callable[[str, Body], tuple[str, bytes | None]]
"""Called with ``request`` or a role and a body; returns its keyed digest and what stands in the row of its bytes."""

OpenBody = Callable[[str, Row], tuple[tuple[bytes, ...] | None, str]]
"""Called with ``request`` or a role and a row; returns a body's chunks and its place."""

REQUEST = "request"

_ROLES = frozenset(Role)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(moment: datetime) -> int:
    """Return an aware time as whole UTC microseconds since 1970. Raises ``TypeError`` for a naive one."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def moment(microseconds: int) -> datetime:
    """Return the UTC time of ``microseconds``."""
    return _EPOCH + timedelta(microseconds=microseconds)


def exchange_row(exchange: Exchange, seal: SealBody) -> dict[str, Any]:
    """Return the row of the exchange itself, without its sequence."""
    return {
        "id": exchange.id,
        "route": exchange.route,
        "received_at_us": microseconds(exchange.received_at),
        "client_request_id": exchange.client_request_id,
        "skipped": exchange.skipped and exchange.skipped.value,
        "method": exchange.request.method,
        "target": exchange.request.target,
        "headers": _encode_headers(exchange.request.headers),
        **_body_fields(REQUEST, exchange.request.body, seal),
    }


def observation_rows(exchange: Exchange, seal: SealBody) -> list[dict[str, Any]]:
    """Return a row for each leg, without its sequence."""
    return [
        {
            "role": role.value,
            "backend": leg.backend,
            "server": leg.server,
            "status": leg.status,
            "headers": _encode_headers(leg.headers),
            "first_byte_s": leg.first_byte_s,
            "total_s": leg.total_s,
            "arrivals_s": json.dumps(_arrivals(leg)),
            "failure_kind": leg.failure and leg.failure.kind.value,
            "failure_detail": leg.failure and leg.failure.detail,
            **_body_fields(role.value, leg.body, seal),
        }
        for role, leg in exchange.observations()
    ]


def exchange_of(row: Row, legs: Mapping[Role, Observation], open_body: OpenBody) -> Exchange:
    """Build the exchange from its row and its legs."""
    body = _body_of(REQUEST, row, open_body)
    assert body is not None
    return Exchange(
        id=row["id"],
        route=row["route"],
        received_at=moment(row["received_at_us"]),
        request=Request(row["method"], row["target"], _decode_headers(row["headers"]), body),
        primary=legs[Role.PRIMARY],
        shadow=legs.get(Role.SHADOW),
        control=legs.get(Role.CONTROL),
        skipped=None if row["skipped"] is None else SkipReason(row["skipped"]),
        client_request_id=row["client_request_id"],
        sequence=row["sequence"],
    )


def legs_of(rows: Iterable[Row], open_body: OpenBody) -> dict[Role, Observation]:
    """Build the legs from their rows, but for those of a role that only another version knows."""
    return {Role(row["role"]): observation_of(row, open_body) for row in rows if row["role"] in _ROLES}


def observation_of(row: Row, open_body: OpenBody) -> Observation:
    """Build a leg from its row."""
    kind = row["failure_kind"]
    arrivals = json.loads(row["arrivals_s"])
    timed = arrivals if not arrivals or not isinstance(arrivals[0], list) else [at for at, _ in arrivals]
    return Observation(
        backend=row["backend"],
        server=row["server"],
        status=row["status"],
        headers=_decode_headers(row["headers"]),
        body=_body_of(row["role"], row, open_body),
        first_byte_s=row["first_byte_s"],
        total_s=row["total_s"],
        arrivals_s=tuple(timed),
        arrival_bytes=() if timed is arrivals else tuple(size for _, size in arrivals),
        failure=None if kind is None else Failure(FailureKind(kind), row["failure_detail"]),
    )


def _arrivals(leg: Observation) -> list[float] | list[tuple[float, int]]:
    """Return the arrivals with the sizes of the chunks where those are known."""
    if len(leg.arrival_bytes) != len(leg.arrivals_s):
        return list(leg.arrivals_s)
    return list(zip(leg.arrivals_s, leg.arrival_bytes, strict=True))


def _body_fields(role: str, body: Body | None, seal: SealBody) -> dict[str, Any]:
    if body is None:
        return dict.fromkeys(
            ("body_digest", "body_size_bytes", "body_media_type", "body_content_encoding", "body_inline")
        )
    digest, inline = seal(role, body)
    return {
        "body_digest": digest,
        "body_size_bytes": body.size_bytes,
        "body_media_type": body.media_type,
        "body_content_encoding": body.content_encoding,
        "body_inline": inline,
    }


def _body_of(role: str, row: Row, open_body: OpenBody) -> Body | None:
    if row["body_digest"] is None:
        return None
    chunks, place = open_body(role, row)
    return Body(
        row["body_digest"],
        row["body_size_bytes"],
        row["body_media_type"],
        row["body_content_encoding"],
        chunks,
        place,
    )


def _encode_headers(headers: Headers) -> str:
    return json.dumps([(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers])


def _decode_headers(text: str) -> Headers:
    return tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in json.loads(text))
