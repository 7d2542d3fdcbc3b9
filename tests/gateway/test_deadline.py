"""A deadline that moves: it ends its block when its last end says so, and an interruption is never lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from gateway.alarm import Alarms
from gateway.deadline import Deadline

pytestmark = pytest.mark.anyio
SHORT_S = 0.02
LONG_S = 30.0


async def ends(work: Callable[[Deadline], Awaitable[None]]) -> float:
    """Do the work and then wait for ever, in a block that the deadline must end; return how long that took."""
    began_s = asyncio.get_running_loop().time()

    async def block() -> None:
        with Deadline(Alarms()) as deadline:
            await work(deadline)
            await asyncio.Event().wait()

    async with asyncio.timeout(25):
        with pytest.raises(TimeoutError, match=r"^$"):
            await block()
    return asyncio.get_running_loop().time() - began_s


async def test_it_ends_its_block() -> None:
    async def work(deadline: Deadline) -> None:
        deadline.extend(SHORT_S)

    assert SHORT_S - 0.002 <= await ends(work) < 20


async def test_an_end_may_move_away_before_and_after_its_timer_fires() -> None:
    async def work(deadline: Deadline) -> None:
        deadline.extend(SHORT_S)
        deadline.extend(SHORT_S * 25)
        await asyncio.sleep(SHORT_S * 2)
        deadline.extend(SHORT_S * 25)

    assert await ends(work) >= SHORT_S * 27 - 0.002


async def test_an_end_may_come_nearer() -> None:
    async def work(deadline: Deadline) -> None:
        deadline.extend(LONG_S)
        deadline.extend(SHORT_S)

    assert await ends(work) < 20


async def test_an_end_in_the_past_is_now() -> None:
    async def work(deadline: Deadline) -> None:
        deadline.extend(-1)

    assert await ends(work) < 20


async def test_an_end_in_the_past_may_move_away_in_the_same_turn() -> None:
    with Deadline(Alarms()) as deadline:
        deadline.extend(-1)
        deadline.extend(LONG_S)
        await asyncio.sleep(0.001)


async def test_an_interruption_is_not_lost_to_an_extension() -> None:
    async def work(deadline: Deadline) -> None:
        deadline.extend(LONG_S)
        deadline.interrupt()
        deadline.extend(LONG_S)

    assert await ends(work) < 20


@pytest.mark.parametrize("interrupted", [True, False])
async def test_what_is_held_is_not_ended_before_its_release(interrupted: bool) -> None:
    held_to_the_end = False

    async def work(deadline: Deadline) -> None:
        nonlocal held_to_the_end
        deadline.extend(SHORT_S)
        if interrupted:
            deadline.interrupt()
        deadline.hold()
        await asyncio.sleep(SHORT_S * 2)
        held_to_the_end = True
        deadline.release()

    await ends(work)
    assert held_to_the_end


async def test_nothing_moves_after_the_end() -> None:
    with Deadline(Alarms()) as deadline:
        deadline.extend(LONG_S)
    deadline.extend(SHORT_S)
    deadline.interrupt()
    await asyncio.sleep(SHORT_S * 2)


async def test_what_comes_while_the_time_runs_out_is_harmless() -> None:
    deadline = Deadline(Alarms())

    async def run_out() -> None:
        with deadline:
            deadline.extend(0)
            try:
                await asyncio.sleep(10)
            finally:
                deadline.interrupt()
                deadline.extend(5)
                deadline.hold()
                deadline.release()

    with pytest.raises(TimeoutError):
        await run_out()
    deadline.interrupt()


async def test_a_timer_that_is_left_set_ends_no_later_block() -> None:
    alarms = Alarms()
    with Deadline(alarms) as first:
        first.extend(SHORT_S)
    with Deadline(alarms) as second:
        second.extend(LONG_S)
        first.extend(-1)
        first.interrupt()
        await asyncio.sleep(SHORT_S * 2)
