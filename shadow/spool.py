"""Keep large bodies on disk while they wait to be mirrored, so that ten-megabyte pictures do not fill the memory.

Theory of operation. As long as memory is spare nothing goes to the disk. The loop never touches a file: it hands chunks
to one writer thread through a queue that cannot make it wait, and the thread gives way to production until memory is
tight. The queue needs no bound of its own, because each chunk in it is reserved in the budget of memory until it is
written; a disk that is too slow therefore shows as a full budget, and so does a disk that has no room, which
``total_bytes`` bounds beforehand. Who reads a shadow's answer can wait for it with ``catch_up``; production never
does. Files are anonymous: they have no name, are the owner's alone (0600), and the kernel
removes them however the process ends.

A ``SpoolFile`` is *writing*, then *finished* (``finish`` handed its content out as ``SpooledChunks``) and at last
*closed*. Closing twice is allowed, reading afterwards is an ``OSError``. Reading blocks on the disk: do it in a thread,
or with ``blocks``.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import queue
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import IO, overload

from shadow.courtesy import NO_COURTESY, Courtesy
from shadow.exchange import Body
from shadow.tee import ByteBudget

BLOCK_BYTES = 256 * 1024
CALM_S = 10.0

_log = logging.getLogger(__name__)

Job = Callable[[], None]


class Spool:
    """All spooled bodies of one process. Built on the running loop, ended by ``aclose`` after all its files are closed.

    A body that grows over ``above_bytes`` while more than ``spare_bytes`` of the memory are taken goes to a file that
    ``open_file`` opens, on the writer's thread; all files together hold at most ``total_bytes``. ``memory`` is the
    budget that the tees reserve from.
    """

    def __init__(
        self,
        memory: ByteBudget,
        *,
        above_bytes: int,
        total_bytes: int,
        spare_bytes: int = 0,
        courtesy: Courtesy = NO_COURTESY,
        open_file: Callable[[], IO[bytes]] | None = None,
    ) -> None:
        self.memory = memory
        self.disk = ByteBudget(total_bytes)
        self.open_file = open_file or nameless_files(None)
        self.courtesy = courtesy.unless(lambda: self._is_tight)
        self._above_bytes = above_bytes
        self._spare_bytes = spare_bytes
        self._unwritten_bytes = 0
        self._progress = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._failed_at_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="spool-writer", daemon=True)
        self._thread.start()

    @property
    def used_bytes(self) -> int:
        """Bytes of the disk that are taken now."""
        return self.disk.used_bytes

    @property
    def free_bytes(self) -> int:
        """Bytes of the disk that can be taken now."""
        return self.disk.free_bytes

    @property
    def is_behind(self) -> bool:
        """Whether memory is tight because of what is not written yet."""
        return self._is_tight and self._unwritten_bytes > 0

    def wants(self, size_bytes: int) -> bool:
        """Whether a body of this size belongs on the disk: it is large, and memory is not spare any more."""
        return size_bytes > self._above_bytes and self.memory.used_bytes > self._spare_bytes

    async def catch_up(self) -> None:
        """Wait as long as the disk is behind."""
        while self.is_behind:
            self._progress.clear()
            await self._progress.wait()

    def create(self) -> SpoolFile:
        """Return a file that is opened with its first chunk."""
        return SpoolFile(self)

    async def aclose(self) -> None:
        """End the writer after what it was given."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)

    def submit(self, job: Job) -> None:
        """Let the writer thread do the job after all before it. Never waits."""
        self._jobs.put(job)

    def put_off(self, size_bytes: int) -> None:
        """Count bytes that wait for the writer."""
        self._unwritten_bytes += size_bytes

    def note_written(self, size_bytes: int) -> None:
        """Release memory, from the writer thread."""
        self._tell(self._take_back, size_bytes)

    def note_removed(self, size_bytes: int) -> None:
        """Release bytes of the disk, from the writer thread."""
        self._tell(self.disk.release, size_bytes)

    def note(self, error: OSError | None) -> None:
        """Say once when the disk begins to fail, and once when it works again: it has not failed for ``CALM_S``, since
        one that is full takes a little again and again. From the writer thread."""
        now_s, failed_at_s = self.courtesy.clock(), self._failed_at_s
        if error is not None:
            self._failed_at_s = now_s
            if failed_at_s is None:
                _log.error("spooling to disk fails (%s): large bodies are not mirrored", error.strerror)
        elif failed_at_s is not None and now_s - failed_at_s >= CALM_S:
            self._failed_at_s = None
            _log.info("spooling to disk works again")

    @property
    def _is_tight(self) -> bool:
        return self.memory.used_bytes > self.memory.total_bytes * 3 // 4

    def _take_back(self, size_bytes: int) -> None:
        self.memory.release(size_bytes)
        self._unwritten_bytes -= size_bytes
        self._progress.set()

    def _tell(self, note: Callable[[int], None], size_bytes: int) -> None:
        # Budgets belong to the loop; where that is closed nobody counts any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(note, size_bytes)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def nameless_files(folder: str | None) -> Callable[[], IO[bytes]]:
    """Return what opens a nameless file in the folder, the system's place for temporary files when ``None``."""
    return lambda: tempfile.TemporaryFile(dir=folder, buffering=0)


