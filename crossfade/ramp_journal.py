"""Moves back that were made while the store did not answer, until they are recorded in it.

Coming back must not wait for a database. So the move is written here first, with who made it, why and when, and flushed
to the disk; then the toggle is written; and whoever reaches the store next (the driver, or any ``crossfade ramp``
command) records it there and takes it out. Nothing forward is ever written here.

The file lies beside the audit file, one line of JSON for each move, empty or absent in good times.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from compare.phrases import as_fields, from_stored
from compare.ramp import Phase
from compare.rampbook import Move, RampBook

log = logging.getLogger(__name__)
NAME = "ramp-journal.jsonl"


class RampJournal:
    """The file. Safe to use from several processes; a lock file beside it keeps their lines apart."""

    def __init__(self, path: Path) -> None:
        """Use the file at ``path``, which need not exist."""
        self.path = path

    @classmethod
    def beside(cls, audit: Path) -> RampJournal:
        """Return the journal that lies beside the audit file."""
        return cls(audit.with_name(NAME))

    def note(self, move: Move) -> None:
        """Append a move and wait until it is on the disk. Raises ``OSError``."""
        with self._locked(), open(self.path, "a", encoding="utf-8", opener=_private) as file:
            file.write(_to_line(move) if self._ends_whole() else "\n" + _to_line(move))
            file.flush()
            os.fsync(file.fileno())

    def pending(self) -> list[Move]:
        """Return what is not recorded yet, in order. Raises ``OSError``. A line that is no move (the machine stopped
        while it was written) is logged and left out."""
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        return [move for line in lines if (move := _from_line(line)) is not None]

    def drop(self, recorded: Collection[Move]) -> None:
        """Take out what is recorded now, and what is no move. Raises ``OSError``."""
        with self._locked():
            left = [move for move in self.pending() if move not in recorded]
            temporary = self.path.with_name(f".{self.path.name}.new")
            with open(temporary, "w", encoding="utf-8", opener=_private) as file:
                file.writelines(map(_to_line, left))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path)

    def record(self, book: RampBook, now: datetime) -> list[Move]:
        """Record all that is pending in its order, and take it out; return it. Raises ``OSError``, and what the store
        raises: then it is recorded the next time."""
        found = self.pending()
        for move in found:
            book.record_late(move, now)
        if found:
            self.drop(found)
        return found

    def _ends_whole(self) -> bool:
        """Whether the last line is whole, so that the next begins a line of its own."""
        return self.path.read_bytes()[-1:] in (b"", b"\n")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_name(f".{self.path.name}.lock"), "w", encoding="utf-8", opener=_private) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _to_line(move: Move) -> str:
    """Return a move as one line. ASCII, as a name may hold what ends a line (U+0085, U+2028)."""
    return json.dumps({**asdict(move, dict_factory=as_fields), "at": move.at.isoformat()}) + "\n"


def _from_line(line: str) -> Move | None:
    try:
        raw = json.loads(line)
        read = {"at": datetime.fromisoformat(raw["at"]), "phase": Phase(raw["phase"])}
        return Move(**{**raw, **read, "reason": from_stored(raw["reason"])})
    except (ValueError, TypeError, KeyError):
        log.exception("a line of the ramp's journal is no move: %s", line[:300])
        return None
