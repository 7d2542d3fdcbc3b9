"""Read what a process tree and its machine use, from Linux's /proc and cgroup files (proc(5), cgroups(7))."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU seconds since boot or birth: of the process tree, and of all the cores we may use."""

    tree_s: float
    machine_s: float


@dataclass(frozen=True, slots=True)
class _Stat:
    """One line of /proc/PID/stat: parent, CPU ticks of the process and of its children that have ended, pages."""

    parent: int
    ticks: int
    pages: int


class ProcessTree:
    """A process and all its descendants, by the id of the first. Blocking reads of a few milliseconds."""

    def __init__(self, root: int, proc: Path = Path("/proc")) -> None:
        self._root, self._proc = root, proc
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def spent(self) -> Spent:
        """Return the CPU time spent until now. Children that ended count once their parent has waited for them."""
        ticks = sum(stat.ticks for stat in self._tree())
        machine = machine_busy_ticks(self._read("stat"), os.sched_getaffinity(0))
        return Spent(ticks / self._ticks_per_s, machine / self._ticks_per_s)

    def memory_bytes(self) -> int:
        """Return the resident set of all processes together; pages that they share count in each."""
        return sum(stat.pages for stat in self._tree()) * self._page_bytes

    def _tree(self) -> list[_Stat]:
        stats: dict[int, _Stat] = {}
        for entry in os.listdir(self._proc):
            if entry.isdigit():
                with suppress(OSError, ValueError):  # it may end while we look
                    stats[int(entry)] = parse_stat(self._read(f"{entry}/stat"))
        return [stats[pid] for pid in descendants(self._root, {pid: s.parent for pid, s in stats.items()})]

    def _read(self, name: str) -> str:
        return (self._proc / name).read_text()


def parse_stat(line: str) -> _Stat:
    """Parse /proc/PID/stat; the command in parentheses may hold spaces and parentheses. Raises ``ValueError``."""
    fields = line[line.rindex(")") + 2 :].split()
    if len(fields) < 22:
        raise ValueError("a line of /proc/PID/stat is too short")
    return _Stat(int(fields[1]), sum(int(fields[i]) for i in (11, 12, 13, 14)), int(fields[21]))


def descendants(root: int, parents: Mapping[int, int]) -> list[int]:
    """Return ``root`` (if it lives) and every process below it."""
    found, waiting = [], [root] if root in parents else []
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += [child for child, parent in parents.items() if parent == pid]
    return found


def machine_busy_ticks(stat: str, cores: Collection[int]) -> int:
    """Return the ticks that ``cores`` were neither idle nor waiting for a disk, from the text of /proc/stat.

    Guest time is part of user time already, and so is not added.
    """
    busy = 0
    names = {f"cpu{core}" for core in cores}
    for line in stat.splitlines():
        fields = line.split()
        if fields and fields[0] in names:
            user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in fields[1:9])
            busy += user + nice + system + irq + softirq + steal
    return busy


def core_count(cgroup: Path = Path("/sys/fs/cgroup")) -> float:
    """Return how many cores this process may use: its affinity, and its cgroup's quota where there is one."""
    cores = float(len(os.sched_getaffinity(0)))
    with suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text().split()
        if quota != "max":
            return min(cores, int(quota) / int(period))
    return cores


def memory_limit_bytes(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the machine's memory, or the cgroup's limit where that is less."""
    meminfo = dict(line.split(":", 1) for line in (proc / "meminfo").read_text().splitlines())
    total = int(meminfo["MemTotal"].split()[0]) * 1024
    with suppress(OSError, ValueError):
        return min(total, int((cgroup / "memory.max").read_text()))
    return total
