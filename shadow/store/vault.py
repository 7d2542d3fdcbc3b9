"""Encrypt and name bodies. What leaves here may lie in any database, folder or bucket.

Three kinds of keys, all 256 bits: the **master key** (``master_key.py``) encrypts the others; the **digest key**
turns a body's sha256 into the name it is known by; each UTC **day** has a key that the bodies received on it are
encrypted under (AES-256-GCM, NIST SP 800-38D, a random 96-bit nonce before the ciphertext). Deleting the row of a day's
key makes every body of that day unreadable, in every copy and backup of the objects.

A ciphertext is bound to where it lies (``place``, as associated data), so that none can be put in another's stead.
"""

from __future__ import annotations

import hmac
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Set

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection, Engine, select

from shadow.errors import CorruptBody, KeyUnusable
from shadow.store.database import insert_into, writing
from shadow.store.rows import moment
from shadow.store.schema import body_keys

DIGESTS = "digests"
ENDED = "ended "
"""Begins the name of a day whose key is destroyed and whose bodies are not all deleted yet (``expiry.py``)."""
_NONCE_BYTES = 12


def day_of(received_at_us: int) -> str:
    """Return the UTC day whose key is for what was received then, as ``2026-05-04``."""
    return moment(received_at_us).date().isoformat()


