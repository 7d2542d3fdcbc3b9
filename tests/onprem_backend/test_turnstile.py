"""Who gets a token, when, and what happens to callers that leave."""

from __future__ import annotations

import asyncio

import pytest

from onprem_backend.problems import Problem
from onprem_backend.turnstile import Turnstile

pytestmark = pytest.mark.anyio


def turnstile(size: int = 1, max_waiting: int = 8, wait_s: float = 10.0) -> Turnstile[int]:
    return Turnstile("t", range(size), max_waiting=max_waiting, wait_s=wait_s, clock=lambda: 0.0)


async def queue_up(gate: Turnstile[int], order: list[int], name: int) -> asyncio.Task[None]:
    async def enter() -> None:
        async with gate.lease():
            order.append(name)

    task = asyncio.create_task(enter())
    await asyncio.sleep(0)
    return task


async def test_callers_are_served_in_the_order_they_came() -> None:
    gate, order = turnstile(), list[int]()
    token = await gate.acquire()
    tasks = [await queue_up(gate, order, name) for name in range(5)]
    assert gate.waiting == 5
    gate.release(token, 1.0)
    await asyncio.gather(*tasks)
    assert order == [0, 1, 2, 3, 4]
    assert (gate.idle, gate.waiting) == (1, 0)


async def test_one_too_many_is_refused_at_once_with_retry_after() -> None:
    gate, order = turnstile(max_waiting=2), list[int]()
    token = await gate.acquire()
    gate.release(token, 10.0)
    token = await gate.acquire()
    tasks = [await queue_up(gate, order, name) for name in range(2)]
    with pytest.raises(Problem) as caught:
        await gate.acquire()
    assert caught.value.code == "overloaded"
    assert caught.value.retry_after_s == 30  # three turns of 10 s
    gate.release(token, 0.0)
    await asyncio.gather(*tasks)
    assert gate.idle == 1


async def test_before_anything_has_ended_retry_after_follows_what_runs() -> None:
    now = 0.0
    gate = Turnstile("t", range(2), max_waiting=0, wait_s=1, clock=lambda: now)
    tokens = [await gate.acquire() for _ in range(2)]
    for at, expected in ((0.1, 1), (8.0, 4), (500.0, 60)):
        now = at
        with pytest.raises(Problem) as caught:
            await gate.acquire()
        assert caught.value.retry_after_s == expected
    for token in tokens:
        gate.release(token, 4.0)
    tokens = [await gate.acquire() for _ in range(2)]
    with pytest.raises(Problem) as caught:
        await gate.acquire()
    assert caught.value.retry_after_s == 2  # what was held before tells nothing any more


async def test_a_wait_ends_with_503_and_leaves_the_queue() -> None:
    gate = turnstile(wait_s=0.01)
    token = await gate.acquire()
    with pytest.raises(Problem):
        await gate.acquire()
    assert gate.waiting == 0
    gate.release(token, 0.0)
    assert gate.idle == 1


async def test_a_cancelled_caller_leaves_the_queue_and_the_next_one_is_served() -> None:
    gate, order = turnstile(), list[int]()
    token = await gate.acquire()
    first, second = [await queue_up(gate, order, name) for name in (1, 2)]
    first.cancel()
    gate.release(token, 0.0)  # in the same turn of the loop: the cancelled one must not take it
    await asyncio.gather(first, second, return_exceptions=True)
    assert order == [2]
    assert gate.idle == 1


async def test_a_token_given_to_a_caller_cancelled_in_the_same_instant_is_passed_on() -> None:
    gate, order = turnstile(), list[int]()
    token = await gate.acquire()
    first, second = [await queue_up(gate, order, name) for name in (1, 2)]
    gate.release(token, 0.0)
    first.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert order == [2]
    assert gate.idle == 1
