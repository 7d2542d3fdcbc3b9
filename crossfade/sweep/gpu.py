"""Ask nvidia-smi what the GPUs do; a machine without it has no GPU for us."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

_QUERY = "--query-gpu=name,utilization.gpu,memory.used,memory.total"
_FORMAT = "--format=csv,noheader,nounits"
_TIMEOUT_S = 5.0
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class GpuState:
    """All GPUs at one moment: the mean of their utilisation (0 to 1, ``None`` where unknown, as under MIG)."""

    name: str
    busy: float | None
    memory_bytes: int
    total_bytes: int


def find_nvidia_smi() -> str | None:
    """Return the path of nvidia-smi, ``None`` where there is none or it sees no GPU."""
    command = shutil.which("nvidia-smi")
    return command if command and read_gpus(command) is not None else None


def read_gpus(command: str) -> GpuState | None:
    """Run nvidia-smi once. Blocking, up to 5 s; ``None`` when it fails."""
    try:
        done = subprocess.run(  # noqa: S603 - a path that shutil.which found
            [command, _QUERY, _FORMAT], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
        return parse_gpus(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def parse_gpus(text: str) -> GpuState:
    """Parse nvidia-smi's lines ``name, percent, MiB, MiB``, one per GPU. Raises ``ValueError``."""
    rows = [[part.strip() for part in line.rsplit(",", 3)] for line in text.splitlines() if line.strip()]
    if not rows or any(len(row) != 4 for row in rows):
        raise ValueError("nvidia-smi named no GPU")
    busy = [float(row[1]) / 100 for row in rows if row[1].replace(".", "", 1).isdigit()]
    names = list(dict.fromkeys(row[0] for row in rows))
    count = f"{len(rows)} x " if len(rows) > 1 else ""
    return GpuState(
        name=count + ", ".join(names),
        busy=sum(busy) / len(busy) if len(busy) == len(rows) else None,
        memory_bytes=sum(int(row[2]) for row in rows) * _MIB,
        total_bytes=sum(int(row[3]) for row in rows) * _MIB,
    )
