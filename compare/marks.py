"""When the gateway had lost what: its account is a total of each run, and coverage is judged for a stretch.

Known moments are the starts of a run (what ended before had lost all it ever would) and the job's own looks at the
account, which it keeps in a table of its own. A look that saw no further loss adds nothing and is not kept, and at most
one is kept a minute, so the table stays small.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta

from sqlalchemy import BigInteger, Column, Engine, Index, MetaData, Table, Text, select

from compare.coverage import DELIBERATE, Mark
from shadow.account import RouteAccount
from shadow.store.account_rows import account_of
from shadow.store.counting import snapshot
from shadow.store.database import writing
from shadow.store.folding import ended_of, is_open
from shadow.store.rows import microseconds, moment
from shadow.store.schema import accounts

metadata = MetaData()
looks = Table(
    "account_looks",
    metadata,
    Column("route", Text, nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("lost", Text, nullable=False),
    Index("account_looks_newest", "route", "at_us"),
)
_APART = timedelta(minutes=1)
_READ = 2000


class Marks:
    """The marks of every route. Safe to use from several processes."""

    def __init__(self, engine: Engine) -> None:
        """Use ``engine``, the store's own, and create the table where it is missing."""
        self._engine = engine
        with writing(engine).begin() as connection:
            metadata.create_all(connection)

    def of(self, route: str) -> tuple[Mark, ...]:
        """Return the newest marks of a route, in order of time."""
        query = select(looks).where(looks.c.route == route).order_by(looks.c.at_us.desc()).limit(_READ)
        with self._engine.connect() as connection:
            seen = [Mark(moment(row["at_us"]), json.loads(row["lost"])) for row in connection.execute(query).mappings()]
        return tuple(sorted([*seen, *self._run_starts(route)], key=lambda mark: mark.at))

    def add(self, route: str, mark: Mark) -> bool:
        """Keep a look at the account; return whether it told anything new."""
        newest = select(looks).where(looks.c.route == route).order_by(looks.c.at_us.desc()).limit(1)
        with writing(self._engine).begin() as connection:
            last = connection.execute(newest).mappings().one_or_none()
            if last is not None:
                apart = mark.at - moment(last["at_us"])
                if json.loads(last["lost"]) == dict(mark.lost) or apart < _APART:
                    return False
            row = {"route": route, "at_us": microseconds(mark.at), "lost": json.dumps(dict(mark.lost))}
            connection.execute(looks.insert(), row)
        return True

    def _run_starts(self, route: str) -> list[Mark]:
        """Return a mark at each start of a run: what the runs that had ended by then lost in all, in-flight requests
        included (they were never recorded); none from before the last of those that are summed up ended. A run that
        goes on beside it counts as if it had lost nothing before."""
        query = select(accounts).where(accounts.c.route == route, is_open()).order_by(accounts.c.updated_at_us)
        with snapshot(self._engine) as connection:
            runs = connection.execute(query).mappings().all()
            before, until_us = ended_of(connection, route)
        starts, ended, lost = [], 0, _lost(before)
        for started_us in sorted(row["started_at_us"] for row in runs if row["started_at_us"] > until_us):
            while ended < len(runs) and runs[ended]["updated_at_us"] < started_us:
                lost.update(_lost(account_of(runs[ended]).ended()))
                ended += 1
            starts.append(Mark(moment(started_us), dict(lost)))
        return starts[-_READ:]


def _lost(account: RouteAccount) -> Counter[str]:
    return +Counter({reason.value: n for reason, n in account.skipped.items() if reason not in DELIBERATE})
