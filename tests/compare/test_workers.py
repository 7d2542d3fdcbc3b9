"""Worker processes that die, run out of memory, or may not be as many as there are cores."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from compare.machine import memory_for_each, usable_cores
from compare.measurement import Measurement, NotComparable
from compare.measuring import measure_safely
from compare.policy import Kind, Policy
from compare.workers import Workers
from shadow.exchange import Exchange
from tests.compare.examples import answer, exchange, labels, policy

POLICY = policy(Kind.CLASSIFICATION)
FATAL = "route-5"


def die_at_five(exchange: Exchange, policy: Policy) -> Measurement:
    """Measure; the process ends without a word at one exchange."""
    if exchange.id == FATAL:
        os._exit(3)
    return measure_safely(exchange, policy)


def allocate(exchange: Exchange, policy: Policy) -> Measurement:
    """Measure; at one exchange ask for 6 GiB, which are there but are not allowed (and are never touched)."""
    if exchange.id == FATAL:
        np.empty(6 * 1024**3, np.uint8)
    return measure_safely(exchange, policy)


def made(count: int) -> list[Exchange]:
    content = labels(("cat", 0.9))
    sides = [answer(name, content, "application/json") for name in ("cloud", "onprem")]
    return [exchange(n, *sides) for n in range(count)]


def test_a_process_that_dies_costs_one_measurement_and_names_it() -> None:
    workers = Workers(2, measure=die_at_five)
    try:
        found = workers.measure(made(10), POLICY)
        again = workers.measure(made(4), POLICY)
    finally:
        workers.close()
    assert [m.exchange_id for m in found] == [f"route-{n}" for n in range(10)]
    assert [m.exchange_id for m in found if m.not_comparable is NotComparable.KERNEL_FAULT] == [FATAL]
    assert next(m for m in found if m.exchange_id == FATAL).judgement.note == "the process that measured it died"
    assert all(m.not_comparable is None for m in again)


def test_an_allocation_beyond_the_limit_fails_inside_of_its_process() -> None:
    free, bound = Workers(1, measure=allocate), Workers(1, measure=allocate, memory_bytes=1024**3)
    try:
        assert all(m.not_comparable is None for m in free.measure(made(8), POLICY))
        found = bound.measure(made(8), POLICY)
    finally:
        free.close()
        bound.close()
    assert [m.exchange_id for m in found if m.not_comparable is NotComparable.TOOK_TOO_MUCH_MEMORY] == [FATAL]
    assert sum(m.not_comparable is None for m in found) == 7


def hang(exchange: Exchange, policy: Policy) -> Measurement:
    """Measure; one exchange never ends."""
    while exchange.id == FATAL:
        pass
    return measure_safely(exchange, policy)


def test_a_kernel_that_hangs_is_killed_and_costs_one_measurement() -> None:
    workers = Workers(2, measure=hang, limit_s=3.0)
    try:
        found = workers.measure(made(12), POLICY)
        again = workers.measure(made(4), POLICY)
    finally:
        workers.close()
    assert [m.exchange_id for m in found] == [f"route-{n}" for n in range(12)]
    assert [m.exchange_id for m in found if m.not_comparable is NotComparable.TOOK_TOO_LONG] == [FATAL]
    lost = next(m for m in found if m.exchange_id == FATAL)
    assert lost.judgement.note == "measuring it took longer than 3 s"
    assert all(m.not_comparable is None for m in again)


def limited(tmp_path: Path, own: str, outer: str) -> tuple[Path, Path]:
    root, name = tmp_path / "cgroup", tmp_path / "self"
    inner = root / "system.slice" / "job"
    inner.mkdir(parents=True)
    (root / "system.slice" / "cpu.max").write_text(outer)
    (inner / "cpu.max").write_text(own)
    (inner / "memory.max").write_text("8589934592\n")
    name.write_text("0::/system.slice/job\n")
    return root, name


def test_no_more_processes_than_the_control_group_has_cores(tmp_path: Path) -> None:
    cores = min(8, len(os.sched_getaffinity(0)))
    assert usable_cores(*limited(tmp_path / "a", "100000 100000\n", "max 100000\n")) == 1
    assert usable_cores(*limited(tmp_path / "b", "max 100000\n", "150000 100000\n")) == 1
    assert usable_cores(*limited(tmp_path / "c", "20000 100000\n", "max 100000\n")) == 1
    assert usable_cores(*limited(tmp_path / "d", "max 100000\n", "max 100000\n")) == cores
    assert usable_cores(*limited(tmp_path / "e", "nonsense\n", "\n")) == cores
    assert usable_cores(tmp_path / "nothing", tmp_path / "nowhere") == cores


def test_memory_is_shared_out_but_never_below_what_two_large_pictures_take(tmp_path: Path) -> None:
    place = limited(tmp_path, "max 100000\n", "max 100000\n")
    assert memory_for_each(2, *place) == 4 * 1024**3
    assert memory_for_each(100, *place) == 3 * 1024**3
