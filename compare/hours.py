"""How many pairs of each UTC hour ask for a person, kept beside the measurements: no page counts history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    func,
    inspect,
    select,
)

from compare.facets import facets
from shadow.store.counting import HOUR_US
from shadow.store.database import insert_into
from shadow.store.rows import microseconds, moment

ASKS_FOR_A_PERSON = 2
"""The least severity (``compare.results.severity``) of a pair that failed, differs, is broken or is critical."""

metadata = MetaData()
hours = Table(
    "pair_hours",
    metadata,
    Column("route", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("hour_us", BigInteger, nullable=False),
    Column("bad", BigInteger, nullable=False),
    PrimaryKeyConstraint("route", "key", "hour_us"),
)


def create(connection: Connection, known: Iterable[tuple[str, str]]) -> None:
    """Create the table where it is missing, and count what the ``known`` routes and keys have in the facets."""
    if inspect(connection).has_table(hours.name):
        return
    metadata.create_all(connection)
    hour = facets.c.received_at_us - facets.c.received_at_us % HOUR_US
    for route, key in known:
        found = select(facets.c.route, facets.c.key, hour, func.count()).group_by(facets.c.route, facets.c.key, hour)
        found = found.where(facets.c.route == route, facets.c.key == key, facets.c.severity >= ASKS_FOR_A_PERSON)
        connection.execute(hours.insert().from_select(["route", "key", "hour_us", "bad"], found))


def add(connection: Connection, rows: Sequence[Mapping[str, object]]) -> None:
    """Count new pairs, told by their ``facet_row``."""
    found: Counter[tuple[object, object, int]] = Counter()
    for row in rows:
        if int(str(row["severity"])) >= ASKS_FOR_A_PERSON:
            at_us = int(str(row["received_at_us"]))
            found[row["route"], row["key"], at_us - at_us % HOUR_US] += 1
    for (route, key, hour_us), n in found.items():
        one = insert_into(hours, connection).values(route=route, key=key, hour_us=hour_us, bad=n)
        more = {"bad": hours.c.bad + n}
        connection.execute(one.on_conflict_do_update(index_elements=["route", "key", "hour_us"], set_=more))


def bad_since(connection: Connection, route: str, key: str, since: datetime) -> dict[datetime, int]:
    """Return how many pairs ask for a person in each hour from ``since``, the beginning of one, on."""
    query = select(hours.c.hour_us, hours.c.bad).where(hours.c.route == route, hours.c.key == key)
    found = connection.execute(query.where(hours.c.hour_us >= microseconds(since)))
    return {moment(hour_us): int(n) for hour_us, n in found}
