"""The load itself: sent when due, counted from when due, over by itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from crossfade.sweep.load import Outcome, Result, send_closed, send_open
from crossfade.sweep.plan import poisson_arrivals, steady_arrivals
from tests.crossfade.sweep.virtual_time import VirtualLoop


def outcomes_of(load: Callable[[Callable[[Outcome], None]], Coroutine[Any, Any, None]]) -> list[Outcome]:
    kept: list[Outcome] = []
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(load(kept.append))
    return kept


def after(seconds: float, status: int = 200) -> Callable[[int], Awaitable[int]]:
    async def send(index: int) -> int:
        await asyncio.sleep(seconds)
        return status

    return send


def test_requests_are_sent_when_due_however_slow_the_server_is() -> None:
    kept = outcomes_of(lambda keep: send_open(after(5.0), [0.0, 1.0, 2.0], 30, keep))
    assert [(o.sent_s, o.ended_s) for o in kept] == [(0, 5), (1, 6), (2, 7)]
    assert {o.result for o in kept} == {Result.OK}


def test_a_stalled_sender_makes_latencies_longer_and_hides_none() -> None:
    """Coordinated omission: the loop stands still for 3 s, as under a blocking call."""

    async def load(keep: Callable[[Outcome], None]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_later(0.5, loop.stall, 3.0)
        await send_open(after(0.1), [0.0, 1.0, 2.0, 3.0], 30, keep)

    kept = sorted(outcomes_of(load), key=lambda o: o.due_s)
    assert [round(o.latency_s, 6) for o in kept] == [0.1, 2.6, 1.6, 0.6]


def test_a_request_ends_at_its_timeout_counted_from_when_it_was_due() -> None:
    kept = outcomes_of(lambda keep: send_open(after(100), [0.0, 4.0], 2.5, keep))
    assert [(o.ended_s, o.result) for o in kept] == [(2.5, Result.TIMEOUT), (6.5, Result.TIMEOUT)]


def test_an_answer_after_its_time_is_a_timeout_even_when_the_sender_was_too_slow_to_give_up() -> None:
    async def load(keep: Callable[[Outcome], None]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.call_later(0.05, loop.stall, 3.0)
        await send_open(after(0.1), [0.0], 1, keep)

    assert [(o.result, o.ended_s) for o in outcomes_of(load)] == [(Result.TIMEOUT, 1)]


@pytest.mark.parametrize(
    ("status", "result"),
    [(200, Result.OK), (503, Result.REFUSED), (429, Result.REFUSED), (500, Result.FAILED), (404, Result.FAILED)],
)
def test_an_answer_is_named_by_its_status(status: int, result: Result) -> None:
    assert [o.result for o in outcomes_of(lambda keep: send_open(after(0, status), [0.0], 1, keep))] == [result]


def test_a_broken_connection_is_a_failed_request_and_ends_nothing_else() -> None:
    async def send(index: int) -> int:
        if index == 0:
            raise ConnectionError("gone")
        return 200

    kept = outcomes_of(lambda keep: send_open(send, [0.0, 1.0], 5, keep))
    assert [o.result for o in kept] == [Result.FAILED, Result.OK]


def test_a_closed_load_keeps_every_caller_busy_and_ends_by_itself() -> None:
    kept = outcomes_of(lambda keep: send_closed(after(0.5), 3, 10, 30, keep))
    assert len(kept) == 3 * 20
    assert max(o.ended_s for o in kept) == pytest.approx(10)


def test_refused_callers_of_a_closed_load_pause_before_they_come_back() -> None:
    kept = outcomes_of(lambda keep: send_closed(after(0, 503), 2, 1, 30, keep))
    assert len(kept) <= 2 * 11


def test_poisson_arrivals_are_the_same_for_a_seed_and_have_their_rate_and_spread() -> None:
    due = poisson_arrivals(5, 2000, "1/restore/5")
    assert due == poisson_arrivals(5, 2000, "1/restore/5") != poisson_arrivals(5, 2000, "2/restore/5")
    assert 0 < due[0] <= due[-1] < 2000
    assert list(due) == sorted(due)
    assert len(due) == pytest.approx(10_000, abs=400)  # four standard deviations of a Poisson count
    gaps = [b - a for a, b in itertools.pairwise(due)]
    mean = sum(gaps) / len(gaps)
    variance = sum((gap - mean) ** 2 for gap in gaps) / len(gaps)
    assert variance == pytest.approx(mean**2, rel=0.15)  # exponential gaps


def test_a_short_slow_load_still_has_a_request_and_steady_ones_are_even() -> None:
    assert poisson_arrivals(0.001, 0.01, "1") == (0.0,)
    assert steady_arrivals(4, 5) == (0, 0.25, 0.5, 0.75, 1.0)
