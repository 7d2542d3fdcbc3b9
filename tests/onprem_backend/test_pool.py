"""Sessions: one request each, never lost, replaced when they may be spoilt."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from onprem_backend.pool import SessionPool
from onprem_backend.problems import Problem

pytestmark = pytest.mark.anyio


@contextmanager
def numbered_pool(size: int = 1, timeout_s: float = 10.0) -> Iterator[SessionPool[int]]:
    numbers = itertools.count()
    pool = SessionPool("p", lambda: next(numbers), size=size, max_waiting=8, wait_s=10, timeout_s=timeout_s)
    try:
        yield pool
        assert (pool.idle, pool.waiting) == (size, 0)
    finally:
        pool.close()


async def session_of(pool: SessionPool[int]) -> int:
    return (await pool.run(lambda session, stop: session)).value


async def test_a_session_is_used_by_one_request_at_a_time() -> None:
    inside: set[int] = set()

    def work(session: int, stop: threading.Event) -> int:
        assert session not in inside
        inside.add(session)
        threading.Event().wait(0.005)
        inside.remove(session)
        return session

    with numbered_pool(size=2) as pool:
        used = await asyncio.gather(*(pool.run(work) for _ in range(9)))
    assert {timed.value for timed in used} == {0, 1}


async def test_i15_a_failed_session_is_replaced_and_the_pool_keeps_its_size() -> None:
    def fail(session: int, stop: threading.Event) -> None:
        raise RuntimeError("spoilt")

    def refuse(session: int, stop: threading.Event) -> None:
        raise Problem("no_face_found", "none")

    with numbered_pool() as pool:
        assert await session_of(pool) == 0
        with pytest.raises(Problem):
            await pool.run(refuse)
        assert await session_of(pool) == 0
        with pytest.raises(RuntimeError):
            await pool.run(fail)
        assert await session_of(pool) == 1


async def test_i15_out_of_time_stops_the_work_and_the_session_comes_back_when_its_thread_ends() -> None:
    may_end = threading.Event()
    stops: list[threading.Event] = []

    def work(session: int, stop: threading.Event) -> None:
        stops.append(stop)
        may_end.wait(30)

    with numbered_pool(timeout_s=0.05) as pool:
        with pytest.raises(Problem) as caught:
            await pool.run(work)
        assert caught.value.code == "inference_timeout"
        assert stops[0].is_set()
        assert pool.idle == 0
        waiting = asyncio.create_task(session_of(pool))
        may_end.set()
        assert await waiting == 0


async def test_a_cancelled_caller_stops_its_work_and_loses_no_session() -> None:
    started, stopped = threading.Event(), threading.Event()

    def work(session: int, stop: threading.Event) -> None:
        started.set()
        if stop.wait(30):
            stopped.set()

    with numbered_pool() as pool:
        task = asyncio.create_task(pool.run(work))
        await asyncio.to_thread(started.wait, 30)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert await asyncio.to_thread(stopped.wait, 30)
        assert await session_of(pool) == 0


async def test_a_session_that_cannot_be_built_costs_its_request_only() -> None:
    attempts = itertools.count()

    def make() -> int:
        number = next(attempts)
        if number == 0:
            raise OSError("no memory for a session")
        return number

    pool = SessionPool("p", make, size=1, max_waiting=8, wait_s=10, timeout_s=10)
    with pytest.raises(OSError, match="no memory"):
        await session_of(pool)
    assert await session_of(pool) == 1
    pool.close()
