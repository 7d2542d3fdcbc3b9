"""Large copies give way to production, but not for ever."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from shadow.courtesy import PATIENCE_S, Courtesy

pytestmark = pytest.mark.anyio


def ticks(answers: Iterator[bool]) -> tuple[Courtesy, list[float]]:
    """Return a courtesy on a clock that goes on by a tenth of the patience with each look at the traffic."""
    times = [0.0]

    def busy() -> bool:
        times.append(times[-1] + PATIENCE_S / 10)
        return next(answers)

    return Courtesy(busy, lambda: times[-1]), times


@pytest.mark.parametrize(("answers", "looks"), [([False], 1), ([True, True, False], 3), ([True] * 20, 10)])
async def test_it_waits_for_a_gap_within_its_patience(answers: list[bool], looks: int) -> None:
    for blocking in (True, False):
        courtesy, times = ticks(iter(answers))
        if blocking:
            courtesy.wait(0.0)
        else:
            await courtesy.pause(0.0)
        assert looks <= len(times) - 1 <= looks + 1


def test_what_came_up_long_ago_and_what_is_urgent_does_not_wait() -> None:
    busy, times = ticks(iter([True] * 3))
    busy.wait(-PATIENCE_S)
    assert len(times) == 1
    urgent = count()
    busy.unless(lambda: next(urgent) == 1).wait(0.0)
    assert next(urgent) == 2
