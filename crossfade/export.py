"""Write what is stored to a Parquet file: a row for each exchange in the order of arrival, with every number of both
answers side by side.

Bodies are left out unless asked for: then they are in plain, and whoever asked stands in the audit. The file is its
owner's alone and appears under its name only when it is whole.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from shadow.exchange import Body, Exchange, Observation
from shadow.store.reader import Reader

_AT_ONCE = 1000
_BODIES_AT_ONCE = 32
_MOST_BYTES = 64 * 1024 * 1024
_ROLES = ("primary", "shadow", "control")
_LEG: tuple[tuple[str, Any], ...] = (
    ("backend", pa.string()),
    ("server", pa.string()),
    ("status", pa.int32()),
    ("first_byte_s", pa.float64()),
    ("total_s", pa.float64()),
    ("failure", pa.string()),
    ("size_bytes", pa.int64()),
    ("digest", pa.string()),
    ("media_type", pa.string()),
)


Row = dict[str, object]
"""A row by column."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is exported: of all routes or one, received from ``since`` on and before ``until``."""

    route: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    bodies: bool = False


def schema_of(bodies: bool) -> Any:
    """Return the columns."""
    columns = [
        ("id", pa.string()), ("sequence", pa.int64()), ("route", pa.string()),
        ("received_at", pa.timestamp("us", "UTC")), ("client_request_id", pa.string()), ("method", pa.string()),
        ("target", pa.string()), ("request_size_bytes", pa.int64()), ("request_digest", pa.string()),
        ("request_media_type", pa.string()),
    ]  # fmt: skip
    columns += [(f"{role}_{name}", kind) for role in _ROLES for name, kind in _LEG]
    if bodies:
        columns += [(f"{name}_body", pa.binary()) for name in ("request", *_ROLES)]
    return pa.schema(columns)


def export(reader: Reader, selection: Selection, file: Path, progress: Callable[[int], None]) -> int:
    """Write the file; return how many rows. ``progress`` is told of each page. Blocks."""
    schema, rows = schema_of(selection.bodies), 0
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")  # 0600, and nobody else's file
    os.close(handle)
    temporary = Path(name)
    try:
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for page in _pages(reader, selection):
                for found in _groups(_row(reader, exchange, selection.bodies) for exchange in page):
                    writer.write_table(pa.Table.from_pylist(found, schema))
                rows += len(page)
                progress(len(page))
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)
    return rows


def _pages(reader: Reader, selection: Selection) -> Iterator[list[Exchange]]:
    after, limit = None, _BODIES_AT_ONCE if selection.bodies else _AT_ONCE
    while page := reader.received(selection.route, selection.since, selection.until, after=after, limit=limit):
        yield page
        after = page[-1].received_at, page[-1].sequence


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows in lists whose bodies together hardly exceed ``_MOST_BYTES``: all of a page could be gigabytes."""
    group: list[Row] = []
    held = 0
    for row in rows:
        group.append(row)
        held += sum(len(value) for value in row.values() if isinstance(value, bytes))
        if held >= _MOST_BYTES:
            yield group
            group, held = [], 0
    if group:
        yield group


def _row(reader: Reader, exchange: Exchange, bodies: bool) -> Row:
    legs = {role.value: leg for role, leg in exchange.observations()}
    request = exchange.request
    row: Row = {
        "id": exchange.id, "sequence": exchange.sequence, "route": exchange.route, "received_at": exchange.received_at,
        "client_request_id": exchange.client_request_id, "method": request.method,
        "target": request.target.decode("latin-1"), "request_size_bytes": request.body.size_bytes,
        "request_digest": request.body.sha256, "request_media_type": request.body.media_type,
    }  # fmt: skip
    for role, leg in legs.items():
        row |= {f"{role}_{name}": value for name, value in _leg(leg).items()}
    if bodies:
        held: dict[str, Body | None] = {"request": request.body, **{role: leg.body for role, leg in legs.items()}}
        row |= {f"{name}_body": None if body is None else reader.load(body) for name, body in held.items()}
    return row


def _leg(leg: Observation) -> dict[str, object]:
    body = leg.body
    return {
        "backend": leg.backend,
        "server": leg.server,
        "status": leg.status,
        "first_byte_s": leg.first_byte_s,
        "total_s": leg.total_s,
        "failure": leg.failure and leg.failure.kind.value,
        "size_bytes": body and body.size_bytes,
        "digest": body and body.sha256,
        "media_type": body and body.media_type,
    }
