"""What is read from /proc, from cgroup files and from nvidia-smi, and a real process that is watched."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crossfade.sweep.gpu import parse_gpus, read_gpus
from crossfade.sweep.meter import ServerMeter
from crossfade.sweep.proc import (
    ProcessTree,
    core_count,
    descendants,
    machine_busy_ticks,
    memory_limit_bytes,
    parse_stat,
)

STAT = "7 (my (odd) name) S 3 7 7 0 -1 4194560 500 0 0 0 110 20 30 4 20 0 9 0 8912 1000000 2048 18446744073709551615"
CHILD = "import sys; kept = bytearray(80_000_000); print('up', flush=True); sys.stdin.read()"
BURN = f"""
import subprocess, sys
command = [sys.executable, "-c", {CHILD!r}]
child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
sum(i * i for i in range(3_000_000))
print("burnt", flush=True)
sys.stdin.read()
child.stdin.close()
child.wait()
"""


@pytest.fixture
def server() -> Iterator[subprocess.Popen[str]]:
    """A process that has burnt CPU and has a child that holds 80 MB."""
    process = subprocess.Popen([sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "burnt\n"
    yield process
    process.stdin.close()
    process.stdout.close()
    process.wait(60)


def test_a_stat_line_is_parsed_behind_the_last_parenthesis() -> None:
    stat = parse_stat(STAT)
    assert (stat.parent, stat.ticks, stat.pages) == (3, 110 + 20 + 30 + 4, 2048)
    with pytest.raises(ValueError, match="too short"):
        parse_stat("7 (name) S 3")


def test_descendants_are_all_below_and_no_stranger() -> None:
    parents = {1: 0, 5: 1, 6: 5, 7: 6, 8: 1, 9: 8}
    assert sorted(descendants(5, parents)) == [5, 6, 7]
    assert descendants(99, parents) == []


def test_busy_ticks_leave_out_idle_and_waiting_for_disks() -> None:
    stat = "cpu  101 5 20 9000 300 1 2 3 50 0\ncpu0 100 5 20 9000 300 1 2 3 50 0\ncpu1 1 0 0 0 0 0 0 0 0 0\nintr 7 1 1"
    assert machine_busy_ticks(stat, {0}) == 100 + 5 + 20 + 1 + 2 + 3
    assert machine_busy_ticks(stat, {0, 1}) == machine_busy_ticks(stat, {0}) + 1


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", None), ("50000 100000", 0.5), ("broken", None)])
def test_cores_are_the_affinity_or_the_quota(tmp_path: Path, quota: str, cores: float | None) -> None:
    (tmp_path / "cpu.max").write_text(quota)
    assert core_count(tmp_path) == (cores or len(os.sched_getaffinity(0)))


@pytest.mark.parametrize(
    ("limit", "expected"), [("1000000", 1_000_000), ("max", 2048 * 1024), ("9000000000", 2048 * 1024)]
)
def test_memory_is_the_machines_or_the_cgroups(tmp_path: Path, limit: str, expected: int) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:        2048 kB\nMemFree:  12 kB\n")
    (tmp_path / "memory.max").write_text(limit)
    assert memory_limit_bytes(tmp_path, tmp_path) == expected


def test_a_tree_has_the_memory_of_its_children_and_the_cpu_it_burnt(server: subprocess.Popen[str]) -> None:
    tree = ProcessTree(server.pid)
    assert 80_000_000 < tree.memory_bytes() < 400_000_000
    spent = tree.spent()
    assert 0 < spent.tree_s < spent.machine_s


def test_a_dead_tree_uses_nothing(server: subprocess.Popen[str]) -> None:
    tree = ProcessTree(2**22 + 1)  # above the highest pid there is
    assert (tree.memory_bytes(), tree.spent().tree_s) == (0, 0)


def test_a_watch_ends_its_thread_and_says_what_was_used(server: subprocess.Popen[str]) -> None:
    meter = ServerMeter(server.pid)
    meter.start()
    with pytest.raises(RuntimeError, match="running"):
        meter.start()
    usage = meter.stop()
    assert usage.memory_bytes > 80_000_000
    assert usage.cpu >= 0
    assert usage.cores >= 0.1
    assert usage.gpu is None
    assert usage.memory_bytes < usage.memory_total_bytes
    with pytest.raises(RuntimeError, match="no watch"):
        meter.stop()


def test_gpu_lines_are_summed_over_all_cards() -> None:
    state = parse_gpus("NVIDIA H200, 40, 1000, 143771\nNVIDIA H200, 60, 3000, 143771\n")
    assert (state.name, state.busy) == ("2 x NVIDIA H200", 0.5)
    assert (state.memory_bytes, state.total_bytes) == (4000 * 2**20, 2 * 143771 * 2**20)


def test_utilisation_that_the_driver_does_not_say_is_unknown_and_not_zero() -> None:
    assert parse_gpus("NVIDIA A100 MIG 1g, [N/A], 10, 40960\n").busy is None


@pytest.mark.parametrize("text", ["", "No devices were found\n", "NVIDIA T4, 10, [N/A], 16384\n"])
def test_lines_without_a_usable_gpu_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_gpus(text)


def test_nvidia_smi_is_run_and_a_failing_one_is_no_gpu(tmp_path: Path) -> None:
    works, fails = tmp_path / "works", tmp_path / "fails"
    works.write_text("#!/bin/sh\necho 'Tesla T4, 7, 512, 15360'\n")
    fails.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed' >&2\nexit 9\n")
    for script in (works, fails):
        script.chmod(0o755)
    state = read_gpus(str(works))
    assert state is not None
    assert (state.name, state.busy, state.memory_bytes) == ("Tesla T4", 0.07, 512 * 2**20)
    assert read_gpus(str(fails)) is None
    assert read_gpus(str(tmp_path / "absent")) is None