class SpoolFile:
    """One body on its way to the disk. All methods are the loop's and return at once."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._content = _Content(spool)
        self._reserved_bytes = 0
        self._closed = False

    def append(self, chunks: Sequence[bytes]) -> bool:
        """Take the chunks, and with them their reservation in the memory's budget; take nothing where the disk's is
        full."""
        size_bytes = sum(map(len, chunks))
        if not self._spool.disk.try_reserve(size_bytes):
            return False
        self._reserved_bytes += size_bytes
        self._spool.put_off(size_bytes)
        since_s = self._spool.courtesy.clock()
        for batch in _batches(chunks):
            self._spool.submit(partial(self._content.write, batch, since_s))
        return True

    def finish(self) -> SpooledChunks:
        """Return what was written, to be read once it is ``ready``; whoever holds it closes it."""
        self._spool.submit(self._content.end)
        return SpooledChunks(self, self._content, self._reserved_bytes)

    def sha256(self) -> str:
        """Return the digest of what was written, also after ``close``; waits until all is. Raises ``OSError``."""
        return self._content.sha256()

    def close(self) -> None:
        """Remove the file and give its bytes back."""
        if not self._closed:
            self._closed = True
            size_bytes = self._reserved_bytes
            self._spool.submit(lambda: self._content.close(size_bytes))


class SpooledChunks(Sequence[bytes]):
    """The content of a spooled body in blocks of ``BLOCK_BYTES``. Reading blocks on the disk and raises ``OSError``."""

    def __init__(self, file: SpoolFile, content: _Content, size_bytes: int) -> None:
        self._file = file
        self._content = content
        self._size_bytes = size_bytes

    async def ready(self) -> bool:
        """Wait until everything is written; ``False`` when the disk failed."""
        return await asyncio.wrap_future(self._content.whole)

    async def blocks(self) -> AsyncIterator[bytes]:
        """Read without blocking the loop."""
        for index in range(len(self)):
            yield await asyncio.to_thread(self._block, index)

    def close(self) -> None:
        """Remove the file. A read that is under way ends well."""
        self._file.close()

    def __len__(self) -> int:
        return -(-self._size_bytes // BLOCK_BYTES)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(index, slice):
            return [self._block(each) for each in range(len(self))[index]]
        return self._block(range(len(self))[index])

    def __iter__(self) -> Iterator[bytes]:
        for index in range(len(self)):
            yield self._block(index)

    def _block(self, index: int) -> bytes:
        if not self._content.whole.result():
            raise OSError("the body could not be written to the disk")
        at = index * BLOCK_BYTES
        return self._content.read(at, min(BLOCK_BYTES, self._size_bytes - at))


class _Content:
    """The file itself. ``write``, ``end`` and ``close`` are the writer thread's; ``read`` may be called from any."""

    def __init__(self, spool: Spool) -> None:
        self.whole: Future[bool] = Future()
        self.whole.set_running_or_notify_cancel()  # whoever gives up waiting must not cancel it for the others
        self._spool = spool
        self._digest = hashlib.sha256()  # here and not in the tee: it takes a millisecond of the loop for a megabyte
        self._file: IO[bytes] | None = None
        self._failed = False
        self._lock = threading.Lock()  # so that no file is closed, and its number given to another, under a read

    def write(self, chunks: Sequence[bytes], since_s: float) -> None:
        self._spool.courtesy.wait(since_s)
        try:
            if not self._failed:
                self._write(chunks)
                self._spool.note(None)
        except OSError as error:
            self._failed = True
            self._spool.note(error)
        finally:
            self._spool.note_written(sum(map(len, chunks)))

    def _write(self, chunks: Sequence[bytes]) -> None:
        if self._file is None:
            self._file = self._spool.open_file()
        for chunk in chunks:
            self._digest.update(chunk)
            view = memoryview(chunk)
            while view:
                view = view[os.write(self._file.fileno(), view) :]

    def end(self) -> None:
        self.whole.set_result(not self._failed)

    def sha256(self) -> str:
        if not self.whole.result():
            raise OSError("the body could not be written to the disk")
        return self._digest.hexdigest()

    def close(self, size_bytes: int) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None
        self._spool.note_removed(size_bytes)

    def read(self, at: int, size_bytes: int) -> bytes:
        with self._lock:
            if self._file is None:
                raise OSError("the body is no longer on the disk")
            block = os.pread(self._file.fileno(), size_bytes, at)
        if len(block) != size_bytes:
            raise OSError("the body is not whole on the disk")
        return block


def _batches(chunks: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Cut what is written at once into pieces of ``BLOCK_BYTES`` or a little more, so that memory is released early."""
    batch: list[bytes] = []
    size_bytes = 0
    for chunk in chunks:
        batch.append(chunk)
        size_bytes += len(chunk)
        if size_bytes >= BLOCK_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def spooled(body: Body | None) -> SpooledChunks | None:
    """Return what a body has on the disk, ``None`` for one that is in memory or was not kept."""
    # The flag first: the other question goes through the abstract class, and is asked seven times for each request.
    return body.chunks if body is not None and body.on_disk and isinstance(body.chunks, SpooledChunks) else None


async def is_whole(body: Body | None) -> bool:
    """Wait for a body that goes to the disk; ``False`` when it did not all get there."""
    chunks = spooled(body)
    return chunks is None or await chunks.ready()


def let_go(body: Body | None) -> None:
    """Close a body's file, if it has one."""
    chunks = spooled(body)
    if chunks is not None:
        chunks.close()
