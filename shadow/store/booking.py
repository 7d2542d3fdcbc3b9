"""Write batches of exchanges and accounts: what happens inside the writer's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, insert, select

from shadow.store.account_rows import AccountRow, count_recorded, update_account
from shadow.store.counting import count_new
from shadow.store.database import insert_of
from shadow.store.folding import write_accounts
from shadow.store.schema import exchanges, observations
from shadow.store.sealing import ExchangeRows
from shadow.store.vault import Vault


@dataclass(frozen=True, slots=True)
class Item:
    """What one job writes: an exchange, with the account that is brought up to date by it, or accounts alone."""

    exchange: ExchangeRows | None
    accounts: tuple[AccountRow, ...] = ()


def write_items(vault: Vault, connection: Connection, items: Sequence[Item]) -> list[int]:
    """Write a batch; return the sequence of each exchange, 0 for items without one.

    Raises ``KeyUnusable`` where a key that one was sealed under is gone: no row may have a body that nobody can open.
    """
    rows = [item.exchange for item in items if item.exchange is not None]
    if rows:
        vault.verify(frozenset[str]().union(*(each.days for each in rows)), connection)
    by_id = {item.exchange.row["id"]: item for item in reversed(items) if item.exchange is not None}
    sequences = _write_exchanges(connection, list(reversed(by_id.values()))) if by_id else {}
    alone = [row for item in items if item.exchange is None for row in item.accounts]
    if alone:
        write_accounts(connection, update_account(connection), alone)
    return [0 if item.exchange is None else sequences[item.exchange.row["id"]] for item in items]


def _write_exchanges(connection: Connection, items: Sequence[Item]) -> dict[str, int]:
    """Insert what is new by its id, count it in its account, and return the sequences of all. The ids differ."""
    exchanges_of = {item.exchange.row["id"]: item.exchange for item in items if item.exchange is not None}
    rows = [dict(rows.row) for rows in exchanges_of.values()]
    sequences = {id_: int(sequence) for id_, sequence in connection.execute(_adding(connection.dialect.name), rows)}
    legs = [{"sequence": sequence, **leg} for id_, sequence in sequences.items() for leg in exchanges_of[id_].legs]
    if legs:
        connection.execute(insert(observations), legs)
    if sequences:
        count_new(connection, max(sequences.values()))
    new = [item for item in items if item.exchange is not None and item.exchange.row["id"] in sequences]
    counted = [row for item in new for row in item.accounts]
    if counted:
        write_accounts(connection, count_recorded(connection), counted)
    known = sorted(exchanges_of.keys() - sequences.keys())
    if known:
        query = select(exchanges.c.id, exchanges.c.sequence).where(exchanges.c.id.in_(known))
        sequences.update({id_: int(sequence) for id_, sequence in connection.execute(query)})
    return sequences


@cache
def _adding(dialect: str) -> Any:
    added = insert_of(exchanges, dialect).on_conflict_do_nothing(index_elements=["id"])
    return added.returning(exchanges.c.id, exchanges.c.sequence)
