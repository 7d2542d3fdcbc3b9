"""What the job found, in tables of its own beside the record.

A measurement is keyed by exchange and measurement key and inserted at most once, so a restarted job continues and two
jobs at once do not count twice. Counts by class, what a list is filtered by (``facets``) and what an hour brought
(``hours``) are kept beside them in the same transaction, so that a page or a batch never counts history. Of verdicts
that decide the same one after the other the last is kept; they are looked for by policy hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Select,
    Table,
    Text,
    UniqueConstraint,
    func,
    inspect,
    select,
)

from compare import facets, hours
from compare.measurement import Measurement, OutputClass, measurement_from_json
from compare.verdict import Verdict, verdict_from_json
from shadow.store.database import insert_into, writing

metadata = MetaData()
measurements = Table(
    "pair_measurements",
    metadata,
    Column("exchange_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("severity", Integer, nullable=False),
    Column("class", Text, nullable=False),
    Column("body", Text, nullable=False),
    UniqueConstraint("exchange_id", "key"),
    Index("pair_measurements_in_order", "route", "key", "sequence"),
    Index("pair_measurements_worst_first", "route", "key", "severity", "sequence"),
)
verdicts = Table(
    "route_verdicts",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("route", Text, nullable=False),
    Column("policy_hash", Text, nullable=False),
    Column("decision", Text, nullable=False),
    Column("body", Text, nullable=False),
    Index("route_verdicts_newest", "route", "id"),
)
counts = Table(
    "pair_counts",
    metadata,
    Column("route", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("class", Text, nullable=False),
    Column("pairs", BigInteger, nullable=False),
    PrimaryKeyConstraint("route", "key", "class"),
)
_AT_ONCE = 500
FAILED, NOT_COMPARED, BOTH_REFUSED = "failed", "not_compared", "both_refused"


def class_name(m: Measurement) -> str:
    """Return how a pair is filed: its output class, ``both_refused``, ``failed`` or ``not_compared``."""
    if m.judgement.output_class is not None:
        return m.judgement.output_class.value
    if m.both_refused:
        return BOTH_REFUSED
    return NOT_COMPARED if m.not_comparable is not None else FAILED


def severity(m: Measurement) -> int:
    """Return how much a pair asks for a person: 5 critical, 4 broken, 3 different, 2 failed, 1 not compared, 0 fine."""
    if m.judgement.critical is not None:
        return 5
    order = {OutputClass.BROKEN.value: 4, OutputClass.DIFFERENT.value: 3, FAILED: 2, NOT_COMPARED: 1}
    return order.get(class_name(m), 0)


class Results:
    """The job's tables in the store's database. Safe to use from several processes."""

    def __init__(self, engine: Engine) -> None:
        """Use ``engine``, the store's own, and create the tables where they are missing."""
        self._engine = engine
        with writing(engine).begin() as connection:
            counted = inspect(connection).has_table(counts.name)
            metadata.create_all(connection)
            if not counted:
                group = (measurements.c.route, measurements.c.key, measurements.c["class"])
                known = select(*group, func.count()).group_by(*group)
                connection.execute(
                    insert_into(counts, connection).from_select(["route", "key", "class", "pairs"], known)
                )
            facets.create(connection, _known(connection))
            pairs = connection.execute(select(func.coalesce(func.sum(counts.c.pairs), 0))).scalar_one()
        facets.catch_up(engine, self._filed, int(pairs))
        with writing(engine).begin() as connection:  # in this order: they are counted from the facets
            hours.create(connection, _known(connection))

    def add(self, key: str, found: Sequence[Measurement]) -> int:
        """Store measurements in one transaction; return how many were new."""
        rows = [
            {
                "exchange_id": m.exchange_id,
                "key": key,
                "route": m.route,
                "sequence": m.sequence,
                "severity": severity(m),
                "class": class_name(m),
                "body": m.to_json(),
            }
            for m in found
        ]
        if not rows:
            return 0
        new: dict[str, tuple[str, str]] = {}
        with writing(self._engine).begin() as connection:
            for start in range(0, len(rows), _AT_ONCE):
                added = (
                    insert_into(measurements, connection)
                    .values(rows[start : start + _AT_ONCE])
                    .on_conflict_do_nothing()
                )
                named = measurements.c.exchange_id, measurements.c.route, measurements.c["class"]
                new.update((id_, (route, name)) for id_, route, name in connection.execute(added.returning(*named)))
            fresh = [facets.facet_row(m, key, severity(m), class_name(m)) for m in found if m.exchange_id in new]
            for start in range(0, len(fresh), _AT_ONCE):
                facets.add(connection, fresh[start : start + _AT_ONCE])
            hours.add(connection, fresh)
            for (route, name), n in Counter(new.values()).items():
                row = insert_into(counts, connection).values(route=route, key=key, pairs=n, **{"class": name})
                more = {"pairs": counts.c.pairs + n}
                connection.execute(row.on_conflict_do_update(index_elements=["route", "key", "class"], set_=more))
        return len(new)

    def last_sequence(self, route: str, key: str) -> int:
        """Return the place in the record up to which this route is measured under this key, 0 for nothing."""
        query = select(func.max(measurements.c.sequence)).where(*_of(route, key))
        with self._engine.connect() as connection:
            return connection.execute(query).scalar_one() or 0

    def keys(self, route: str) -> list[str]:
        """Return the keys that this route was ever measured under."""
        query = select(counts.c.key).where(counts.c.route == route).distinct()
        with self._engine.connect() as connection:
            return list(connection.execute(query).scalars())

    def measurements(
        self, route: str, key: str, after_sequence: int = 0, limit: int | None = None
    ) -> list[Measurement]:
        """Return the next measurements of a route under a key, in order of sequence; all of them without a limit."""
        query = select(measurements.c.body).where(*_of(route, key), measurements.c.sequence > after_sequence)
        return self._parsed(query.order_by(measurements.c.sequence).limit(limit))

    def worst(
        self,
        route: str,
        key: str,
        *,
        class_: str | None = None,
        from_sequence: int = 0,
        offset: int = 0,
        limit: int = 50,
    ) -> list[Measurement]:
        """Return a page of measurements, those that ask for a person first, the newest first among equals."""
        conditions = facets.Wanted((class_,) if class_ is not None else ()).conditions(route, key)
        if from_sequence:
            conditions.append(facets.facets.c.sequence >= from_sequence)
        return self._parsed(_page(route, key, conditions, offset, limit))

    def find(
        self, route: str, key: str, wanted: facets.Wanted, offset: int, limit: int
    ) -> tuple[list[Measurement], int]:
        """Return a page of the pairs that a filter takes, in the order of ``worst``, and how many there are in all."""
        conditions = wanted.conditions(route, key)
        with self._engine.connect() as connection:
            total = connection.execute(select(func.count()).select_from(facets.facets).where(*conditions)).scalar_one()
        return (self._parsed(_page(route, key, conditions, offset, limit)) if total > offset else []), total

    def _filed(self, route: str, key: str, after: int, limit: int) -> list[tuple[Measurement, int, str]]:
        """Return the next measurements with how they were filed."""
        found = self.measurements(route, key, after, limit)
        return [(m, severity(m), class_name(m)) for m in found]

    def counts(self, route: str, key: str) -> dict[str, int]:
        """Return how many measurements there are of each class name."""
        query = select(counts.c["class"], counts.c.pairs).where(counts.c.route == route, counts.c.key == key)
        with self._engine.connect() as connection:
            return {name: int(count) for name, count in connection.execute(query).all()}

    def bad_since(self, route: str, key: str, since: datetime) -> dict[datetime, int]:
        """Return how many pairs ask for a person in each hour from ``since``, the beginning of one, on."""
        with self._engine.connect() as connection:
            return hours.bad_since(connection, route, key, since)

    def measurement(self, exchange_id: str, key: str) -> Measurement | None:
        """Return one measurement."""
        query = select(measurements.c.body).where(measurements.c.exchange_id == exchange_id, measurements.c.key == key)
        return next(iter(self._parsed(query)), None)

    def save_verdict(self, verdict: Verdict) -> None:
        """Append a verdict. It takes the place of the one before under the same policy if that decided the same: a
        comparison that follows the traffic judges each second."""
        row = {
            "route": verdict.route,
            "policy_hash": verdict.policy_hash,
            "decision": verdict.decision.value,
            "body": verdict.to_json(),
        }
        mine = verdicts.c.route == verdict.route, verdicts.c.policy_hash == verdict.policy_hash
        before = select(verdicts.c.id, verdicts.c.decision).where(*mine).order_by(verdicts.c.id.desc()).limit(1)
        with writing(self._engine).begin() as connection:
            last = connection.execute(before).one_or_none()
            connection.execute(verdicts.insert(), row)
            if last is not None and last.decision == row["decision"]:
                connection.execute(verdicts.delete().where(verdicts.c.id == last.id))

    def latest_verdict(self, route: str, policy_hash: str | None = None) -> Verdict | None:
        """Return the newest verdict of a route, under one policy or under any."""
        query = select(verdicts.c.body).where(verdicts.c.route == route)
        if policy_hash is not None:
            query = query.where(verdicts.c.policy_hash == policy_hash)
        with self._engine.connect() as connection:
            text = connection.execute(query.order_by(verdicts.c.id.desc()).limit(1)).scalar_one_or_none()
        return None if text is None else verdict_from_json(text)

    def _parsed(self, query: Select[Any]) -> list[Measurement]:
        with self._engine.connect() as connection:
            return [measurement_from_json(text) for text in connection.execute(query).scalars()]


def _known(connection: Connection) -> list[tuple[str, str]]:
    """Return the routes and keys with a measurement."""
    groups = select(counts.c.route, counts.c.key).distinct()
    return [(route, key) for route, key in connection.execute(groups)]


def _page(
    route: str, key: str, conditions: Sequence[ColumnElement[bool]], offset: int, limit: int
) -> Select[tuple[str]]:
    """Return the query of a page of bodies, the worst first, the newest first among equals. What is passed over is
    passed over in the narrow rows, by their key; bodies are looked up for what is shown."""
    table = facets.facets
    order = (table.c.severity.desc(), table.c.sequence.desc())
    page = select(table.c.severity, table.c.sequence).where(*conditions).order_by(*order)
    shown = page.offset(offset).limit(limit).subquery()
    bodies = select(measurements.c.body).join(shown, measurements.c.sequence == shown.c.sequence)
    return bodies.where(*_of(route, key)).order_by(shown.c.severity.desc(), shown.c.sequence.desc())


def _of(route: str, key: str) -> tuple[ColumnElement[bool], ...]:
    return measurements.c.route == route, measurements.c.key == key
