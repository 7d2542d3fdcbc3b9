"""The records of people and drivers, in either database: nothing is lost between two writers, and one driver at a time
owns the ramps."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine

from compare.labels import Judgment, Label, Labels
from compare.ramp import Phase, abort, begin, pause
from compare.ramp_watch import Served
from compare.rampbook import Move, Outrun, RampBook
from shadow.store.database import open_database
from tests.compare.examples import START
from tests.shadow.store.postgres_server import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """Either database."""
    url = f"sqlite:///{tmp_path / 'store.db'}"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.new_database()
    engine = open_database(url)
    yield engine
    engine.dispose()


@pytest.fixture
def book(engine: Engine) -> RampBook:
    return RampBook(engine)


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


def test_a_move_that_is_recorded_late_is_recorded_once_and_moves_no_ramp_that_has_gone_on(book: RampBook) -> None:
    entry = book.save(begin("r", 25, "ada", START), None, START)
    at, now = START + timedelta(seconds=5), START + timedelta(seconds=95)
    back = Move("r", at, Phase.ABORTED, 25, 0, "watch", "alarm")
    for _ in range(2):  # as after a crash between the record and the journal's end
        book.record_late(back, now)
    found = book.read("r")
    assert found is not None
    assert (found.ramp.percent, found.ramp.phase, found.ramp.settled, found.version) == (0, Phase.ABORTED, False, 2)
    assert [(m.at, m.before, m.after) for m in book.moves("r")] == [(at, 25, 0), (START, 25, 25)]
    with pytest.raises(Outrun):
        book.save(pause(entry.ramp, "bob", now), entry, now)

    book.save(begin("r", 0, "eve", now), found, now)
    book.record_late(Move("r", at + timedelta(seconds=1), Phase.PAUSED, 25, 5, "watch", "alarm"), now)
    last = book.read("r")
    assert last is not None
    assert (last.ramp.by, last.ramp.phase) == ("eve", Phase.RUNNING)
    assert len(book.moves("r")) == 4


def test_the_newest_label_of_a_pair_counts_and_none_is_lost(engine: Engine) -> None:
    labels = Labels(engine)
    for n, (pair, judgment) in enumerate(
        [("x", Judgment.ACCEPTABLE), ("y", Judgment.ACCEPTABLE), ("x", Judgment.REAL)]
    ):
        labels.add(Label(pair, "r", "rotated", judgment, "ada", START + timedelta(seconds=n)))
    newest = labels.of("x")
    assert newest == Label("x", "r", "rotated", Judgment.REAL, "ada", START + timedelta(seconds=2))
    assert labels.accepted("r") == {"rotated": 1}
    assert labels.newest(["z"]) == {}
