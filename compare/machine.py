"""What this machine lends to the job: cores and memory, as its control group bounds them (cgroup v2)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
_MOST = 8
_LEAST_MEMORY_BYTES = 3 * 1024**3
"""Two pictures of 64 megapixels take about two GiB, decoded and compared."""


def limit_memory(memory_bytes: int | None) -> None:
    """Bound by how much this process's address space may still grow, never beyond what it is already bound to.

    What the libraries have mapped by now (they reserve for each core) says nothing of a picture, so it is not counted.
    """
    if memory_bytes is None or not sys.platform.startswith("linux"):
        return
    import resource  # exists on Unix only

    words = _first_words(Path("/proc/self/statm"))
    if not words:
        return
    most = int(words[0]) * resource.getpagesize() + memory_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def usable_cores(root: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int:
    """Return how many processes can work at once, at most eight: the cores that this process may run on, or the CPU
    quota of its control group where that is less (``cpu.max`` of cgroup v2, of every group above it, too)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [_quota(folder / "cpu.max") for folder in _groups(root, own)]
    return max(1, min(_MOST, cores, *(int(quota) for quota in quotas if quota is not None)))


def memory_for_each(count: int, root: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")) -> int | None:
    """Return the memory for each of ``count`` processes: a share of the memory that this process may use, never
    below what two large pictures take; ``None`` where the memory is not known."""
    try:
        known = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    except (ValueError, OSError, AttributeError):
        return None
    for folder in _groups(root, own):
        text = _first_words(folder / "memory.max")
        if text and text[0].isdigit():
            known.append(int(text[0]))
    return max(_LEAST_MEMORY_BYTES, min(known) // max(1, count))


def _groups(root: Path, own: Path) -> list[Path]:
    """Return the folders of this process's control group and of all above it."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    name = next((line.removeprefix("0::").strip("/") for line in lines if line.startswith("0::")), "")
    parts = [part for part in name.split("/") if part not in ("", "..")]
    return [root.joinpath(*parts[:depth]) for depth in range(len(parts) + 1)]


def _quota(path: Path) -> float | None:
    """Return a ``cpu.max`` in cores, at least one; ``None`` without a limit."""
    words = _first_words(path)
    if len(words) != 2 or not all(word.isdigit() for word in words) or int(words[1]) == 0:
        return None
    return max(1.0, int(words[0]) / int(words[1]))


def _first_words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError):
        return []
