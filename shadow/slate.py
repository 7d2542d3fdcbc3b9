"""Counts that outlive their process: a small file in shared memory for each run of a gateway.

Theory of operation. A *slate* is a mapped file of fixed size. Its owner adds to the cells with plain stores, so that a
count costs no system call and is there however the process ends; only the end of the machine takes it. The owner holds
a lock on the file (flock), which the kernel drops with the process: a slate that can be locked is a dead run's.
``SlateFolder.take_dead`` locks those, so each has one heir, who settles it (``shadow/estate.py``) and removes it; an
heir that dies first leaves it to the next. A run that ends well removes its own. Whoever creates or looks holds the
folder's own lock for that moment, so that nobody sees a slate that is not locked yet. What is removed is removed under
its own lock, and a lock that was got counts only while the file still has its name.

The folder should be in memory: a store into a page of a disk's file system may have to wait for that disk. The blocks
are written at the beginning, so that a full disk can't end the process by a signal later.

A run's slate also bears what it took over: the closed accounts of the killed runs before it, so that after any number
of kills the pages go on from the first. An heir that is killed between taking an account over and deleting its file
(microseconds) has it twice on the next one's pages; the store has each run's account once, by its name.

Layout: a head of ``HEAD_BYTES`` (one JSON line: the run, what the cells are), then records of a route's name and its
cells, 64-bit numbers of the machine's own byte order; then how many runs were taken over, and records of theirs. A
record's name is there before its first count is.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import mmap
import os
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import make_url

from shadow.account import RouteAccount
from shadow.exchange import Exchange, SkipReason

HEAD_BYTES = 1024
NAME_BYTES = 64
CELLS = 24
RECORD_BYTES = NAME_BYTES + 8 * CELLS
RECORDS = 256
FORGOTTEN_AFTER_S = 7 * 86400.0
LOCK_WAIT_S = 5.0
_RECORDS_BYTES = RECORDS * RECORD_BYTES
_RUNS_AT = HEAD_BYTES + _RECORDS_BYTES
_SIZE_BYTES = _RUNS_AT + 8 + _RECORDS_BYTES
_COLUMNS = ("received", *SkipReason)
_OFFSET = {reason: 1 + number for number, reason in enumerate(SkipReason)}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run had received on a route, and skipped by reason."""

    received: int
    skipped: Mapping[SkipReason, int]


class _Places(dict[str, int]):
    """Where the cells of each route begin, in records from ``begin`` on. A route that comes when all records are taken
    is counted in the last one, which has no name and is never read."""

    def __init__(self, buffer: mmap.mmap | bytearray, begin: int) -> None:
        self._buffer = buffer
        self._begin = begin

    def __missing__(self, route: str) -> int:
        number, name = min(len(self), RECORDS - 1), route.encode()
        at = self._begin + number * RECORD_BYTES
        if number == RECORDS - 1 or len(name) > NAME_BYTES:
            _log.warning("what route %s counts since the last second will not survive a kill", route)
        else:
            self._buffer[at : at + len(name)] = name
        self[route] = (at + NAME_BYTES) // 8
        return self[route]


class Slate:
    """One run's counts. Belongs to one event loop. Without a file (``path``) it counts for nobody."""

    def __init__(self, buffer: mmap.mmap | bytearray | None = None, path: Path | None = None, lock: int = -1) -> None:
        buffer = bytearray(_SIZE_BYTES) if buffer is None else buffer
        self._path = path
        self._lock = lock
        self._cells = memoryview(buffer).cast("q")
        self._places = _Places(buffer, HEAD_BYTES)
        self._inherited = _Places(buffer, _RUNS_AT + 8)

    def receive(self, route: str) -> None:
        """Count a request in."""
        self._cells[self._places[route]] += 1

    def settled(self, exchange: Exchange, reason: SkipReason | None) -> None:
        """Count why an exchange is not recorded; what is recorded, the store knows."""
        if reason is not None:
            self._cells[self._places[exchange.route] + _OFFSET[reason]] += 1

    def inherit(self, runs: int, accounts: Mapping[str, RouteAccount]) -> None:
        """Take over the closed accounts of so many runs, which nobody else has any more."""
        self._cells[_RUNS_AT // 8] += runs
        for route, account in accounts.items():
            begin = self._inherited[route]
            self._cells[begin] += account.received
            for reason, count in account.skipped.items():
                self._cells[begin + _OFFSET[reason]] += count

    def close(self, *, keep: bool) -> None:
        """End: remove the file, or leave it to the next run, where the store did not take the last account.

        What is counted afterwards is counted for nobody: the memory stays mapped until the slate is no longer used.
        """
        if self._path is not None:
            with suppress(OSError):  # then the next run finds that nothing is left of it
                if not keep:
                    self._path.unlink()
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)


