"""API keys: who a request comes from, proved. Pure.

A key is 256 random bits, so its plain SHA-256 is enough to keep: nobody can guess what goes in, and slow hashing would
only slow the gateway down. The first two bytes of the hash, which nobody can choose, say which few to look at, and
these are compared in constant time. A caller may have several keys at once, so that one can follow another without a
gap.

A key comes in ``X-Api-Key``, ``Api-Key`` or ``Authorization: Bearer``. The fields that hold a key of the gateway's are
taken out of the request as soon as it is known: neither backend nor store ever sees one.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from gateway.settings import ApiCaller
from shadow.exchange import Headers

KEY_PREFIX = "cf_"
HASH_PREFIX = "sha256:"
_PLAIN_FIELDS = (b"x-api-key", b"api-key")
_KEY_FIELDS = frozenset({*_PLAIN_FIELDS, b"authorization"})
_BEARER = b"bearer "
_SHELF_BYTES = 2


class Unknown(Enum):
    """Why no caller is known."""

    NO_KEY = "no_key"
    WRONG_KEY = "wrong_key"


@dataclass(frozen=True, slots=True)
class Identified:
    """A known caller, and the request's fields without its key."""

    caller: ApiCaller
    headers: Headers = field(repr=False)


class Keyring:
    """The keys of all callers; ``is_empty`` says that there are no callers, and so nobody is asked for a key. Raises
    ``ValueError`` for a hash that is none or that two entries share."""

    def __init__(self, callers: Iterable[ApiCaller]) -> None:
        self.is_empty = True
        self._shelves: dict[bytes, list[tuple[bytes, ApiCaller]]] = {}
        for caller in callers:
            self.is_empty = False
            for text in caller.keys:
                digest = _digest_in(text, caller.name)
                shelf = self._shelves.setdefault(digest[:_SHELF_BYTES], [])
                if any(known == digest for known, _ in shelf):
                    raise ValueError(f"callers.{caller.name}: a key is listed twice, or is another caller's too")
                shelf.append((digest, caller))

    def identify(self, headers: Headers) -> Identified | Unknown:
        """Return whose key the fields hold, whose names are in lower case. Keys of two callers in one request are as
        good as a wrong one."""
        owners: list[ApiCaller] = []
        taken: list[tuple[bytes, bytes]] = []
        candidates = 0
        for shown in [pair for pair in headers if pair[0] in _KEY_FIELDS]:
            key = _key_in(*shown)
            owner = self._owner(key) if key is not None else None
            candidates += key is not None
            if owner is not None:
                taken.append(shown)
                if owner not in owners:
                    owners.append(owner)
        if len(owners) == 1:
            return Identified(owners[0], tuple([pair for pair in headers if pair not in taken]))
        return Unknown.WRONG_KEY if candidates else Unknown.NO_KEY

    def _owner(self, key: bytes) -> ApiCaller | None:
        digest = hashlib.sha256(key).digest()
        found = None
        for known, owner in self._shelves.get(digest[:_SHELF_BYTES], ()):
            found = owner if hmac.compare_digest(known, digest) else found
        return found


def new_key() -> tuple[str, str]:
    """Return a new key, and the hash that the config keeps of it."""
    key = KEY_PREFIX + secrets.token_urlsafe(32)
    return key, HASH_PREFIX + hashlib.sha256(key.encode("ascii")).hexdigest()


def _key_in(name: bytes, value: bytes) -> bytes | None:
    if name in _PLAIN_FIELDS:
        return value.strip() or None
    if value[: len(_BEARER)].lower() == _BEARER:
        return value[len(_BEARER) :].strip() or None
    return None


def _digest_in(text: str, caller: str) -> bytes:
    try:
        digest = bytes.fromhex(text.removeprefix(HASH_PREFIX))
    except ValueError:
        digest = b""
    if len(digest) != 32:
        raise ValueError(f"callers.{caller}: a key is given as {HASH_PREFIX} and 64 hexadecimal digits")
    return digest
