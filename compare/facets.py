"""What a list of pairs is filtered by: one narrow row a pair, in the order of the list, beside its measurement.

A filter that no count knows (a diagnosis, a time, a latency, a build) reads these rows and never a measurement's body,
so that it covers all pairs of a route. In SQLite the rows lie in the order of the list (a clustered table).

A database that is older than this table is filled up once, a short transaction at a time so that gateways never wait
long for the write lock: ``backlog`` has a row for each route and key that is not filled yet, and how far it is. A
process that dies in between leaves the rest to the next; two at once do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Float,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    inspect,
    select,
)

from compare.measurement import Measurement
from shadow.store.database import insert_into, writing
from shadow.store.progress import logged
from shadow.store.rows import microseconds

metadata = MetaData()
facets = Table(
    "pair_facets",
    metadata,
    Column("route", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("severity", Integer, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("class", Text, nullable=False),
    Column("received_at_us", BigInteger, nullable=False),
    Column("candidate_s", Float),
    Column("diagnoses", Text, nullable=False),
    Column("builds", Text, nullable=False),
    PrimaryKeyConstraint("route", "key", "severity", "sequence"),
    sqlite_with_rowid=False,
)
backlog = Table(
    "pair_facets_backlog",
    metadata,
    Column("route", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("filled_to", BigInteger, nullable=False),
    PrimaryKeyConstraint("route", "key"),
)
_AT_ONCE = 1000
Page = Callable[[str, str, int, int], Sequence[tuple[Measurement, int, str]]]
"""Returns the next (measurement, severity, class) of a route and key after a sequence, at most so many."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which pairs are looked for. ``classes`` none means any; ``since`` counts, ``until`` does not any more;
    ``slower_s`` is the least wait for the candidate (a failure waits for ever); ``model`` is part of either side's
    build, in any case."""

    classes: tuple[str, ...] = ()
    diagnosis: str = ""
    since: datetime | None = None
    until: datetime | None = None
    slower_s: float | None = None
    model: str = ""

    def conditions(self, route: str, key: str) -> list[ColumnElement[bool]]:
        """Return what a row must fulfil."""
        found: list[ColumnElement[bool]] = [facets.c.route == route, facets.c.key == key]
        if self.classes:
            found.append(facets.c["class"].in_(self.classes))
        if self.diagnosis:
            found.append(facets.c.diagnoses.contains(f" {_plain(self.diagnosis)} ", autoescape=True))
        if self.since is not None:
            found.append(facets.c.received_at_us >= microseconds(self.since))
        if self.until is not None:
            found.append(facets.c.received_at_us < microseconds(self.until))
        if self.slower_s is not None:
            found.append(facets.c.candidate_s >= self.slower_s)
        if self.model:
            found.append(facets.c.builds.contains(_plain(self.model).lower(), autoescape=True))
        return found


def facet_row(m: Measurement, key: str, severity: int, class_: str) -> Mapping[str, object]:
    """Return the row of a measurement."""
    builds = "\n".join(leg.build or "" for leg in (m.baseline, m.candidate) if leg is not None)
    return {
        "route": m.route,
        "key": key,
        "severity": severity,
        "sequence": m.sequence,
        "class": class_,
        "received_at_us": microseconds(m.received_at),
        "candidate_s": m.candidate.wait_s if m.candidate is not None else None,
        "diagnoses": _plain(f" {' '.join(d.code for d in m.judgement.diagnoses)} "),
        "builds": _plain(builds).lower(),
    }


def _plain(text: str) -> str:
    """Leave out what PostgreSQL does not take in a text."""
    return text.replace("\0", "")


def create(connection: Connection, known: Sequence[tuple[str, str]]) -> None:
    """Create the tables where they are missing; the routes and keys that are ``known`` are to be filled then."""
    missing = not inspect(connection).has_table(facets.name)
    metadata.create_all(connection)
    if missing and known:
        rows = [{"route": route, "key": key, "filled_to": 0} for route, key in known]
        connection.execute(backlog.insert(), rows)


def add(connection: Connection, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert rows; those that are there already stay."""
    if rows:
        connection.execute(insert_into(facets, connection).on_conflict_do_nothing(), list(rows))


def catch_up(engine: Engine, page: Page, total: int) -> None:
    """Fill what is older than the table, of ``total`` pairs at most. Blocks; resumes where another one stopped."""
    filled, tell = 0, logged("preparing the filters of the dashboard for older pairs")
    with engine.connect() as connection:
        due = connection.execute(select(backlog)).all()
    for route, key, filled_to in due:
        while found := page(route, key, filled_to, _AT_ONCE):
            filled_to = found[-1][0].sequence
            with writing(engine).begin() as connection:
                add(connection, [facet_row(m, key, severity, class_) for m, severity, class_ in found])
                connection.execute(backlog.update().where(*_of(route, key)).values(filled_to=filled_to))
            filled += len(found)
            tell(filled, total)
        with writing(engine).begin() as connection:
            connection.execute(backlog.delete().where(*_of(route, key)))


def _of(route: str, key: str) -> tuple[ColumnElement[bool], ...]:
    return backlog.c.route == route, backlog.c.key == key
