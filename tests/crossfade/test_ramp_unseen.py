"""A ramp whose evidence goes away: it comes back without a store, records it later, and never goes forward unseen."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from compare.ramp import Phase
from compare.ramps import RampRefused
from crossfade.config.toggle import FileToggle, write_toggle
from crossfade.patience import Patience
from crossfade.ramp_run import abort_now
from tests.crossfade.ramp_town import LOOK_S, Town
from tests.shadow.store.postgres_server import PostgresServer


@pytest.fixture
def town(tmp_path: Path, postgres: PostgresServer) -> Iterator[Town]:
    """A town whose store is in a real PostgreSQL."""
    town = Town(tmp_path, url=postgres.new_database())
    yield town
    town.reader.close()


@contextmanager
def stopped(postgres: PostgresServer) -> Iterator[None]:
    """Crash the server for the time of a block."""
    postgres.stop()
    try:
        yield
    finally:
        postgres.start()


def moved(town: Town) -> list[tuple[int, int, str]]:
    """Return the moves on record, the oldest first."""
    return [(m.before, m.after, m.by) for m in reversed(town.ramps.state("r").moves)]


def test_it_comes_back_while_the_store_is_away_and_that_is_recorded_later(town: Town, postgres: PostgresServer) -> None:
    town.climb(25)
    with stopped(postgres):
        assert town.pass_time(2, requests=0) == [25, 25], "a store that is away is no reason to move"
        town.fail()
        assert town.pass_time(1, requests=0) == [0], "clients are harmed: at once"
        (noted,) = town.journal.pending()
        assert (noted.before, noted.after, noted.by, noted.at) == (25, 0, "watch", town.now)
        assert "served requests" in noted.reason
        town.now += timedelta(seconds=90)
    assert town.pass_time(2) == [0, 0]
    assert town.journal.pending() == []
    ramp = town.ramp()
    assert (ramp.phase, ramp.percent, ramp.by, ramp.settled) == (Phase.ABORTED, 0, "watch", True)
    assert moved(town)[-2:] == [(5, 25, "verdict"), (25, 0, "watch")], "once, in its place"
    last = town.ramps.state("r").moves[0]
    assert last.at == noted.at
    assert last.reason.startswith(noted.reason)
    assert "recorded 92 s later: the store did not answer" in last.reason


def test_it_comes_back_while_the_store_hangs(town: Town, postgres: PostgresServer) -> None:
    town.climb(5)
    town.driver._patiently = Patience(0.3)
    postgres.freeze()
    try:
        town.fail()
        assert town.pass_time(1, requests=0) == [0]
        assert town.pass_time(1, requests=0) == [0], "a call that still hangs is not waited for again"
    finally:
        postgres.thaw()
    town.driver = town.new_driver("first")
    assert town.pass_time(1, requests=0) == [0]
    assert moved(town)[-1] == (5, 0, "watch")


def test_a_person_brings_it_back_while_the_store_is_away(town: Town, postgres: PostgresServer) -> None:
    town.climb(5)
    with stopped(postgres):
        with pytest.raises(RampRefused, match=r"crossfade ramp abort r brings it back"):
            town.ramps.pause("r", "ada")
        assert town.ramps.abort("r", "ada").percent == 0
        assert town.toggle.percent("r") == 0
        ramp, noted_in = abort_now(
            town.config, None, "r", "bob"
        )  # as the command does, which has no store to begin with
        assert (ramp.by, Path(noted_in)) == ("bob", town.journal.path)
        assert town.pass_time(2, requests=0) == [0, 0], "the driver follows, and overrules nobody"
    assert town.pass_time(2) == [0, 0]
    assert town.ramp().phase is Phase.ABORTED
    assert (5, 0, "ada") in moved(town)
    assert (0, 0, "bob") in moved(town)


def test_nothing_goes_forward_without_a_store_however_long_it_is_away(town: Town, postgres: PostgresServer) -> None:
    town.climb(5)
    with stopped(postgres):
        assert set(town.pass_time(20, requests=0)) == {5}
        write_toggle(town.config, "r", ["onprem=60"], who="bob", now=town.now)
        assert set(town.pass_time(2, requests=0)) == {60}, "somebody else's toggle is theirs"
        town.fail()
        assert town.pass_time(1, requests=0) == [0], "and is watched as well"
    town.pass_time(2)
    assert [move[:2] for move in moved(town)][-1:] == [(60, 0)]
    assert town.ramp().phase is Phase.ABORTED


def test_a_move_back_that_cannot_even_be_noted_is_made(town: Town, postgres: PostgresServer) -> None:
    town.climb(5)
    town.journal.path.mkdir()
    with stopped(postgres):
        town.fail()
        assert town.pass_time(1, requests=0) == [0]
    town.journal.path.rmdir()
    town.pass_time(2)
    assert moved(town)[-1] == (5, 0, "watch")


def test_a_driver_that_died_between_the_note_and_the_toggle_is_made_good_by_the_next(
    town: Town, postgres: PostgresServer
) -> None:
    class Dying(FileToggle):
        """A writer with which the process ends."""

        def move(self, *_arguments: object, **_named: object) -> None:
            raise OSError("the machine is gone")

    town.climb(25)
    with stopped(postgres):
        town.driver._writer = Dying(town.config)
        town.fail()
        assert town.pass_time(1, requests=0) == [25]
    town.driver = town.new_driver("first")
    assert town.pass_time(1, requests=0) == [0]
    assert moved(town)[-1] == (25, 0, "watch")


@pytest.mark.parametrize("policy", ["hold", "back"])
def test_what_happens_without_evidence_is_a_choice(
    tmp_path: Path, policy: str, caplog: pytest.LogCaptureFixture
) -> None:
    town = Town(tmp_path)
    rule = f"ramp: {{on_no_evidence: {policy}, evidence_max_age_s: 30, "
    town.config.write_text(town.config.read_text().replace("ramp: {", rule))
    town.climb(5)
    town.metrics_answer = False
    assert set(town.pass_time(15, requests=0)) == {5}, "30 s are not over yet"
    with caplog.at_level(logging.ERROR):
        shares = town.pass_time(32, requests=0)
    ramp = town.ramp()
    if policy == "back":
        assert (set(shares[2:]), ramp.phase) == ({0}, Phase.ABORTED)
        assert "no evidence since" in ramp.reason
        assert "the gateway's counts cannot be read" in ramp.reason
    else:
        assert (set(shares), ramp.phase) == ({5}, Phase.RUNNING)
        assert ramp.waiting[0].startswith("no evidence since")
        reminders = [line for line in caplog.messages if "is held at 5 % unseen" in line]
        assert len(reminders) == 2, f"once a minute: {32 * LOOK_S} s"
        town.metrics_answer = True
        assert max(town.pass_time(8)) > 5, "and it goes on once it is seen again"
    town.reader.close()
