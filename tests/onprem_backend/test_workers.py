"""Threads that are there before they are needed."""

from __future__ import annotations

import threading

import pytest

from onprem_backend.workers import Reclaimer, start_workers


def names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_all_threads_run_before_any_work_comes_and_none_is_started_later() -> None:
    executor = start_workers(3, "early")
    before = sorted(name for name in names() if name.startswith("early"))
    assert len(before) == 3
    together = threading.Barrier(3)
    waits = [executor.submit(together.wait, 10) for _ in range(3)]
    assert sorted(wait.result() for wait in waits) == [0, 1, 2]
    assert sorted(name for name in names() if name.startswith("early")) == before
    executor.shutdown()


@pytest.mark.anyio
async def test_memory_is_given_back_in_a_thread_that_is_there_already() -> None:
    reclaim = Reclaimer()
    before = names()
    await reclaim()
    assert names() == before
    reclaim.close()
