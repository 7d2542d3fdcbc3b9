"""Keep a copy of a body while it streams past, without ever standing in its way.

A ``Tee`` is in one of three states. *Keeping*: every chunk fed so far is held and reserved against the shared
``ByteBudget``. *Counting*: nothing is held (no budget was given, the copy was lost, or it was discarded) but the size
goes on, and the hash where it was asked for. *Finished*: the chunks and their reservation have passed to the ``Body``
that ``finish`` returned; whoever holds the body releases ``body.held_bytes`` when it lets go of it; what went to a
file, the file releases. A reservation is therefore always owned by exactly one of the two, which is why ``discard`` may
be called at any time, also after ``finish``, and releases nothing twice.

A body in memory is not hashed while it passes: that would be a millisecond for each megabyte on the event loop, for
every request, also for those that are not kept in the end. Whoever needs the digest of what was kept makes it then.
What goes to a file is hashed on its way there.

Everything here belongs to one event loop; there are no locks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

from shadow.exchange import Body, LateDigest, SkipReason

TINY_BYTES = 512


class ByteBudget:
    """A bound, in bytes, on all bodies that wait to be mirrored or stored, shared by the whole process."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._used_bytes = 0

    @property
    def used_bytes(self) -> int:
        """Bytes reserved now."""
        return self._used_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes that can be reserved now."""
        return self.total_bytes - self._used_bytes

    def try_reserve(self, size_bytes: int) -> bool:
        """Reserve the bytes if they still fit; reserve nothing otherwise."""
        if self._used_bytes + size_bytes > self.total_bytes:
            return False
        self._used_bytes += size_bytes
        return True

    def release(self, size_bytes: int) -> None:
        """Give reserved bytes back. Raises ``ValueError`` when more come back than were taken: an accounting defect."""
        if size_bytes > self._used_bytes:
            raise ValueError(f"released {size_bytes} bytes of a budget with {self._used_bytes} in use")
        self._used_bytes -= size_bytes


class File(Protocol):
    """A file that a body goes to. Its methods return at once."""

    def append(self, chunks: Sequence[bytes]) -> bool:
        """Take the chunks with their reservation, or nothing when there is no room."""

    def finish(self) -> Sequence[bytes]:
        """Return the content; whoever holds it closes it."""

    def sha256(self) -> str:
        """Return the digest of the content in hex; waits for the disk. Raises ``OSError`` where that failed."""

    def close(self) -> None:
        """Remove the file."""


class Disk(Protocol):
    """Where large bodies go when memory is scarce."""

    def wants(self, size_bytes: int) -> bool:
        """Whether a body that has grown to this size belongs here, as things are now."""

    @property
    def used_bytes(self) -> int:
        """Bytes of the disk that are taken now."""

    @property
    def free_bytes(self) -> int:
        """Bytes of the disk that can be taken now."""

    @property
    def is_behind(self) -> bool:
        """Whether memory is tight because of what waits to be written."""

    async def catch_up(self) -> None:
        """Wait as long as it is behind."""

    def create(self) -> File:
        """Return a new file."""


def keep_piece(chunks: list[bytes], piece: bytes) -> None:
    """Add a piece of a body to the chunks before it: uncopied, but for tiny ones. An object costs some fifty bytes that
    no budget counts, so a body that comes two bytes at a time would take twenty times its size."""
    if chunks and len(piece) < TINY_BYTES and len(chunks[-1]) < TINY_BYTES:
        chunks[-1] += piece
    else:
        chunks.append(piece)


class Tee:
    """Hold the very ``bytes`` objects of one body (``keep_piece``), up to ``max_bytes`` and as long as the budget
    allows.

    ``lost`` says why the copy is not complete: ``body_too_large`` or ``budget_full``; ``None`` while nothing was lost.
    With ``budget=None`` the tee keeps nothing by intention, and only counts: that is no loss. A body that the ``disk``
    wants goes there, the rest of it too, and its reservation with it. With ``hashed`` the digest is known also of what
    was not kept.
    """

    def __init__(
        self, budget: ByteBudget | None, max_bytes: int, disk: Disk | None = None, *, hashed: bool = False
    ) -> None:
        self.lost: SkipReason | None = None
        self.size_bytes = 0
        self._budget = budget
        self._max_bytes = max_bytes
        self._disk = disk
        self._file: File | None = None
        self._hash = hashlib.sha256() if hashed else None
        self._chunks: list[bytes] | None = None if budget is None else []
        self._reserved_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """Take note of the next chunk. Never fails; at most the copy is given up."""
        if not chunk:
            return
        if self._hash is not None:
            self._hash.update(chunk)
        size, chunks = len(chunk), self._chunks
        self.size_bytes += size
        if chunks is None or self._budget is None:
            return
        if self.size_bytes > self._max_bytes:
            self._lose(SkipReason.BODY_TOO_LARGE)
        elif self._budget.try_reserve(size):
            self._reserved_bytes += size
            keep_piece(chunks, chunk)
            if self._disk is not None and (self._file is not None or self._disk.wants(self.size_bytes)):
                self._put_away(self._disk)
        else:
            self._lose(SkipReason.BUDGET_FULL)

    def finish(self, media_type: str = "", content_encoding: str = "") -> Body:
        """Return the body and pass the chunks with their reservation on to it."""
        chunks, file, self._chunks, self._file, self._reserved_bytes = self._chunks, self._file, None, None, 0
        if file is not None:
            digest: str | LateDigest = LateDigest(file.sha256)
            kept: Sequence[bytes] | None = file.finish()
        else:
            kept = tuple(chunks) if chunks is not None else None
            digest = LateDigest.of(kept) if kept is not None else ""
        if self._hash is not None:
            digest = self._hash.hexdigest()
        return Body(digest, self.size_bytes, media_type, content_encoding, kept, "", file is not None)

    def discard(self) -> None:
        """Drop what is still held here and release it; a no-op after ``finish``."""
        self._chunks = None
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._budget is not None:
            self._budget.release(self._reserved_bytes)
        self._reserved_bytes = 0

    def _put_away(self, disk: Disk) -> None:
        if self._file is None:
            self._file = disk.create()
        if self._chunks is not None and self._file.append(self._chunks):
            self._chunks, self._reserved_bytes = [], 0
        else:
            self._lose(SkipReason.BUDGET_FULL)

    def _lose(self, reason: SkipReason) -> None:
        self.lost = reason
        self.discard()
