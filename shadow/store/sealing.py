"""Turn an exchange into rows and objects that hold nothing readable, and open what was stored so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from shadow.errors import CorruptBody
from shadow.exchange import Body, Exchange
from shadow.keeping import Kept
from shadow.store.objects import Objects
from shadow.store.rows import Row, exchange_row, microseconds, observation_rows
from shadow.store.schema import INLINE_LIMIT_BYTES
from shadow.store.vault import Vault, day_of, unseal

DAMAGED = "damaged"
"""The place of a body whose row was tampered with; loading it raises ``CorruptBody``."""


@dataclass(frozen=True, slots=True)
class ExchangeRows:
    """The rows of one exchange, without its sequence. ``days`` names the key that its bodies are sealed under, if it
    has any."""

    row: Mapping[str, Any]
    legs: tuple[Mapping[str, Any], ...]
    days: frozenset[str] = frozenset()


def seal_exchange(exchange: Exchange, kept: Kept, vault: Vault, objects: Objects) -> ExchangeRows:
    """Put the large bodies into ``objects`` and return the rows. Blocks. Raises ``OSError`` or ``StoreError``.

    A large body is there before any row speaks of it, so a crash in between leaves at most an object without a row,
    which goes with its day.
    """
    day = day_of(microseconds(exchange.received_at))

    def seal(role: str, body: Body) -> tuple[str, bytes | None]:
        digest = vault.digest(body.sha256)
        if body.chunks is None or not kept.readable:
            return digest, None
        if not body.on_disk and body.held_bytes <= INLINE_LIMIT_BYTES:
            return digest, vault.seal(day, row_place(exchange.id, role), b"".join(body.chunks))
        name = vault.object_name(day, digest, _owner(kept, exchange.id))
        objects.put(name, partial(vault.seal_chunks, day, name, body.chunks))
        return digest, None

    row = {**exchange_row(exchange, seal), "bodies": kept.value}
    legs = tuple(observation_rows(exchange, seal))
    sealed = kept.readable and any(body.chunks is not None for body in exchange.bodies())
    return ExchangeRows(row, legs, frozenset({day} if sealed else ()))


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens the bodies in the rows of one exchange. ``key`` is that of its day, ``None`` when that is destroyed."""

    exchange_id: str
    day: str
    kept: Kept
    vault: Vault
    key: bytes | None

    @classmethod
    def of(cls, row: Row, vault: Vault, keys: Mapping[str, bytes]) -> Opener:
        """Return the opener for the exchange of this row."""
        day = day_of(row["received_at_us"])
        return cls(row["id"], day, Kept(row["bodies"]), vault, keys.get(day))

    def __call__(self, role: str, row: Row) -> tuple[tuple[bytes, ...] | None, str]:
        """Return a body's chunks where they are in the row, else none and the name of the object. Reads no object."""
        if not self.kept.readable or self.key is None:
            return None, ""
        sealed: bytes | None = row["body_inline"]
        if sealed is None:
            return None, self.object_name(row)
        try:
            content = unseal(self.key, row_place(self.exchange_id, role), bytes(sealed))
        except CorruptBody:
            return None, DAMAGED  # told when it is loaded: one bad row must not hide the others
        return (content,) if content else (), ""

    def object_name(self, row: Row) -> str:
        """Return the name of the object of a large body; there need not be one."""
        return self.vault.object_name(self.day, row["body_digest"], _owner(self.kept, self.exchange_id))


def row_place(exchange_id: str, role: str) -> str:
    """Return what a body in a row is bound to."""
    return f"{exchange_id}/{role}"


def _owner(kept: Kept, exchange_id: str) -> str:
    return exchange_id if kept is Kept.OWN else ""
