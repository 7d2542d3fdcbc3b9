"""The tables. Wall times are UTC microseconds, durations seconds (REAL), headers JSON text of Latin-1 strings.

``sequence`` is given at commit under the write lock, so that a reader that asks for all after the last one it saw
misses none, also with several writing processes. ``body_digest`` is the store's keyed digest of a body (HMAC-SHA-256,
``vault.py``): equal where the bytes are equal, and no help in confirming a known picture without the key. A
body's bytes are in its row up to ``INLINE_LIMIT_BYTES``, else an object (``objects.py``); encrypted in both.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
)

from shadow.keeping import Kept

SCHEMA_VERSION = 5
INLINE_LIMIT_BYTES = 8 * 1024

metadata = MetaData()
_Sequence = BigInteger().with_variant(Integer, "sqlite")  # only an INTEGER key counts up by itself in SQLite


def _body_columns(*, optional: bool) -> list[Column[object]]:
    return [
        Column("body_digest", Text, nullable=optional),
        Column("body_size_bytes", BigInteger, nullable=optional),
        Column("body_media_type", Text, nullable=optional),
        Column("body_content_encoding", Text, nullable=optional),
        Column("body_inline", LargeBinary),
    ]


exchanges = Table(
    "exchanges",
    metadata,
    Column("sequence", _Sequence, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("route", Text, nullable=False),
    Column("received_at_us", BigInteger, nullable=False),
    Column("client_request_id", Text, nullable=False),
    Column("skipped", Text),
    Column("method", Text, nullable=False),
    Column("target", LargeBinary, nullable=False),
    Column("headers", Text, nullable=False),
    *_body_columns(optional=False),
    Column("bodies", Text, nullable=False, server_default=Kept.SHARED.value),
    Index("exchanges_by_route", "route", "sequence"),
    Index("exchanges_by_route_and_time", "route", "received_at_us"),
    Index("exchanges_by_time", "received_at_us"),
    sqlite_autoincrement=True,
)

observations = Table(
    "observations",
    metadata,
    Column("sequence", _Sequence, ForeignKey("exchanges.sequence"), nullable=False),
    Column("role", Text, nullable=False),
    Column("backend", Text, nullable=False),
    Column("server", Text, nullable=False),
    Column("status", Integer),
    Column("headers", Text, nullable=False),
    Column("first_byte_s", Float),
    Column("total_s", Float),
    Column("arrivals_s", Text, nullable=False),
    Column("failure_kind", Text),
    Column("failure_detail", Text),
    *_body_columns(optional=True),
    PrimaryKeyConstraint("sequence", "role"),
)

accounts = Table(
    "accounts",
    metadata,
    Column("run_id", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("received", BigInteger, nullable=False),
    Column("recorded", BigInteger, nullable=False),
    Column("in_flight", BigInteger, nullable=False),
    Column("skipped", Text, nullable=False),
    Column("started_at_us", BigInteger, nullable=False),
    Column("updated_at_us", BigInteger, nullable=False),
    Column("refused", Text, nullable=False, server_default="{}"),
    Column("folded", Integer),
    PrimaryKeyConstraint("run_id", "route"),
)
Index(
    "accounts_open",
    accounts.c.route,
    sqlite_where=accounts.c.folded.is_(None),
    postgresql_where=accounts.c.folded.is_(None),
)

ended_accounts = Table(
    "ended_accounts",
    metadata,
    Column("route", Text, primary_key=True),
    Column("received", BigInteger, nullable=False),
    Column("recorded", BigInteger, nullable=False),
    Column("skipped", Text, nullable=False),
    Column("refused", Text, nullable=False),
    Column("updated_at_us", BigInteger, nullable=False),
)
"""The sum of the accounts that are ``folded`` (``folding.py``), and when the last of them changed last."""

body_keys = Table(
    "body_keys",
    metadata,
    Column("name", Text, primary_key=True),
    Column("wrapped", LargeBinary, nullable=False),
)
"""The store's keys, each encrypted under the master key: ``digests``, and one for each UTC day (``2026-05-04``). An
``ended 2026-05-04`` has no key: the bodies of that day are being deleted."""

exchange_hours = Table(
    "exchange_hours",
    metadata,
    Column("route", Text, nullable=False),
    Column("hour_us", BigInteger, nullable=False),
    Column("exchanges", BigInteger, nullable=False),
    PrimaryKeyConstraint("route", "hour_us"),
)
"""How many exchanges of a route were received in the UTC hour that begins at ``hour_us`` (``counting.py``)."""

counted_to = Table(
    "counted_to",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("sequence", BigInteger, nullable=False),
)
"""One row: up to where the exchanges are in ``exchange_hours``; none in a database that was never counted."""
