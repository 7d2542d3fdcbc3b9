"""The thread that writes: one transaction for what comes together, and when it does not wait for more."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from shadow.courtesy import NO_COURTESY, Courtesy
from shadow.errors import StoreError, StoreFull
from shadow.store.database import open_database
from shadow.store.writer import MAX_BATCH, PARALLEL, Writer

LONG_S = 60.0
"""What is done long before this was not waited for."""
WAIT_S = LONG_S / 2
OWED = Courtesy(lambda: True, gather_s=LONG_S)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    found = open_database(f"sqlite:///{tmp_path}/store.db")
    yield found
    found.dispose()


class Batches:
    """What is written in each transaction; a negative number cannot be."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def commit(self, connection: Connection, items: Sequence[int]) -> list[int]:
        """Take note of a batch."""
        self.seen.append(list(items))
        if min(items) < 0:
            raise ValueError("negative")
        return list(items)


def test_where_production_is_served_what_comes_is_gathered_and_the_end_does_not_wait(engine: Engine) -> None:
    batches = Batches()
    writer = Writer(engine, batches.commit, 1000, OWED)
    futures = [writer.submit(partial(int, n)) for n in range(3)]
    writer.close()
    assert batches.seen == [[0, 1, 2]]
    assert [future.result(0) for future in futures] == [0, 1, 2]


def test_half_a_batch_is_written_at_once(engine: Engine) -> None:
    batches = Batches()
    writer = Writer(engine, batches.commit, 1000, OWED)
    futures = [writer.submit(partial(int, n)) for n in range(MAX_BATCH // 2)]
    assert not wait(futures, WAIT_S).not_done
    assert batches.seen == [list(range(MAX_BATCH // 2))]
    writer.close()


def test_a_loop_that_is_busy_does_not_make_it_fall_behind(engine: Engine) -> None:
    """Whoever steps aside may be kept there: that may happen for a while in each batch, not with each exchange."""
    batches, kept_s = Batches(), 0.25
    writer = Writer(engine, batches.commit, 1000, replace(OWED, gather_s=2 * kept_s, aside_s=kept_s))
    began_s = time.monotonic()
    futures = [writer.submit(partial(int, n)) for n in range(MAX_BATCH // 2)]
    assert not wait(futures, WAIT_S).not_done
    assert time.monotonic() - began_s < MAX_BATCH // 4 * kept_s
    writer.close()


@pytest.mark.parametrize("courtesy", [NO_COURTESY, OWED])
def test_one_that_cannot_be_written_costs_the_others_nothing(engine: Engine, courtesy: Courtesy) -> None:
    batches = Batches()
    writer = Writer(engine, batches.commit, 1000, courtesy)
    futures = [writer.submit(partial(int, n)) for n in (1, -1, 2)]
    writer.close()
    assert [futures[place].result(0) for place in (0, 2)] == [1, 2]
    with pytest.raises(StoreError):
        futures[1].result(0)


def test_an_error_tells_nothing_of_the_row_that_was_refused(engine: Engine) -> None:
    class CheckViolation(Exception):
        """As psycopg has it: its text is the server's, detail and all."""

    def commit(connection: Connection, items: Sequence[int]) -> list[int]:
        raise IntegrityError("INSERT …", {}, CheckViolation("violates …\nDETAIL: Failing row contains (1, a face)."))

    writer = Writer(engine, commit, 10)
    with pytest.raises(StoreError) as caught:
        writer.submit(lambda: 1).result(WAIT_S)
    assert str(caught.value) == "CheckViolation"
    writer.close()


def test_without_anybody_to_give_way_to_nothing_waits(engine: Engine) -> None:
    batches = Batches()
    writer = Writer(engine, batches.commit, 1000, Courtesy(gather_s=LONG_S))
    assert writer.submit(lambda: 7).result(WAIT_S) == 7
    writer.close()


def test_a_large_one_that_waits_for_a_gap_holds_up_no_other(engine: Engine) -> None:
    batches, gap = Batches(), threading.Event()
    writer = Writer(engine, batches.commit, 1000)

    def prepare_late() -> int:
        gap.wait(WAIT_S)
        return 1

    late = writer.submit(prepare_late, slow=True)
    assert [writer.submit(partial(int, n)).result(WAIT_S / 2) for n in (2, 3)] == [2, 3]
    gap.set()
    writer.close()
    assert late.result(0) == 1, "what was submitted is written before the end"


def test_what_is_prepared_counts_as_waiting_and_what_was_cancelled_is_not_begun(engine: Engine) -> None:
    batches, gap = Batches(), threading.Event()
    writer = Writer(engine, batches.commit, PARALLEL + 1)
    busy = [writer.submit(lambda: int(gap.wait(WAIT_S)), slow=True) for _ in range(PARALLEL)]
    unwanted = writer.submit(lambda: 99, slow=True)
    with pytest.raises(StoreFull):
        writer.submit(lambda: 1)
    assert unwanted.cancel()
    gap.set()
    writer.close()
    assert [future.result(0) for future in busy] == [1] * PARALLEL
    assert sorted(n for batch in batches.seen for n in batch) == [1] * PARALLEL
