"""The master key of a store: 32 random bytes that all other keys are encrypted under. It is never in the database.

Where it is: ``file:PATH`` (64 hexadecimal digits; made on first use, mode 0600) or ``env:NAME`` (the same digits in an
environment variable). Whoever has the store's files and not this key has numbers, and no pictures.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from sqlalchemy import make_url

from shadow.errors import KeyUnusable

MAKE_ONE = "make one with: openssl rand -hex 32"
_HEX = re.compile(r"[0-9a-fA-F]{64}")

_log = logging.getLogger(__name__)


def default_source(url: str) -> str:
    """Return where the key of the store at ``url`` is when nothing is said: in a file beside the SQLite database.

    Raises ``KeyUnusable`` for any other database: its key must be named.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        raise KeyUnusable("store.key must say where the master key is: file:PATH or env:NAME")
    return f"file:{parsed.database}.key"


def read_master_key(source: str, environ: Mapping[str, str], *, may_create: bool) -> bytes:
    """Return the 32 bytes of the key at ``source``; a file that is not there is made when ``may_create``.

    Raises ``KeyUnusable`` with what to do about it; no message holds a part of a key.
    """
    kind, _, name = source.partition(":")
    if kind == "env" and name:
        if name not in environ:
            raise KeyUnusable(f"the environment variable {name} with the master key of the store is not set")
        return _parse(environ[name], f"the environment variable {name}")
    if kind == "file" and name:
        return _from_file(Path(name), may_create=may_create)
    raise KeyUnusable("store.key must be file:PATH or env:NAME")


def _from_file(path: Path, *, may_create: bool) -> bytes:
    try:
        if may_create and not path.exists():
            _create(path)
        text, mode = path.read_text(encoding="ascii"), path.stat().st_mode
    except FileNotFoundError as error:
        raise KeyUnusable(
            f"the master key {path} is gone, and this store was written with it: bring it back from your backup. "
            "Without it the bodies are lost; `crossfade store purge --bodies all` then clears the way for a new key"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise KeyUnusable(f"the master key {path} cannot be read: {type(error).__name__}") from error
    if stat.S_IMODE(mode) & 0o007:
        raise KeyUnusable(f"everybody may read the master key {path}: chmod 600 it, and ask who did")
    return _parse(text, str(path))


def _create(path: Path) -> None:
    """Make the file; when two processes do so at once, both find the key of the one that came first."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            os.link(temporary, path)
            _log.warning("made a new master key for the store: %s. Keep a copy: no body can be read without it", path)
    finally:
        temporary.unlink(missing_ok=True)


def _parse(text: str, where: str) -> bytes:
    text = text.strip()
    if not _HEX.fullmatch(text):
        raise KeyUnusable(f"{where} is not a master key (64 hexadecimal digits); {MAKE_ONE}")
    return bytes.fromhex(text)
