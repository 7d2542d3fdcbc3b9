"""The script on Redis and the counters in memory are the same arithmetic, whatever comes when."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.limiting.counting import Decision, MemoryCounters
from gateway.limiting.rules import Charge
from gateway.limiting.store import read_answer, read_script, script_arguments
from gateway.settings import Limit
from tests.gateway.limits import STRATEGIES, Clock, charges
from tests.gateway.redis_server import redis_running

CLOCK = "redis.call('TIME')"
EPOCH_S = 1_800_000_000.0
steps = st.lists(
    st.tuples(st.integers(0, 2500), st.integers(1, 8), st.integers(0, 3), st.booleans()), min_size=1, max_size=60
)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with redis_running(tmp_path_factory.mktemp("redis")) as server, server.connect() as client:
        yield client


def test_the_script_reads_no_clock_but_its_own_and_that_once() -> None:
    assert read_script().count(CLOCK) == 1
    assert "TIME" not in read_script().replace(CLOCK, "")


class Script:
    """The script with a clock of the test's in place of Redis's own."""

    def __init__(self, redis: Any) -> None:
        self._redis = redis
        text = read_script().replace(CLOCK, "{tonumber(ARGV[#ARGV - 1]), tonumber(ARGV[#ARGV])}")
        self._script = redis.register_script(text)

    def decide(self, asked: tuple[Charge, ...], lease: str, now_s: float, commit: bool) -> Decision:
        seconds, micro = divmod(int(now_s * 1_000_000), 1_000_000)
        arguments = script_arguments(asked, lease, commit=commit, lease_s=1e6)
        return read_answer(self._script([charge.key for charge in asked], [*arguments, seconds, micro]))


RUNS = itertools.count()


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=60, deadline=None)
@given(steps=steps)
def test_script_and_memory_decide_alike(redis: Any, strategy: str, steps: list[tuple[int, int, int, bool]]) -> None:
    script, clock = Script(redis), Clock(EPOCH_S)
    memory = MemoryCounters(clock)
    run = next(RUNS)
    for number, (milliseconds, cost, which, commit) in enumerate(steps):
        clock.advance(milliseconds / 1000)
        limits = (
            ["10/2 second"],
            ["10/2 second", "14/5 second"],
            ["7/3 second", Limit("3/second", dry_run=True)],
            [Limit("10/2 second", strategy="fixed-window"), Limit("12/4 second", strategy="sliding-window-counter")],
        )[which]
        asked = charges(*limits, key=f"run {run}", cost=cost, strategy=strategy)
        said = script.decide(asked, f"lease {number}", clock(), commit)
        assert said == asyncio.run(memory.decide(asked, f"lease {number}", commit=commit))
        assert said.healed == 0
