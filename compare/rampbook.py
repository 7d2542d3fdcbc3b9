"""Ramps in the store: where each is, every move that was ever made, and which driver owns them now.

A move is written in the same transaction as the ramp's new place and before the toggle is touched, so there is no move
without a record of who or what made it; whether the toggle has followed is the ramp's ``settled``. A place is replaced
only by whoever has read the present one (``version``): a person's word is never overwritten by a driver that had not
heard it yet.

A move back that was made while the store did not answer is recorded later (``record_late``), from the journal that took
it up before the toggle was touched.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    delete,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from compare.phrases import as_fields, from_stored, from_text, mark, say, to_text
from compare.ramp import Phase, Ramp
from compare.ramp_watch import Served
from shadow.store.database import writing
from shadow.store.rows import microseconds, moment

metadata = MetaData()
ramps = Table(
    "route_ramps",
    metadata,
    Column("route", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("body", Text, nullable=False),
)
moves = Table(
    "ramp_moves",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("route", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("phase", Text, nullable=False),
    Column("before", Integer, nullable=False),
    Column("after", Integer, nullable=False),
    Column("by", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Index("ramp_moves_newest", "route", "id"),
)
owners = Table(
    "ramp_owners",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("until_us", BigInteger, nullable=False),
)
_THE_ONE = 1


class Outrun(Exception):
    """Somebody else has changed the ramp since it was read; read it again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A ramp as it was read."""

    ramp: Ramp
    version: int


@dataclass(frozen=True, slots=True)
class Move:
    """A change of a ramp: percents of the candidate before and after, who or what made it, and why."""

    route: str
    at: datetime
    phase: Phase
    before: int
    after: int
    by: str
    reason: str


class RampBook:
    """The tables. Every method blocks; safe to use from several processes."""

    def __init__(self, engine: Engine) -> None:
        """Use ``engine``, the store's own, and create the tables where they are missing."""
        self._engine = engine
        with writing(engine).begin() as connection:
            metadata.create_all(connection)

    def read(self, route: str) -> Entry | None:
        """Return a route's ramp, ``None`` where there never was one."""
        with self._engine.connect() as connection:
            row = connection.execute(select(ramps).where(ramps.c.route == route)).mappings().one_or_none()
        return None if row is None else Entry(_ramp_from_json(row["body"]), row["version"])

    def all(self) -> dict[str, Entry]:
        """Return every ramp, by route."""
        with self._engine.connect() as connection:
            rows = connection.execute(select(ramps).order_by(ramps.c.route)).mappings().all()
        return {row["route"]: Entry(_ramp_from_json(row["body"]), row["version"]) for row in rows}

    def save(self, ramp: Ramp, before: Entry | None, now: datetime) -> Entry:
        """Put ``ramp`` in the place of ``before`` and, where it is a move, record that. Raises ``Outrun``."""
        version = 1 if before is None else before.version + 1
        row = {"version": version, "body": _to_json(ramp)}
        with writing(self._engine).begin() as connection:
            if before is None:
                _insert_first(connection, {"route": ramp.route, **row})
            else:
                mine = (ramps.c.route == ramp.route, ramps.c.version == before.version)
                if connection.execute(update(ramps).where(*mine).values(row)).rowcount != 1:
                    raise Outrun(ramp.route)
            if before is None or _is_move(before.ramp, ramp):
                connection.execute(insert(moves), _move_row(before, ramp, now))
        return Entry(ramp, version)

    def record_late(self, move: Move, now: datetime) -> None:
        """Record a move that was made while the store did not answer, and put the ramp where it led, unless somebody
        has moved it since. The same move is recorded once, however often it comes."""
        source = mark("{reason} (recorded {seconds:.0f} s later: the store did not answer)")
        late = to_text(say(source, reason=move.reason, seconds=(now - move.at).total_seconds()))
        row = {**_columns(move), "reason": late}
        same = [moves.c[name] == row[name] for name in ("route", "at_us", "before", "after", "by")]
        mine = select(ramps).where(ramps.c.route == move.route)
        with writing(self._engine).begin() as connection:
            if connection.execute(select(moves.c.id).where(*same)).first() is not None:
                return
            connection.execute(insert(moves), row)
            found = connection.execute(mine).mappings().one_or_none()
            if found is None:
                _insert_first(connection, {"route": move.route, "version": 1, "body": _to_json(_led_to(move, None))})
                return
            ramp = _ramp_from_json(found["body"])
            if ramp.entered_at <= move.at:
                place = {"version": found["version"] + 1, "body": _to_json(_led_to(move, ramp))}
                connection.execute(update(ramps).where(ramps.c.route == move.route).values(place))

    def moves(self, route: str, limit: int = 20) -> list[Move]:
        """Return the newest moves of a route, the newest first."""
        query = select(moves).where(moves.c.route == route).order_by(moves.c.id.desc()).limit(limit)
        with self._engine.connect() as connection:
            rows = connection.execute(query).mappings().all()
        return [
            Move(
                r["route"],
                moment(r["at_us"]),
                Phase(r["phase"]),
                r["before"],
                r["after"],
                r["by"],
                from_text(r["reason"]),
            )
            for r in rows
        ]

    def claim(self, owner: str, now: datetime, ttl_s: float) -> str:
        """Take or keep the ownership of all ramps for ``ttl_s``; return who owns them now."""
        row = {"owner": owner, "until_us": microseconds(now + timedelta(seconds=ttl_s))}
        free = or_(owners.c.owner == owner, owners.c.until_us <= microseconds(now))
        try:
            with writing(self._engine).begin() as connection:
                if connection.execute(update(owners).where(free).values(row)).rowcount == 1:
                    return owner
                found = connection.execute(select(owners.c.owner)).scalar_one_or_none()
                if found is None:
                    connection.execute(insert(owners), {"id": _THE_ONE, **row})
                return found or owner
        except IntegrityError:  # another one was the first, in this very moment
            return self.owner(now) or "another driver"

    def release(self, owner: str) -> None:
        """Give the ownership back, so that another driver need not wait."""
        with writing(self._engine).begin() as connection:
            connection.execute(delete(owners).where(owners.c.owner == owner))

    def owner(self, now: datetime) -> str | None:
        """Return which driver owns the ramps, ``None`` where none runs."""
        with self._engine.connect() as connection:
            row = connection.execute(select(owners)).mappings().one_or_none()
        return None if row is None or row["until_us"] <= microseconds(now) else str(row["owner"])