@dataclass(frozen=True, slots=True)
class DeadSlate:
    """What a run that is gone had counted, by route, and what the ``runs_before`` that it had taken over had. Whoever
    has it has it alone, until ``remove``."""

    run_id: str
    routes: Mapping[str, Counts]
    runs_before: int
    before: Mapping[str, Counts]
    path: Path
    lock: int

    def remove(self) -> None:
        """Delete the file, now that it is settled. One that cannot be deleted stays locked for as long as we live."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            _log.error("%s cannot be deleted: %s", self.path, error.strerror)
        else:
            self.let_go()

    def let_go(self) -> None:
        """Leave it to another, if it was not removed."""
        os.close(self.lock)


class SlateFolder:
    """The slates of one machine for one store, known by its URL: what was received for one store is never booked in
    another. All methods block for milliseconds, at most ``LOCK_WAIT_S``."""

    def __init__(self, path: Path, store_url: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        place = make_url(store_url).render_as_string(hide_password=True)  # a new password is no new store
        self._store_name = hashlib.sha256(place.encode()).hexdigest()[:16]
        self._clock = clock
        self._dead_since_s: dict[str, float] = {}
        self._unreadable: set[str] = set()

    @classmethod
    def open(cls, path: str | Path, store_url: str) -> SlateFolder:
        """Make the folder, where there is none. Raises ``OSError`` where it can't be written, or is another user's."""
        folder = Path(path)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        seen = folder.stat(follow_symlinks=False)
        if str(folder) == default_folder() and (seen.st_uid != os.getuid() or not stat.S_ISDIR(seen.st_mode)):
            raise PermissionError(f"{folder} belongs to somebody else")
        return cls(folder, store_url)

    def begin(self, run_id: str) -> Slate:
        """Return a new slate. Raises ``OSError``."""
        path = self._path / f"{self._store_name}-{run_id}.slate"
        head = json.dumps({"run": run_id, "columns": _COLUMNS}).encode().ljust(HEAD_BYTES)
        with self._locked():
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                written = os.pwrite(file, head + bytes(_SIZE_BYTES - HEAD_BYTES), 0)
                if written != _SIZE_BYTES:
                    raise OSError(f"{self._path} has no room for {_SIZE_BYTES} bytes")
                return Slate(mmap.mmap(file, _SIZE_BYTES), path, file)
            except OSError:
                os.close(file)
                path.unlink(missing_ok=True)
                raise

    def take_dead(self, patience_s: float = 0.0) -> list[DeadSlate]:
        """Return the slates of runs that are gone, and are seen to be for ``patience_s``: a run that starts in their
        place takes them first. Raises ``OSError``."""
        found: list[DeadSlate] = []
        with self._locked():
            paths = list(self._path.glob("*.slate"))
            names = {path.name for path in paths}
            self._dead_since_s = {name: at for name, at in self._dead_since_s.items() if name in names}
            for path in paths:
                lock = _try_lock(path)
                if lock is None:
                    _note_life(path)
                    continue
                dead: DeadSlate | None = None
                try:
                    dead = self._look(path, lock, patience_s)
                except Exception:  # of this file alone: the others go to their heir
                    self._complain(path)
                finally:
                    if dead is None:
                        os.close(lock)
                found += [] if dead is None else [dead]
        return found

    def _look(self, path: Path, lock: int, patience_s: float) -> DeadSlate | None:
        if not path.name.startswith(f"{self._store_name}-"):
            _forget(path, os.fstat(lock).st_mtime)
            return None
        since_s = self._dead_since_s.setdefault(path.name, self._clock())
        if self._clock() - since_s < patience_s:
            return None
        content = os.pread(lock, _SIZE_BYTES, 0)
        if len(content) < _RUNS_AT:  # its run was killed before it had counted anything
            path.unlink(missing_ok=True)
            return None
        return _read(content, path, lock)

    def _complain(self, path: Path) -> None:
        if path.name not in self._unreadable:
            self._unreadable.add(path.name)
            _log.exception("%s cannot be read: what its gateway had under way is in no count", path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        file = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            until_s = time.monotonic() + LOCK_WAIT_S
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until_s:
                        raise
                    time.sleep(0.01)  # somebody looks round; flock has no deadline
            yield
        finally:
            os.close(file)


_SHARED = Path("/dev/shm")  # noqa: S108  # memory, open to every user: ``open`` sees that the folder in it is ours


def default_folder() -> str:
    """Return a folder of this user in the machine's memory, or else where temporary files are."""
    name = f"crossfade-{os.getuid()}"
    return str((_SHARED if os.access(_SHARED, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())) / name)


def _try_lock(path: Path) -> int | None:
    """Return the file, locked; ``None`` where its run lives, or it is not ours to open."""
    try:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_nlink:  # else it was removed between the two
            return file
    except OSError:
        os.close(file)
        return None
    os.close(file)
    return None


def _note_life(path: Path) -> None:
    """Let the file's time of change say that somebody had it now: what is counted through the mapping does not move it
    (in memory never, on a disk at some later time)."""
    with suppress(OSError):
        os.utime(path, follow_symlinks=False)


def _forget(path: Path, lived_at: float) -> None:
    """Delete what a run of another store left long ago: nobody came for it."""
    if time.time() - lived_at > FORGOTTEN_AFTER_S:
        _log.warning("%s was left by a gateway that was killed long ago and is deleted", path)
        path.unlink(missing_ok=True)


def _read(content: bytes, path: Path, lock: int) -> DeadSlate:
    head = json.loads(content[:HEAD_BYTES])
    columns = list(head["columns"])  # another version may know other reasons: what it skipped for those is lost here
    known = {reason: columns.index(reason) for reason in SkipReason if reason in columns}
    routes = _read_records(content[:_RUNS_AT], HEAD_BYTES, known)
    is_whole = len(content) == _SIZE_BYTES  # else it is of a version that forgot what it took over
    runs = struct.unpack_from("=q", content, _RUNS_AT)[0] if is_whole else 0
    before = _read_records(content, _RUNS_AT + 8, known) if is_whole else {}
    return DeadSlate(str(head["run"]), routes, runs, before, path, lock)


def _read_records(content: bytes, begin: int, known: Mapping[SkipReason, int]) -> dict[str, Counts]:
    routes: dict[str, Counts] = {}
    for at in range(begin, len(content), RECORD_BYTES):
        name = content[at : at + NAME_BYTES].rstrip(b"\0").decode()
        cells = struct.unpack_from(f"={CELLS}q", content, at + NAME_BYTES)
        if name and cells[0]:
            skipped = {reason: cells[column] for reason, column in known.items() if cells[column]}
            routes[name] = Counts(cells[0], skipped)
    return routes
