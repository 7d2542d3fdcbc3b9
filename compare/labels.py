"""What people said of pairs, in a table of its own. Labels are appended and never changed; they never move a verdict.

``acceptable`` says that what differs is fine. That is a wish to change the policy, and a changed policy begins a new
epoch; so it becomes a draft for a person to put into the config, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sqlalchemy import BigInteger, Column, Engine, Index, Integer, MetaData, Table, Text, func, insert, select

from shadow.store.database import writing
from shadow.store.rows import microseconds, moment

metadata = MetaData()
labels = Table(
    "pair_labels",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("exchange_id", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("diagnosis", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Index("pair_labels_newest", "exchange_id", "id"),
    Index("pair_labels_of_route", "route", "diagnosis"),
)


class Judgment(StrEnum):
    """What a person thinks of a difference."""

    ACCEPTABLE = "acceptable"
    REAL = "real"
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Label:
    """One person's word on one pair; ``diagnosis`` is the code that the pair had then, empty for none."""

    exchange_id: str
    route: str
    diagnosis: str
    label: Judgment
    who: str
    at: datetime


class Labels:
    """The table. Every method blocks; safe to use from several processes."""

    def __init__(self, engine: Engine) -> None:
        """Use ``engine``, the store's own, and create the table where it is missing."""
        self._engine = engine
        with writing(engine).begin() as connection:
            metadata.create_all(connection)

    def add(self, label: Label) -> None:
        """Append a label."""
        row = {
            "exchange_id": label.exchange_id,
            "route": label.route,
            "diagnosis": label.diagnosis,
            "label": label.label.value,
            "who": label.who,
            "at_us": microseconds(label.at),
        }
        with writing(self._engine).begin() as connection:
            connection.execute(insert(labels), row)

    def of(self, exchange_id: str) -> Label | None:
        """Return the newest label of a pair."""
        return self.newest([exchange_id]).get(exchange_id)

    def newest(self, exchange_ids: Sequence[str]) -> dict[str, Label]:
        """Return the newest label of each pair that has one."""
        last = select(func.max(labels.c.id)).where(labels.c.exchange_id.in_(exchange_ids))
        query = select(labels).where(labels.c.id.in_(last.group_by(labels.c.exchange_id)))
        with self._engine.connect() as connection:
            rows = connection.execute(query).mappings().all()
        return {
            r["exchange_id"]: Label(
                r["exchange_id"], r["route"], r["diagnosis"], Judgment(r["label"]), r["who"], moment(r["at_us"])
            )
            for r in rows
        }

    def accepted(self, route: str) -> dict[str, int]:
        """Return how many pairs of each diagnosis are acceptable by their newest label."""
        last = select(func.max(labels.c.id)).where(labels.c.route == route).group_by(labels.c.exchange_id)
        query = select(labels.c.diagnosis, func.count()).where(
            labels.c.id.in_(last), labels.c.label == Judgment.ACCEPTABLE.value
        )
        with self._engine.connect() as connection:
            return {code: int(n) for code, n in connection.execute(query.group_by(labels.c.diagnosis)).all() if code}
