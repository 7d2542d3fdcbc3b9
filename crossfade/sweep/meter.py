"""Watch what a server uses while it is measured.

Theory of operation. A ``ServerMeter`` belongs to one server process. ``start`` begins a watch: a thread named
``sweep-meter`` reads memory and the GPUs twice a second until ``stop``, which returns the usage since ``start``; CPU
is the difference of two counters and needs no samples. One watch at a time; the thread ends in ``stop`` in any case.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol

from crossfade.sweep.gpu import GpuState, read_gpus
from crossfade.sweep.proc import ProcessTree, core_count, memory_limit_bytes
from crossfade.sweep.usage import GpuUsage, Usage

PERIOD_S = 0.5


class Meter(Protocol):
    """Measures what a server uses between two moments."""

    def start(self) -> None:
        """Begin a watch."""
        ...

    def stop(self) -> Usage:
        """End the watch and return what was used in it."""
        ...

    def memory_bytes(self) -> int:
        """Return the server's resident set now."""
        ...


class ServerMeter:
    """Watches a process tree, its machine and, with ``nvidia_smi`` (a path), the GPUs."""

    def __init__(self, pid: int, nvidia_smi: str | None = None) -> None:
        self._tree, self._nvidia_smi = ProcessTree(pid), nvidia_smi
        self._cores, self._limit_bytes = core_count(), memory_limit_bytes()
        self._watch: _Watch | None = None

    def start(self) -> None:
        """Begin a watch. Raises ``RuntimeError`` when one is running."""
        if self._watch is not None:
            raise RuntimeError("a watch is running")
        self._watch = _Watch(self._tree, self._nvidia_smi)
        self._began, self._spent, self._sent_s = time.perf_counter(), self._tree.spent(), time.process_time()

    def stop(self) -> Usage:
        """End the watch. Raises ``RuntimeError`` when none is running."""
        watch, self._watch = self._watch, None
        if watch is None:
            raise RuntimeError("no watch is running")
        elapsed_s, spent = max(time.perf_counter() - self._began, 1e-6), self._tree.spent()
        watch.end()
        return Usage(
            cpu=max(0.0, spent.tree_s - self._spent.tree_s) / elapsed_s,
            sender_cpu=(time.process_time() - self._sent_s) / elapsed_s,
            machine_cpu=(spent.machine_s - self._spent.machine_s) / elapsed_s,
            cores=self._cores,
            memory_bytes=watch.memory_bytes,
            memory_total_bytes=self._limit_bytes,
            gpu=watch.gpu(),
        )

    def memory_bytes(self) -> int:
        """Return the server's resident set now."""
        return self._tree.memory_bytes()


class _Watch:
    """The thread of one watch; its figures are read after ``end``."""

    def __init__(self, tree: ProcessTree, nvidia_smi: str | None) -> None:
        self._tree, self._nvidia_smi = tree, nvidia_smi
        self.memory_bytes = tree.memory_bytes()
        self._gpus: list[GpuState] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweep-meter", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def gpu(self) -> GpuUsage | None:
        if not self._gpus:
            return None
        busy = [state.busy for state in self._gpus if state.busy is not None]
        highest = max(self._gpus, key=lambda state: state.memory_bytes)
        mean = sum(busy) / len(busy) if busy else None
        return GpuUsage(highest.name, mean, highest.memory_bytes, highest.total_bytes)

    def _run(self) -> None:
        while not self._ended.wait(PERIOD_S):
            self.memory_bytes = max(self.memory_bytes, self._tree.memory_bytes())
            state = read_gpus(self._nvidia_smi) if self._nvidia_smi else None
            if state is not None:
                self._gpus.append(state)
