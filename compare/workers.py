"""Processes that measure, each within a time and a memory. What goes beyond costs one measurement, never the batch.

A worker is *starting* (until it says that it is there), *idle*, or *busy* with one exchange until a deadline. One that
passes its deadline is killed and its exchange is ``took_too_long``; one that dies leaves a ``kernel_fault``; either is
replaced when there is more to do. Memory is bounded where the system can do that (``RLIMIT_AS``): an allocation beyond
it fails inside of one measurement (``took_too_much_memory``) instead of waking the system's memory killer. Workers do
not hear Ctrl-C: whoever owns them ends them.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from compare.machine import limit_memory
from compare.measurement import Measurement, NotComparable
from compare.measuring import measure_safely, not_measured
from compare.policy import Policy
from shadow.exchange import Exchange

Measure = Callable[[Exchange, Policy], Measurement]
TIME_LIMIT_S = 60.0
"""Two pictures of 64 megapixels take about ten seconds."""
_START_LIMIT_S = 120.0


@dataclass(slots=True)
class _Worker:
    """One process. ``place`` is that of its exchange in the batch, ``None`` while it starts or is idle."""

    process: BaseProcess
    connection: Connection
    deadline_s: float
    ready: bool = False
    place: int | None = None

    def end(self) -> None:
        """Kill the process and wait for its end."""
        self.connection.close()
        self.process.kill()
        self.process.join()


class WorkerLost(RuntimeError):
    """No worker process can be started on this machine."""


class Workers:
    """At most ``count`` processes, used by one caller at a time. ``measure`` must be a function that can be pickled.

    ``memory_bytes`` is by how much the address space of each process may grow, ``None`` for no limit; ``limit_s`` is
    how long one measurement may take.
    """

    batch = 32

    def __init__(
        self,
        count: int,
        *,
        measure: Measure = measure_safely,
        memory_bytes: int | None = None,
        limit_s: float = TIME_LIMIT_S,
    ) -> None:
        self._count = count
        self._measure = measure
        self._memory_bytes = memory_bytes
        self._limit_s = limit_s
        self._workers: list[_Worker] = []

    def measure(self, exchanges: Sequence[Exchange], policy: Policy) -> list[Measurement]:
        """Measure a batch, in its order. Blocks. Raises ``WorkerLost`` when no process comes up."""
        waiting = deque(enumerate(exchanges))
        found: dict[int, Measurement] = {}
        while len(found) < len(exchanges):
            while len(self._workers) < min(self._count, len(waiting)):
                self._workers.append(self._start())
            for worker in [w for w in self._workers if w.ready and w.place is None]:
                if waiting:
                    self._hand_over(worker, *waiting.popleft(), policy)
            self._collect(exchanges, found)
        return [found[place] for place in range(len(exchanges))]

    def _hand_over(self, worker: _Worker, place: int, exchange: Exchange, policy: Policy) -> None:
        worker.place, worker.deadline_s = place, time.monotonic() + self._limit_s
        with suppress(OSError):  # it died while it was idle, or dies of this: its end is collected like any other
            worker.connection.send((exchange, policy))

    def _collect(self, exchanges: Sequence[Exchange], found: dict[int, Measurement]) -> None:
        """Wait for the next answer, death or deadline, and deal with all that there are."""
        under_way = [w for w in self._workers if not w.ready or w.place is not None]
        patience = max(0.0, min(w.deadline_s for w in under_way) - time.monotonic())
        answered = set(wait([w.connection for w in under_way], patience))
        for worker in under_way:
            if worker.connection in answered:
                told = _receive(worker.connection)
                if told is not None and worker.place is not None:
                    found[worker.place] = told
                    worker.place = None
                elif told is None and not worker.ready and worker.process.is_alive():
                    worker.ready = True
                else:
                    self._lose(
                        worker, exchanges, found, NotComparable.KERNEL_FAULT, "the process that measured it died"
                    )
            elif time.monotonic() >= worker.deadline_s:
                words = f"measuring it took longer than {self._limit_s:g} s"
                self._lose(worker, exchanges, found, NotComparable.TOOK_TOO_LONG, words)

    def _lose(
        self,
        worker: _Worker,
        exchanges: Sequence[Exchange],
        found: dict[int, Measurement],
        reason: NotComparable,
        words: str,
    ) -> None:
        self._workers.remove(worker)
        worker.end()
        if not worker.ready:
            raise WorkerLost("a process that measures could not be started")
        if worker.place is not None:
            found[worker.place] = not_measured(exchanges[worker.place], reason, words)

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_serve, args=(theirs, self._measure, self._memory_bytes), name="crossfade-compare", daemon=True
        )
        process.start()
        theirs.close()
        return _Worker(process, ours, time.monotonic() + _START_LIMIT_S)

    def close(self) -> None:
        """End the processes; a later batch starts new ones."""
        while self._workers:
            self._workers.pop().end()


def _receive(connection: Connection) -> Measurement | None:
    """Return what a worker tells: a measurement, ``None`` for 'I am there' and for the end of the process."""
    try:
        told = connection.recv()
    except (EOFError, OSError):
        return None
    return told if isinstance(told, Measurement) else None


def _serve(connection: Connection, measure: Measure, memory_bytes: int | None) -> None:
    """Measure what comes until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_memory(memory_bytes)
    connection.send(None)
    while True:
        try:
            exchange, policy = connection.recv()
        except (EOFError, OSError):
            return
        try:
            found = measure(exchange, policy)
        except MemoryError:
            found = not_measured(exchange, NotComparable.TOOK_TOO_MUCH_MEMORY, "measuring it took too much memory")
        connection.send(found)
