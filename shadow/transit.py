"""What the stream carries of an exchange on its way from a gateway to a worker: nothing that Redis could read.

A parcel is the exchange's rows as the store would write them, and the stamp of its gateway, as JSON, encrypted as a
whole under the store's key of the day. Bodies up to 8 KiB are inside; larger ones lie in the store's place for bodies,
as objects of this parcel alone, until the worker has stored the exchange by the rules of its route. Objects whose
parcel was lost go with their day.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from shadow.account import Stamp, skips_of
from shadow.errors import CorruptBody, StoreError
from shadow.exchange import Body, Exchange, Role
from shadow.keeping import Kept
from shadow.store.opening import Opened
from shadow.store.reader import Reader
from shadow.store.rows import REQUEST, exchange_of, legs_of, microseconds
from shadow.store.sealing import Opener, seal_exchange
from shadow.store.vault import day_of, unseal

_OWNER = "/parcel"
"""Distinguishes a parcel's objects from those that the store may keep of the same exchange."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """One exchange as it travels: ``sealed`` under the key of ``day``; ``size_bytes`` counts its bodies in."""

    exchange_id: str
    day: str
    sealed: bytes
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A parcel that was opened: its bodies are in memory. ``objects`` are to be deleted when it is done with."""

    exchange: Exchange
    stamp: Stamp
    objects: tuple[str, ...]


@contextmanager
def _as_store_error() -> Iterator[None]:
    """Translate what the database raises where a key is read or founded."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(f"the database failed: {type(error).__name__}") from error


@_as_store_error()
def pack(exchange: Exchange, stamp: Stamp, parts: Opened) -> Parcel:
    """Put the large bodies away and return the parcel. Blocks. Raises ``OSError`` or ``StoreError``."""
    owned = replace(exchange, id=exchange.id + _OWNER)
    rows = seal_exchange(owned, Kept.OWN, parts.vault, parts.objects)
    told = {
        "row": dict(rows.row),
        "legs": [dict(leg) for leg in rows.legs],
        "stamp": _plain(stamp),
        "unkept": {role: body.sha256 for role, body in _by_role(exchange) if body.chunks is None},
    }
    text = json.dumps(told, default=_encode)
    day = day_of(microseconds(exchange.received_at))
    sealed = parts.vault.seal(day, _place(exchange.id), text.encode())
    bodies = sum(body.size_bytes for body in exchange.bodies() if body.chunks is not None)
    return Parcel(exchange.id, day, sealed, len(sealed) + bodies)


@_as_store_error()
def unpack(parcel: Parcel, parts: Opened) -> Unpacked:
    """Open the parcel and load its bodies. Blocks. Raises ``CorruptBody`` for one that will never open, ``OSError`` or
    ``StoreError`` where another attempt may succeed."""
    key = parts.vault.key_of(parcel.day)
    if key is None:
        raise CorruptBody("the key of the parcel's day is destroyed")
    told = json.loads(unseal(key, _place(parcel.exchange_id), parcel.sealed), object_hook=_decode)
    opener = Opener.of(told["row"], parts.vault, {parcel.day: key})
    packed = exchange_of({**told["row"], "sequence": 0}, legs_of(told["legs"], opener), opener)
    unkept: Mapping[str, str] = told["unkept"]
    objects = tuple(body.place for role, body in _by_role(packed) if body.place and role not in unkept)
    exchange = _loaded(packed, unkept, Reader(parts))
    return Unpacked(exchange, _stamp_of(told["stamp"]), objects)


def _loaded(packed: Exchange, unkept: Mapping[str, str], reader: Reader) -> Exchange:
    def load(role: str, body: Body) -> Body:
        if role in unkept:
            return replace(body, digest=unkept[role], chunks=None, place="")
        content = reader.load(body)
        if content is None:
            raise CorruptBody("a body of the parcel is gone")
        return replace(body, digest=hashlib.sha256(content).hexdigest(), chunks=(content,) if content else (), place="")

    request = replace(packed.request, body=load(REQUEST, packed.request.body))
    body = packed.primary.body
    primary = replace(packed.primary, body=body and load(Role.PRIMARY, body))
    return replace(packed, id=packed.id.removesuffix(_OWNER), request=request, primary=primary)


def _by_role(exchange: Exchange) -> Iterator[tuple[str, Body]]:
    yield REQUEST, exchange.request.body
    if exchange.primary.body is not None:
        yield Role.PRIMARY, exchange.primary.body


def _place(exchange_id: str) -> str:
    return f"{exchange_id}{_OWNER}"


def _plain(stamp: Stamp) -> dict[str, Any]:
    skipped = {reason.value: count for reason, count in stamp.skipped.items()}
    return {"run_id": stamp.run_id, "received": stamp.received, "skipped": skipped}


def _stamp_of(told: Mapping[str, Any]) -> Stamp:
    return Stamp(told["run_id"], told["received"], skips_of(told["skipped"]))


def _encode(value: object) -> dict[str, str]:
    if not isinstance(value, bytes):
        raise TypeError(type(value).__name__)
    return {"base64": base64.b64encode(value).decode()}


def _decode(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["base64"]) if value.keys() == {"base64"} else value
