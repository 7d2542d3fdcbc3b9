"""Send load: open-loop at given times, or closed-loop with the server kept full.

Theory of operation. Open-loop means that a request is sent when it is due, however many are unanswered: a slow server
gets no rest. Its latency counts from the moment it was *due*, so a sender that falls behind makes latencies longer
and never hides them (no coordinated omission; Schroeder, Wierman, Harchol-Balter, NSDI 2006, open versus closed
systems). Each request is one task of a task group and ends at its timeout at the latest, so a load ends by itself no
later than ``timeout_s`` after the last request was due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

Send = Callable[[int], Awaitable[int]]
"""Send request number ``n``, wait for the whole answer and return its status. Raises ``ConnectionError``."""


class Result(StrEnum):
    """How a request ended."""

    OK = "ok"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One request; times in seconds from the start of its load. ``latency_s`` counts from ``due_s``."""

    due_s: float
    sent_s: float
    ended_s: float
    result: Result

    @property
    def latency_s(self) -> float:
        return self.ended_s - self.due_s


async def send_open(send: Send, due: Sequence[float], timeout_s: float, keep: Callable[[Outcome], None]) -> None:
    """Send one request at each of the ``due`` times (ascending) and hand every outcome to ``keep``.

    Returns when all have ended. Outcomes that were kept stay valid when this is cancelled.
    """
    clock = asyncio.get_running_loop().time
    start = clock()

    async def one(index: int, due_s: float) -> None:
        sent_s = clock() - start
        keep(await _outcome(send, index, start, due_s, sent_s, timeout_s))

    async with asyncio.TaskGroup() as requests:
        for index, due_s in enumerate(due):
            wait_s = start + due_s - clock()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            requests.create_task(one(index, due_s), name=f"sweep-request-{index}")


async def send_closed(
    send: Send, callers: int, duration_s: float, timeout_s: float, keep: Callable[[Outcome], None]
) -> None:
    """Let ``callers`` send one request after another for ``duration_s``; what is then unanswered is still awaited."""
    clock = asyncio.get_running_loop().time
    start = clock()

    async def call(first: int) -> None:
        index = first
        while (due_s := clock() - start) < duration_s:
            outcome = await _outcome(send, index, start, due_s, due_s, timeout_s)
            keep(outcome)
            index += callers
            if outcome.result is not Result.OK:
                await asyncio.sleep(_PAUSE_S)

    async with asyncio.TaskGroup() as running:
        for number in range(callers):
            running.create_task(call(number), name=f"sweep-caller-{number}")


_PAUSE_S = 0.1
"""A refused caller comes back after this, so that a server that refuses at once is not flooded."""


async def _outcome(send: Send, index: int, start: float, due_s: float, sent_s: float, timeout_s: float) -> Outcome:
    """Send and name the outcome; ``start`` is a time of the event loop's clock.

    An answer that comes after its time is a timeout even when this process was too slow to give up in time, and a
    timeout ends when its time is over.
    """
    clock = asyncio.get_running_loop().time
    deadline = start + due_s + timeout_s
    try:
        async with asyncio.timeout_at(deadline):
            result = _result(await send(index))
    except TimeoutError:
        result = Result.TIMEOUT
    except ConnectionError:
        result = Result.FAILED
    if result is Result.TIMEOUT or (result is Result.OK and clock() > deadline):
        return Outcome(due_s, sent_s, due_s + timeout_s, Result.TIMEOUT)
    return Outcome(due_s, sent_s, clock() - start, result)


def _result(status: int) -> Result:
    if status == 200:
        return Result.OK
    return Result.REFUSED if status in {429, 503} else Result.FAILED