def _insert_first(connection: Connection, row: dict[str, object]) -> None:
    try:
        connection.execute(insert(ramps), row)
    except IntegrityError as error:
        raise Outrun(str(row["route"])) from error


def _is_move(before: Ramp, after: Ramp) -> bool:
    return (before.phase, before.percent, before.entered_at) != (after.phase, after.percent, after.entered_at)


def _move_row(before: Entry | None, ramp: Ramp, now: datetime) -> dict[str, object]:
    came_from = ramp.percent if before is None else before.ramp.percent
    return _columns(Move(ramp.route, now, ramp.phase, came_from, ramp.percent, ramp.by, ramp.reason))


def _columns(move: Move) -> dict[str, object]:
    return {
        "route": move.route,
        "at_us": microseconds(move.at),
        "phase": move.phase.value,
        "before": move.before,
        "after": move.after,
        "by": move.by,
        "reason": to_text(move.reason),
    }


def _led_to(move: Move, ramp: Ramp | None) -> Ramp:
    """Return the place that a move led to. It is not settled: whether the toggle has followed is to be seen."""
    seen = 0 if ramp is None else ramp.sequence
    return Ramp(
        move.route, move.phase, move.after, move.at, move.by, move.reason,
        settled=False, before=move.before, sequence=seen, first_sequence=seen,
    )  # fmt: skip


def _to_json(ramp: Ramp) -> str:
    return json.dumps(asdict(ramp, dict_factory=as_fields), default=_encode, separators=(",", ":"))


def _encode(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no place in a ramp")


def _ramp_from_json(text: str) -> Ramp:
    raw: dict[str, Any] = json.loads(text)
    raw["phase"] = Phase(raw["phase"])
    raw["entered_at"] = datetime.fromisoformat(raw["entered_at"])
    raw["candidate"], raw["baseline"] = Served(**raw["candidate"]), Served(**raw["baseline"])
    raw["reason"], raw["waiting"] = from_stored(raw["reason"]), from_stored(raw["waiting"])
    since = raw.get("unseen_since")
    raw["unseen_since"] = since and datetime.fromisoformat(since)
    return Ramp(**raw)
