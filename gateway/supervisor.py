"""Keep several workers alive on one port.

The supervisor is one process without an event loop. It owns a listening socket for each worker, all on the same port
(``SO_REUSEPORT``: the kernel spreads connections over them), forks the workers, and does nothing but wait for signals.
Because the sockets are its own, connections that come while a worker is being restarted wait in its backlog.

A worker that ends is started anew: at once after a long life, else after a wait that grows. When the first start of a
worker fails, nothing is served at all and the reason stands in the log. SIGTERM and SIGINT close the sockets and are
passed on; the workers drain. A second one, or the end of ``KILL_AFTER_S``, kills what is left. SIGHUP is passed on, for
the workers to load their settings anew. Should the supervisor itself be killed, its end of a pipe closes and the
workers drain by themselves.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

START_FAILED = 3
KILL_AFTER_S = 70.0
LONG_LIFE_S = 10.0
MAX_WAIT_S = 5.0
_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD, signal.SIGHUP}

_log = logging.getLogger(__name__)

Work = Callable[[int, socket.socket, int], int]
"""What a worker does, given its number, its listening socket and a descriptor that ends with the supervisor; returns
its exit code, ``START_FAILED`` when it never served."""


def restart_wait_s(short_lives: int) -> float:
    """Return how long to wait before the next start, after so many short lives in a row."""
    return 0.0 if short_lives == 0 else float(min(MAX_WAIT_S, 0.1 * 2 ** min(short_lives - 1, 10)))


@dataclass(slots=True)
class _Slot:
    number: int
    listener: socket.socket
    pid: int | None = None
    born_s: float = 0.0
    starts: int = 0
    short_lives: int = 0
    due_s: float = field(default=float("-inf"))


class Supervisor:
    """Runs ``work`` once per listener. ``run`` may be called once, from the main thread of a process that has no
    other."""

    def __init__(self, work: Work, listeners: Sequence[socket.socket]) -> None:
        self._work = work
        self._slots = [_Slot(number, listener) for number, listener in enumerate(listeners)]
        self._alive_end, self._held_end = os.pipe()
        self._usual_mask: set[int] = set()
        self._stop_by_s: float | None = None
        self._code = 0

    def run(self) -> int:
        """Serve until told to end; return 0 after a clean drain, else 1."""
        self._usual_mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS))
        try:
            while not self._is_over():
                self._start_due()
                self._wait()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._usual_mask)
        return self._code

    def _is_over(self) -> bool:
        return self._stop_by_s is not None and all(slot.pid is None for slot in self._slots)

    def _start_due(self) -> None:
        if self._stop_by_s is not None:
            return
        for slot in self._slots:
            if slot.pid is None and time.monotonic() >= slot.due_s:
                self._start(slot)

    def _start(self, slot: _Slot) -> None:
        slot.born_s = time.monotonic()
        slot.starts += 1
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                code = self._be_worker(slot)
            except BaseException:  # the boundary of a process: nothing may return into the supervisor's code
                _log.exception("worker %d ended by a defect", slot.number)
            finally:
                logging.shutdown()
                os._exit(code)
        slot.pid = pid

    def _be_worker(self, slot: _Slot) -> int:
        os.close(self._held_end)
        for other in self._slots:
            if other is not slot:
                other.listener.close()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the worker heeds it: it loads its settings anyway
        signal.pthread_sigmask(signal.SIG_SETMASK, self._usual_mask)
        return self._work(slot.number, slot.listener, self._alive_end)

    def _wait(self) -> None:
        arrived = signal.sigtimedwait(_SIGNALS, self._patience_s())
        if arrived is not None and arrived.si_signo == signal.SIGHUP:
            self._pass_on(signal.SIGHUP)
        elif arrived is not None and arrived.si_signo != signal.SIGCHLD:
            if self._stop_by_s is None:
                self._stop()
            else:
                self._kill()
        self._bury()
        if self._stop_by_s is not None and time.monotonic() >= self._stop_by_s:
            self._kill()

    def _patience_s(self) -> float:
        times = [slot.due_s for slot in self._slots if slot.pid is None and self._stop_by_s is None]
        if self._stop_by_s is not None:
            times.append(self._stop_by_s)
        return max(0.0, min([5.0, *(when - time.monotonic() for when in times)]))

    def _stop(self) -> None:
        self._stop_by_s = time.monotonic() + KILL_AFTER_S
        for slot in self._slots:
            slot.listener.close()
        self._pass_on(signal.SIGTERM)

    def _kill(self) -> None:
        self._pass_on(signal.SIGKILL)

    def _pass_on(self, number: signal.Signals) -> None:
        for slot in self._slots:
            if slot.pid is not None:
                os.kill(slot.pid, number)

    def _bury(self) -> None:
        for slot in self._slots:
            if slot.pid is not None and (ended := os.waitpid(slot.pid, os.WNOHANG))[0]:
                self._note_end(slot, os.waitstatus_to_exitcode(ended[1]))

    def _note_end(self, slot: _Slot, code: int) -> None:
        slot.pid = None
        if self._stop_by_s is not None:
            self._code = self._code or int(code != 0)
        elif code == START_FAILED and slot.starts == 1:
            self._code = 1
            self._stop()
        else:
            is_short = time.monotonic() - slot.born_s < LONG_LIFE_S
            slot.short_lives = slot.short_lives + 1 if is_short else 0
            slot.due_s = time.monotonic() + restart_wait_s(slot.short_lives)
            _log.error("worker %d ended with %d and is started again", slot.number, code)