class Vault:
    """The keys of one store. Safe to use from several threads; several processes may have one each.

    Keys of days are kept in memory for writing only; each reading asks the database, so that a destroyed key is gone
    from a process that runs on. What was sealed is committed only after ``verify``: another process may have destroyed
    the key meanwhile.
    """

    def __init__(self, engine: Engine, master: bytes, digest_key: bytes) -> None:
        self._engine = engine
        self._master = master
        self._digest_key = digest_key
        self._days: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @classmethod
    def open(
        cls, engine: Engine, master_key: Callable[[bool], bytes], adopt: Callable[[Vault, Connection], None]
    ) -> Vault:
        """Open the vault of the store on ``engine``, or found one, which calls ``adopt`` in the same transaction.

        ``master_key(may_create)`` reads the master key. Raises ``KeyUnusable``.
        """
        with engine.connect() as connection:
            wrapped = _wrapped(connection, {DIGESTS}).get(DIGESTS)
        if wrapped is not None:
            master = master_key(False)
            return cls(engine, master, unwrap(master, DIGESTS, wrapped))
        with writing(engine).begin() as connection:
            wrapped = _wrapped(connection, {DIGESTS}).get(DIGESTS)  # another process may have founded it meanwhile
            master = master_key(wrapped is None)
            if wrapped is not None:
                return cls(engine, master, unwrap(master, DIGESTS, wrapped))
            vault = cls(engine, master, os.urandom(32))
            adopt(vault, connection)
            vault._keep(connection, DIGESTS, vault._digest_key)
        return vault

    def digest(self, sha256: str) -> str:
        """Return the keyed digest of a body with this sha256, 64 hexadecimal digits: HMAC-SHA-256 over the sha256.

        As good as one over the content, and can be told of a body whose bytes were not kept; empty for an empty one.
        """
        if not sha256:
            return ""
        return hmac.digest(self._digest_key, sha256.encode(), "sha256").hex()

    def object_name(self, day: str, digest: str, owner: str = "") -> str:
        """Return the name of the object of a large body, ``2026-05-04/ab/abcd…``. With an ``owner`` (the id of an
        exchange) it belongs to that one alone."""
        name = hmac.digest(self._digest_key, f"{digest}/{owner}".encode(), "sha256").hex() if owner else digest
        return f"{day}/{name[:2]}/{name}"

    def seal(self, day: str, place: str, content: bytes) -> bytes:
        """Encrypt a small body: nonce, ciphertext, tag."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._writing_key(day)).encrypt(nonce, content, place.encode())

    def seal_chunks(self, day: str, place: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Encrypt a large body chunk by chunk, without joining it; together the same format as ``seal``'s."""
        nonce = os.urandom(_NONCE_BYTES)
        encryptor = Cipher(algorithms.AES256(self._writing_key(day)), modes.GCM(nonce)).encryptor()
        encryptor.authenticate_additional_data(place.encode())
        yield nonce
        for chunk in chunks:
            yield encryptor.update(chunk)
        yield encryptor.finalize() + encryptor.tag

    def reading_keys(self, days: Set[str], connection: Connection) -> Mapping[str, bytes]:
        """Return the keys of those of the days that are not destroyed."""
        return {name: unwrap(self._master, name, wrapped) for name, wrapped in _wrapped(connection, days).items()}

    def key_of(self, day: str) -> bytes | None:
        """Return the key of one day, ``None`` when it is destroyed or never was."""
        with self._engine.connect() as connection:
            return self.reading_keys({day}, connection).get(day)

    def forget_before(self, day: str) -> None:
        """Drop the keys of all earlier days from memory."""
        with self._lock:
            self._days = {known: key for known, key in self._days.items() if known >= day}

    def found_days(self, days: Iterable[str], connection: Connection) -> None:
        """Make the keys of these days in a transaction that is under way and holds the write lock."""
        with self._lock:
            self._days.update({day: self._keep(connection, day, os.urandom(32)) for day in days})

    def verify(self, days: Set[str], connection: Connection) -> None:
        """Make sure, under the write lock, that the digest key and the keys of these days are still those in memory.

        Raises ``KeyUnusable``; a day's key that is not is dropped from memory, so that the next body gets a new one.
        """
        found = _wrapped(connection, {DIGESTS, *days})
        self._verify_founded(found)
        # Without the lock: whoever has it may be waiting for the write lock, which is held here. A key that is not in
        # memory has sealed nothing here: the object of an equal body was there already.
        used = {day: key for day in days if (key := self._days.get(day)) is not None}
        gone = sorted(day for day, key in used.items() if not self._is_kept(day, key, found))
        for day in gone:
            self._days.pop(day, None)
        if gone:
            raise KeyUnusable(f"the key of {', '.join(gone)} was destroyed before its body was stored")

    def _verify_founded(self, found: Mapping[str, bytes]) -> None:
        if not self._is_kept(DIGESTS, self._digest_key, found):
            raise KeyUnusable(
                "all bodies and keys of this store were deleted while it was open: restart this process, which then "
                "begins with new keys"
            )

    def _is_kept(self, name: str, key: bytes, found: Mapping[str, bytes]) -> bool:
        try:
            return name in found and unwrap(self._master, name, found[name]) == key
        except KeyUnusable:
            return False

    def _writing_key(self, day: str) -> bytes:
        with self._lock:
            if day not in self._days:
                self._days[day] = self._found_day(day)
            return self._days[day]

    def _found_day(self, day: str) -> bytes:
        known = self.key_of(day)
        if known is not None:
            return known
        with writing(self._engine).begin() as connection:
            self._verify_founded(_wrapped(connection, {DIGESTS}))
            return self._keep(connection, day, os.urandom(32))

    def _keep(self, connection: Connection, name: str, key: bytes) -> bytes:
        """Write the key; return the one that is there now, which is another process's if that came first."""
        row = {"name": name, "wrapped": _wrap(self._master, name, key)}
        connection.execute(insert_into(body_keys, connection).values(row).on_conflict_do_nothing())
        return unwrap(self._master, name, _wrapped(connection, {name})[name])


def unseal(key: bytes, place: str, sealed: bytes) -> bytes:
    """Decrypt what ``seal`` or ``seal_chunks`` made for this place. Raises ``CorruptBody``."""
    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], place.encode())
    except (InvalidTag, ValueError) as error:
        raise CorruptBody("a body is not what was stored in its place") from error


def unwrap(master: bytes, name: str, wrapped: bytes) -> bytes:
    """Decrypt a key of the store. Raises ``KeyUnusable`` when that is not the master key."""
    try:
        return AESGCM(master).decrypt(wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], name.encode())
    except (InvalidTag, ValueError) as error:
        raise KeyUnusable(
            "this store was written with another master key: set store.key to that one. If it is lost the bodies are "
            "too; `crossfade store purge --bodies all` then clears the way for a new key, and all numbers stay"
        ) from error


def _wrap(master: bytes, name: str, key: bytes) -> bytes:
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(master).encrypt(nonce, key, name.encode())


def _wrapped(connection: Connection, names: Set[str]) -> dict[str, bytes]:
    query = select(body_keys.c.name, body_keys.c.wrapped).where(body_keys.c.name.in_(sorted(names)))
    return {name: bytes(wrapped) for name, wrapped in connection.execute(query)}
