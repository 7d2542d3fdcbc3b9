"""Keep the accounts few: those of runs that ended long ago are summed up, so that no page reads every run ever made.

Theory of operation. A row of ``accounts`` is *open* or *folded*. ``fold`` adds the open rows that nobody has touched
for long to ``ended_accounts``, one row a route, and marks them. A total is the ended accounts and the open rows. A
folded row stays where it is and as it is: should its run, or a worker that still has an exchange of it, come back after
all, the row is taken out of the sum and is open again before it changes. So nothing is counted twice, whatever comes
when. All of this happens under the write lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, select, tuple_, update
from sqlalchemy.exc import DBAPIError

from shadow.account import RouteAccount, together
from shadow.errors import StoreError
from shadow.store.account_rows import AccountRow, account_of, account_row
from shadow.store.database import insert_into, writing
from shadow.store.rows import microseconds
from shadow.store.schema import accounts, ended_accounts

OPEN_FOR = timedelta(days=30)
"""How long the account of a run that has ended stays by itself: so far back ``compare`` can tell when what was lost."""
SILENT_FOR = timedelta(hours=1)
OPEN_ROWS = 2000
"""How many rows stay open at most, but for those that were touched within ``SILENT_FOR``."""
_AT_ONCE = 5000


def write_accounts(connection: Connection, statement: Any, rows: Sequence[AccountRow]) -> None:
    """Execute one of the statements of ``account_rows``, which pass folded rows over, and open those before."""
    told = connection.execute(statement, rows, execution_options={"preserve_rowcount": True})
    if told.rowcount < len(rows):
        opened = _open(connection, {(row["run_id"], row["route"]) for row in rows})
        again = [row for row in rows if (row["run_id"], row["route"]) in opened]
        if again:
            connection.execute(statement, again)


def fold(engine: Engine, now: datetime, open_rows: int = OPEN_ROWS) -> int:
    """Fold what ended long ago; return how many rows that were. Blocks. Raises ``StoreError``."""
    try:
        return _fold(engine, now, open_rows)
    except DBAPIError as error:
        raise StoreError(f"the accounts could not be summed up: {error.orig}") from error
    except ValueError as error:
        raise StoreError(f"an account cannot be read: {error}") from error


def _fold(engine: Engine, now: datetime, open_rows: int) -> int:
    newest = select(accounts.c.updated_at_us).where(is_open()).order_by(accounts.c.updated_at_us.desc())
    with engine.connect() as connection:
        beyond = connection.execute(newest.offset(open_rows).limit(1)).scalar_one_or_none()
    before_us = microseconds(now - OPEN_FOR)
    if beyond is not None:
        before_us = max(before_us, min(microseconds(now - SILENT_FOR), beyond + 1))
    folded = 0
    while more := _fold_some(engine, before_us):
        folded += more
    return folded


def ended(connection: Connection) -> dict[str, RouteAccount]:
    """Return the sum of what is folded, by route."""
    rows = connection.execute(select(ended_accounts)).mappings()
    return {row["route"]: account_of({**row, "in_flight": 0}) for row in rows}


def ended_of(connection: Connection, route: str) -> tuple[RouteAccount, int]:
    """Return the sum of what is folded of one route, and when the last of it was touched last (UTC microseconds)."""
    row = connection.execute(select(ended_accounts).where(ended_accounts.c.route == route)).mappings().first()
    return (RouteAccount(), 0) if row is None else (account_of({**row, "in_flight": 0}), row["updated_at_us"])


def is_open() -> Any:
    """Return the condition of rows that are in no sum."""
    return accounts.c.folded.is_(None)


def _fold_some(engine: Engine, before_us: int) -> int:
    with writing(engine).begin() as connection:
        old = select(accounts).where(is_open(), accounts.c.updated_at_us < before_us).limit(_AT_ONCE)
        rows = connection.execute(old).mappings().all()
        _add_up(connection, rows, RouteAccount.plus)
        _mark(connection, [(row["run_id"], row["route"]) for row in rows], folded=True)
    return len(rows)


def _open(connection: Connection, keys: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Take those of the rows that are folded out of the sums; return which they were."""
    known = select(accounts).where(_among(list(keys)), accounts.c.folded.is_not(None))
    rows = connection.execute(known).mappings().all()
    _add_up(connection, rows, RouteAccount.minus)
    opened = [(row["run_id"], row["route"]) for row in rows]
    _mark(connection, opened, folded=False)
    return set(opened)


def _add_up(
    connection: Connection, rows: Sequence[Any], change: Callable[[RouteAccount, RouteAccount], RouteAccount]
) -> None:
    parts: defaultdict[str, list[Any]] = defaultdict(list)
    for row in rows:
        parts[row["route"]].append(row)
    for route, of_route in parts.items():
        known, until_us = ended_of(connection, route)
        part = together(account_of(row).ended() for row in of_route)
        until_us = max(until_us, *(row["updated_at_us"] for row in of_route))
        whole = account_row("", route, change(known, part), until_us)
        values = {column.name: whole[column.name] for column in ended_accounts.columns}
        put = insert_into(ended_accounts, connection).values(values)
        connection.execute(put.on_conflict_do_update(index_elements=["route"], set_=values))


def _mark(connection: Connection, keys: list[tuple[str, str]], *, folded: bool) -> None:
    for start in range(0, len(keys), 500):
        among = _among(keys[start : start + 500])
        connection.execute(update(accounts).where(among).values(folded=1 if folded else None))


def _among(keys: list[tuple[str, str]]) -> Any:
    return tuple_(accounts.c.run_id, accounts.c.route).in_(keys)
