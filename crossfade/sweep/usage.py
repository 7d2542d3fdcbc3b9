"""What a server used while it was measured, as values."""

from __future__ import annotations

from dataclasses import dataclass

STRANGERS = 0.25
"""Cores that strangers may use before a measurement on a full machine is disturbed."""


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """All GPUs together: ``busy`` is the mean share of time that kernels ran (0 to 1, ``None`` where the driver does
    not say), memory is that of the whole device, whoever uses it."""

    name: str
    busy: float | None
    memory_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """``cpu`` is how many cores the server used on average, ``sender_cpu`` how many the load's sender (this process),
    ``machine_cpu`` how many all processes, strangers included; ``cores`` is how many there are for us.
    ``memory_bytes`` is the server's highest resident set; ``memory_total_bytes`` what it may use. ``gpu`` is ``None``
    where there is none."""

    cpu: float
    sender_cpu: float
    machine_cpu: float
    cores: float
    memory_bytes: int
    memory_total_bytes: int
    gpu: GpuUsage | None = None

    @property
    def cpu_share(self) -> float:
        return self.cpu / self.cores

    @property
    def strangers_cpu(self) -> float:
        """How many cores processes used that are neither server nor sender."""
        return max(0.0, self.machine_cpu - self.cpu - self.sender_cpu)

    @property
    def disturbed(self) -> bool:
        """Say whether strangers took cores that the server could have used: they worked, and none was left idle."""
        return self.strangers_cpu > STRANGERS and self.cores - self.machine_cpu < STRANGERS
