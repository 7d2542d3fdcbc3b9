"""The record of ramps: nothing is lost between two writers, and one driver at a time owns them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from compare.ramp import Phase, Served, abort, begin, pause
from compare.rampbook import Outrun, RampBook
from shadow.store.database import open_database
from tests.compare.examples import START


@pytest.fixture
def book(tmp_path: Path) -> Iterator[RampBook]:
    engine = open_database(f"sqlite:///{tmp_path / 'store.db'}")
    yield RampBook(engine)
    engine.dispose()


def test_a_ramp_comes_back_as_it_was(book: RampBook) -> None:
    ramp = replace(
        begin("r", 5, "ada", START, 17),
        alarms={"errors": 1.5},
        candidate=Served(3, 2, 1),
        lost_before={"lost": 4},
        waiting=("for a reason",),
    )
    book.save(ramp, None, START)
    entry = book.read("r")
    assert entry is not None
    assert entry.ramp == ramp
    assert book.all() == {"r": entry}
    assert book.read("other") is None


def test_only_who_read_the_present_place_may_replace_it(book: RampBook) -> None:
    first = book.save(begin("r", 0, "ada", START), None, START)
    with pytest.raises(Outrun):
        book.save(begin("r", 0, "bob", START), None, START)
    book.save(pause(first.ramp, "bob", START), first, START)
    with pytest.raises(Outrun):
        book.save(abort(first.ramp, "eve", START), first, START)
    assert [move.by for move in book.moves("r")] == ["bob", "ada"], "what was refused left no record"


def test_moves_are_recorded_and_looks_are_not(book: RampBook) -> None:
    entry = book.save(begin("r", 25, "ada", START), None, START)
    entry = book.save(replace(entry.ramp, waiting=("x",), sequence=9), entry, START)
    book.save(abort(entry.ramp, "bob", START), entry, START + timedelta(seconds=5))
    newest, oldest = book.moves("r")
    assert (newest.before, newest.after, newest.phase, newest.by) == (25, 0, Phase.ABORTED, "bob")
    assert newest.at == START + timedelta(seconds=5)
    assert (oldest.before, oldest.after) == (25, 25)


def test_one_driver_owns_the_ramps_until_it_ends_or_is_gone(book: RampBook) -> None:
    assert book.owner(START) is None
    assert book.claim("one", START, 20) == "one"
    assert book.claim("two", START + timedelta(seconds=19), 20) == "one"
    assert book.claim("one", START + timedelta(seconds=19), 20) == "one"
    assert book.claim("two", START + timedelta(seconds=40), 20) == "two"
    assert book.owner(START + timedelta(seconds=41)) == "two"
    book.release("one")
    assert book.owner(START + timedelta(seconds=41)) == "two"
    book.release("two")
    assert book.claim("one", START + timedelta(seconds=41), 20) == "one"


def test_of_many_that_claim_at_once_all_agree_on_one(book: RampBook) -> None:
    with ThreadPoolExecutor(8) as many:
        owners = set(many.map(lambda n: book.claim(f"driver-{n}", START, 20), range(32)))
    assert len(owners) == 1
