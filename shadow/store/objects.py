"""Where the bodies lie that are too large for a row: named ``DAY/ab/NAME``, already encrypted, written once.

A folder, or a bucket of an S3-compatible store (``bucket.py``). Both fail with ``OSError`` or ``StoreError``,
and answer in bounded time.
"""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable
from datetime import date
from pathlib import Path
from typing import Protocol

from shadow.errors import CorruptBody

_NAME = re.compile(r"\d{4}-\d{2}-\d{2}/[0-9a-f]{2}/[0-9a-f]{64}")


class Objects(Protocol):
    """What the store needs of the place for large bodies. Every method blocks and may be called from any thread."""

    def put(self, name: str, make: Callable[[], Iterable[bytes]]) -> None:
        """Store the chunks that ``make`` returns, whole or not at all. What is there under the name already stays, and
        ``make`` is then not called."""
        ...

    def get(self, name: str) -> bytes | None:
        """Return the content, ``None`` when there is none."""
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete these objects; those that are not there do not matter."""
        ...

    def days(self) -> list[str]:
        """Return the days that have objects, in order."""
        ...

    def delete_day(self, day: str) -> int:
        """Delete all objects of the day; return how many."""
        ...


class ObjectFolder:
    """A folder: directories 0700, files 0600. A file appears under its name only when it is whole, so several
    processes may use one folder."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, make: Callable[[], Iterable[bytes]]) -> None:
        """Write the chunks one by one, without joining them. Raises ``OSError``."""
        path = self._path(name)
        if path.exists():
            return
        self._make_private(path.parent)
        temporary = path.with_name(f".{uuid.uuid4().hex}")
        try:
            descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with open(descriptor, "wb", buffering=0) as file:
                for chunk in make():
                    _write(file.fileno(), chunk)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def get(self, name: str) -> bytes | None:
        """Read the file. Raises ``OSError``, and ``CorruptBody`` for what is no name."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def delete(self, names: Iterable[str]) -> None:
        """Unlink the files."""
        for name in names:
            self._path(name).unlink(missing_ok=True)

    def days(self) -> list[str]:
        """Return the names of the folders that are days."""
        if not self._root.is_dir():
            return []
        return sorted(path.name for path in self._root.iterdir() if is_day(path.name))

    def delete_day(self, day: str) -> int:
        """Remove the day's folder."""
        folder = self._root / check_day(day)
        count = sum(len(files) for _, _, files in os.walk(folder))
        shutil.rmtree(folder, ignore_errors=True)  # another process may be at it too; the next purge ends the rest
        return count

    def _path(self, name: str) -> Path:
        return self._root / check_name(name)

    def _make_private(self, folder: Path) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)


def check_name(name: str) -> str:
    """Return the name, or raise ``CorruptBody``: it becomes a path, and may come from a database others can write."""
    if not _NAME.fullmatch(name):
        raise CorruptBody("not the name of a body")
    return name


def is_day(name: str) -> bool:
    """Whether a folder or a prefix is one of ours; others may lie beside them."""
    try:
        return date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False


def check_day(day: str) -> str:
    """Return the day, or raise ``CorruptBody``."""
    if not is_day(day):
        raise CorruptBody("not a day")
    return day


def _write(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]
