"""The one thread that writes: takes jobs from a bounded queue and commits them in batches.

A job has two steps: ``prepare``, outside the transaction, does what is slow (encryption, files, an object store) and
returns what to write; ``commit`` writes all of a batch in one transaction. When one item is at fault the others are
committed one by one. Jobs said to be ``slow`` are prepared before they are queued, several at a time: an object store
answers late, and large bodies wait for a gap, which is no matter of the others in a batch. A job that its caller
cancelled before its turn is not done at all.

Where courtesy is owed a batch is waited for, until it is half full or ``Courtesy.gather_s`` have passed: most of what a
transaction costs is the same for one exchange as for a hundred. And the thread steps aside after each thing that it
does, in the transaction too: production then waits for a statement and not for a batch. A loop that is busy may keep it
aside for milliseconds each time, so it does so for ``gather_s`` at most in a batch: it must not fall behind.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DBAPIError, OperationalError

from shadow.courtesy import NO_COURTESY, Courtesy
from shadow.errors import StoreClosed, StoreError, StoreFull
from shadow.store.database import writing

T = TypeVar("T")

MAX_BATCH = 128
PARALLEL = 8


@dataclass(slots=True, eq=False)
class _Job(Generic[T]):
    prepare: Callable[[], T]
    done: Future[int] = field(default_factory=Future)
    begun: bool = False


class Writer(Generic[T]):
    """Owns the writing thread. ``submit`` may be called from any thread; ``close`` does what was submitted, then
    ends. ``commit`` is given the connection and what was prepared, and returns a number for each. ``courtesy`` is owed
    where production is served by the same process."""

    def __init__(
        self,
        engine: Engine,
        commit: Callable[[Connection, Sequence[T]], Sequence[int]],
        max_queued: int,
        courtesy: Courtesy = NO_COURTESY,
    ) -> None:
        self._engine = writing(engine)
        self._courtesy = courtesy
        if courtesy.is_owed:
            event.listen(self._engine, "after_cursor_execute", lambda *_: self._step_aside())
        self._write = commit
        self._pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="store-prepare")
        self._jobs: queue.Queue[_Job[T] | None] = queue.Queue(max_queued)
        self._closed = False
        self._ahead = 0
        self._patient_until_s = 0.0
        self._enough = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, prepare: Callable[[], T], *, slow: bool = False) -> Future[int]:
        """Queue a job; the future ends with the number of its item, or with a ``StoreError``. Never blocks.

        Raises ``StoreFull`` or ``StoreClosed``.
        """
        job = _Job(prepare)
        with self._lock:  # so that nothing can be queued behind the end mark
            if self._closed:
                raise StoreClosed("the store is closed")
            if self._ahead + self._jobs.qsize() >= self._jobs.maxsize:
                raise StoreFull(f"{self._jobs.maxsize} writes are waiting already")
            if slow:
                self._ahead += 1
                self._pool.submit(self._prepare_ahead, job)
            else:
                self._put(job)
        return job.done

    def close(self) -> None:
        """Finish what is queued and end the thread. Blocks; may be called again."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._pool.shutdown()  # what is prepared is queued then
            self._put(None)
            self._enough.set()
        self._thread.join()

    def _put(self, job: _Job[T] | None) -> None:
        self._jobs.put(job)
        if self._jobs.qsize() >= MAX_BATCH // 2:
            self._enough.set()

    def _prepare_ahead(self, job: _Job[T]) -> None:
        try:
            if job.done.set_running_or_notify_cancel():
                item = job.prepare()
                self._put(_Job(lambda: item, job.done, begun=True))
        except Exception as error:
            _fail(job, error)
        finally:
            with self._lock:
                self._ahead -= 1

    def _run(self) -> None:
        while self._write_batch():
            pass

    def _write_batch(self) -> bool:
        # A call of its own, so that no local keeps the bodies of the last batch alive while the thread waits.
        batch, ended = self._next_batch()
        self._patient_until_s = self._courtesy.clock() + self._courtesy.gather_s
        ready = [job for job in batch if job.begun or job.done.set_running_or_notify_cancel()]
        prepared = list(self._prepared(ready))
        if prepared:
            self._commit(prepared)
        return not ended

    def _step_aside(self) -> None:
        if self._courtesy.clock() < self._patient_until_s:
            self._courtesy.step_aside()

    def _prepared(self, jobs: Sequence[_Job[T]]) -> Iterator[tuple[_Job[T], T]]:
        """Yield the jobs with what they prepared, in their order; those that fail are told and left out."""
        for job in jobs:
            self._step_aside()
            try:
                yield job, job.prepare()
            except Exception as error:
                _fail(job, error)

    def _next_batch(self) -> tuple[list[_Job[T]], bool]:
        batch: list[_Job[T]] = []
        job = self._jobs.get()
        if job is not None and self._courtesy.is_owed:
            self._enough.wait(self._courtesy.gather_s)
            self._enough.clear()
        while job is not None:
            batch.append(job)
            if len(batch) == MAX_BATCH:
                return batch, False
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _commit(self, batch: Sequence[tuple[_Job[T], T]]) -> None:
        try:
            with self._engine.begin() as connection:
                results = self._write(connection, [item for _, item in batch])
        except Exception as error:
            # A locked or full database would fail each of them again; anything else is the fault of one.
            if len(batch) > 1 and not isinstance(error, OperationalError):
                for single in batch:
                    self._commit([single])
                return
            for job, _ in batch:
                _fail(job, error)
        else:
            for (job, _), result in zip(batch, results, strict=True):
                job.done.set_result(result)


def _fail(job: _Job[T], error: Exception) -> None:
    job.done.set_exception(_translate(error))


def _translate(error: Exception) -> StoreError:
    """Return what happened as a ``StoreError``, without SQL, parameters and paths: they hold people's data."""
    match error:
        case StoreError():
            return error
        case OperationalError() | DBAPIError(orig=sqlite3.Error()):
            return StoreError(f"{type(error.orig).__name__}: {error.orig}")
        case DBAPIError():  # PostgreSQL quotes the row that it refuses
            return StoreError(type(error.orig).__name__)
        case OSError():
            return StoreError(f"{type(error).__name__}: {error.strerror}")
        case _:
            return StoreError(type(error).__name__)
