"""How accounts are kept in the database: two statements that may come in any order and never lose a count.

``recorded`` belongs to the rows: each exchange that is newly stored adds one, in its own transaction, whichever process
stores it. ``received`` and ``skipped`` belong to the run of the gateway and come together, as of one moment; the later
of two is the one that has received more. ``in_flight`` is what is left. ``refused`` is in no identity and comes with
the run's own word alone.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from sqlalchemy import Connection, case

from shadow.account import RouteAccount, Stamp, skips_of
from shadow.store.database import insert_of
from shadow.store.rows import Row
from shadow.store.schema import accounts

_IS_OPEN = accounts.c.folded.is_(None)

AccountRow = dict[str, Any]
"""The parameters of one of the two statements."""


def count_recorded(connection: Connection) -> Any:
    """Return the statement that counts one exchange as recorded. Takes a ``stamped_row``."""
    return _counting(connection.dialect.name)


@cache  # to build it takes as long as to run it
def _counting(dialect: str) -> Any:
    insert, new, old = _parts(dialect)
    later = new.received >= old.received
    changes = {
        "recorded": old.recorded + 1,
        "received": case((later, new.received), else_=old.received),
        "skipped": case((later, new.skipped), else_=old.skipped),
        "in_flight": case((later, new.in_flight - old.recorded), else_=old.in_flight - 1),
        "updated_at_us": case((new.updated_at_us > old.updated_at_us, new.updated_at_us), else_=old.updated_at_us),
    }
    return insert.on_conflict_do_update(index_elements=["run_id", "route"], set_=changes, where=_IS_OPEN)


def update_account(connection: Connection) -> Any:
    """Return the statement that takes over what a run of the gateway says. Takes an ``account_row``."""
    return _updating(connection.dialect.name)


@cache
def _updating(dialect: str) -> Any:
    insert, new, old = _parts(dialect)
    later = new.received >= old.received
    most = case((new.recorded > old.recorded, new.recorded), else_=old.recorded)
    changes = {
        "received": case((later, new.received), else_=old.received),
        "recorded": most,
        "skipped": case((later, new.skipped), else_=old.skipped),
        "in_flight": case((later, new.in_flight + new.recorded), else_=old.in_flight + old.recorded) - most,
        "refused": case((new.refused == "{}", old.refused), else_=new.refused),  # whoever settles a dead run knows none
        "updated_at_us": new.updated_at_us,
    }
    return insert.on_conflict_do_update(index_elements=["run_id", "route"], set_=changes, where=_IS_OPEN)


def _parts(dialect: str) -> tuple[Any, Any, Any]:
    insert = insert_of(accounts, dialect)
    return insert, insert.excluded, accounts.c


def stamped_row(stamp: Stamp, route: str, at_us: int) -> AccountRow:
    """Return the account that the stamp tells of, with the one exchange as recorded."""
    open_requests = stamp.received - sum(stamp.skipped.values())
    return account_row(stamp.run_id, route, RouteAccount(stamp.received, 1, open_requests - 1, stamp.skipped), at_us)


def account_of(row: Row) -> RouteAccount:
    """Return the account of a row."""
    skipped, refused = skips_of(json.loads(row["skipped"])), json.loads(row["refused"])
    return RouteAccount(row["received"], row["recorded"], row["in_flight"], skipped, refused).mended()


def account_row(run_id: str, route: str, account: RouteAccount, at_us: int) -> AccountRow:
    """Return the account as the run itself sees it."""
    return {
        "run_id": run_id,
        "route": route,
        "received": account.received,
        "recorded": account.recorded,
        "in_flight": account.in_flight,
        "skipped": json.dumps({reason.value: count for reason, count in account.skipped.items()}),
        "refused": json.dumps(dict(account.refused)),
        "started_at_us": at_us,
        "updated_at_us": at_us,
    }
