"""A whole ramp on a fake clock: real store, real measuring and judging, the real file, and a town of requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from compare.job import measure_some
from compare.ramp import Phase, begin
from compare.rampbook import RampBook
from compare.ramps import RampRefused
from compare.results import Results
from crossfade.config.toggle import FileToggle, write_toggle
from crossfade.ramp_run import situation_of
from shadow.account import RouteAccount
from shadow.exchange import SkipReason
from tests.compare.examples import body
from tests.crossfade.ramp_town import CONFIG, LOOK_S, Town
from tests.shadow.store.postgres_server import PostgresServer


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    town = Town(tmp_path)
    yield town
    town.reader.close()


def test_a_whole_ramp_goes_up_and_comes_back(tmp_path: Path, postgres: PostgresServer) -> None:
    """In PostgreSQL; all other towns have SQLite."""
    town = Town(tmp_path, url=postgres.new_database())
    town.ramps.start("r", "ada")
    assert town.toggle.percent("r") == 0, "starting moves nothing: a driver does"
    shares = town.pass_time(32)
    assert sorted(set(shares)) == [1, 5, 25, 50, 100]
    assert shares == sorted(shares)
    assert town.ramp().phase is Phase.DONE
    stays = [shares.count(step) * LOOK_S for step in (1, 5, 25, 50)]
    assert min(stays) >= 8, "the minimum stay"

    town.wrong = "slow"
    shares = town.pass_time(2)
    assert shares[-1] == 50, "slower: one step back"
    assert town.ramp().phase is Phase.PAUSED

    town.wrong = "errors"
    assert town.pass_time(3)[-1] == 0, "failing: all the way, at once"
    assert town.ramp().phase is Phase.ABORTED

    moves = list(reversed(town.ramps.state("r").moves))
    assert [(m.before, m.after) for m in moves] == [
        (0, 0), (0, 1), (1, 5), (5, 25), (25, 50), (50, 100), (100, 100), (100, 50), (50, 0),
    ]  # fmt: skip
    assert [m.by for m in moves] == ["ada", *["verdict"] * 6, "watch", "watch"]
    assert all(m.reason for m in moves)
    lines = [json.loads(line) for line in (town.folder / "audit.jsonl").read_text().splitlines()]
    assert [line["after"].get("onprem", 0) for line in lines] == [1, 5, 25, 50, 100, 50, 0]
    town.reader.close()


def test_different_outputs_bring_it_one_step_back_and_a_person_goes_on(town: Town) -> None:
    town.climb(25)
    town.wrong = "outputs"
    assert 5 in town.pass_time(8)
    town.wrong = ""
    while town.ramp().phase is Phase.RUNNING:
        town.pass_time(1)
    assert town.ramp().phase in (Phase.PAUSED, Phase.ABORTED)
    before = town.toggle.percent("r")
    assert set(town.pass_time(6)) == {before}, "it waits for a person"
    if town.ramp().phase is Phase.PAUSED:
        town.ramps.start("r", "bob")
        assert max(town.pass_time(8)) > before


def test_errors_of_served_requests_bring_it_back_although_no_pair_says_so(town: Town) -> None:
    town.climb(5)
    town.fail()
    assert town.pass_time(1, requests=0) == [0]
    assert "served requests" in town.ramp().reason


def test_a_gateway_that_tells_nothing_never_lets_it_go_on(town: Town) -> None:
    town.climb(5)
    town.metrics_answer = False
    assert set(town.pass_time(10)) == {5}
    assert "the gateway's counts cannot be read" in town.ramp().waiting


def test_a_driver_that_takes_over_goes_on_where_the_other_was(town: Town) -> None:
    town.climb(25)
    second = town.new_driver("second")
    assert not second.look()
    assert town.told[-1] == "first drives the ramps; standing by"
    town.now += timedelta(seconds=60)
    second.look()
    assert town.ramps.state("r").driver == "second"
    first, town.driver = town.driver, second
    assert max(town.pass_time(8)) >= 50
    assert not first.look()
    assert town.ramps.state("r").driver == "second"


def test_a_toggle_that_cannot_be_written_is_written_later(town: Town) -> None:
    town.climb(5)
    audit = town.folder / "audit.jsonl"
    audit.rename(town.folder / "kept")
    audit.mkdir()
    with pytest.raises(ValueError, match="cannot be written"):
        town.ramps.abort("r", "ada")
    assert (town.ramp().phase, town.ramp().settled, town.toggle.percent("r")) == (Phase.ABORTED, False, 5)
    assert town.pass_time(1) == [5]
    audit.rmdir()
    assert town.pass_time(1) == [0]
    assert town.ramp().settled


def test_a_hand_on_the_toggle_pauses_the_ramp(town: Town) -> None:
    town.climb(5)
    write_toggle(town.config, "r", ["onprem=60"], who="bob", now=town.now)
    assert town.pass_time(3)[-1] == 60
    assert (town.ramp().phase, town.ramp().by) == (Phase.PAUSED, "toggle")


def test_persons_are_told_what_may_not_be(town: Town) -> None:
    with pytest.raises(RampRefused, match="there is no route x; the config has r"):
        town.ramps.start("x", "ada")
    with pytest.raises(RampRefused, match="nothing to pause"):
        town.ramps.pause("r", "ada")
    town.ramps.start("r", "ada")
    with pytest.raises(RampRefused, match="running already"):
        town.ramps.start("r", "ada")
    town.ramps.abort("r", "ada")
    town.config.write_text(CONFIG.replace("both_ways: true", "both_ways: false"))
    with pytest.raises(RampRefused, match=r"set shadow\.percent above 0 and shadow\.both_ways: true"):
        town.ramps.start("r", "ada")
    town.config.write_text(CONFIG.replace("min_span_s: 10", "min_span_s: 11"))
    with pytest.raises(RampRefused, match="no verdict under today's policy"):
        town.ramps.start("r", "ada")


def test_of_two_ramps_only_the_one_that_does_harm_comes_back(town: Town) -> None:
    town.climb(5)
    other = CONFIG[CONFIG.index("  - name: r") : CONFIG.index("store:")]
    other = other.replace("name: r", "name: s").replace("path: /r", "path: /s")
    other = other.replace("active: cloud", "active: {cloud: 90, onprem: 10}")
    town.config.write_text(town.config.read_text().replace("store:", f"{other}store:"))
    RampBook(town.reader.engine).save(begin("s", 10, "ada", town.now), None, town.now)
    assert town.pass_time(1) == [5]
    town.fail("s")
    assert town.pass_time(1) == [5]
    assert town.toggle.percent("s") == 0
    assert town.ramp().phase is Phase.RUNNING


def test_an_old_promote_begins_nothing_unless_a_person_says_why(town: Town) -> None:
    town.now += timedelta(days=2)
    with pytest.raises(RampRefused, match=r"older than ramp\.verdict_max_age_s .* --force 'WHY'"):
        town.ramps.start("r", "ada")
    town.ramps.start("r", "ada", "no traffic over the weekend")
    assert town.pass_time(1, requests=0) == [1]
    assert town.ramps.state("r").moves[-1].reason == "started, forced: no traffic over the weekend"


def test_another_build_since_the_verdict_begins_nothing(town: Town) -> None:
    town.build = "m2"
    town.store_requests(5)
    while measure_some(town.reader, Results(town.reader.engine), town.policy, 100):
        pass
    with pytest.raises(RampRefused, match="another build has answered since: run crossfade compare"):
        town.ramps.start("r", "ada")


def test_a_verdict_that_is_no_promote_starts_nothing(tmp_path: Path) -> None:
    town = Town(tmp_path, wrong="outputs")
    with pytest.raises(RampRefused, match="the verdict on r is reject, not promote"):
        town.ramps.start("r", "ada")
    town.reader.close()


def no_writing(town: Town) -> Path:
    """Take away the right to write the toggle, until the folder that is returned is removed."""
    audit = town.folder / "audit.jsonl"
    audit.unlink()
    audit.mkdir()
    return audit


def stop_in_a_move(town: Town) -> Path:
    """Let the ramp go on to 25 % by its record, where the toggle cannot be written and stays at 5."""
    town.climb(5)
    audit = no_writing(town)
    for _ in range(20):
        town.pass_time(1)
        if not town.ramp().settled:
            break
    assert (town.ramp().percent, town.toggle.percent("r")) == (25, 5)
    return audit


def test_a_move_that_could_not_be_written_for_long_is_given_up(town: Town) -> None:
    audit = stop_in_a_move(town)
    town.wrong = "errors"
    town.pass_time(40)
    audit.rmdir()
    assert max(town.pass_time(3)) <= 5, "what let it go forward is long past"
    assert town.toggle.percent("r") == 0, "and it is watched all the while"
    assert any("could not be written" in move.reason for move in town.ramps.state("r").moves)


def test_a_driver_that_died_in_a_move_does_not_overrule_a_persons_toggle(town: Town) -> None:
    stop_in_a_move(town).rmdir()
    write_toggle(town.config, "r", ["cloud"], who="bob", now=town.now)
    town.driver = town.new_driver("first")
    assert set(town.pass_time(3)) == {0}
    assert (town.ramp().phase, town.ramp().by) == (Phase.ABORTED, "toggle")


def test_an_abort_in_the_middle_of_a_move_has_the_last_word(town: Town) -> None:
    class Late(FileToggle):
        """A writer that is slow: a person aborts before it has written."""

        def move(self, route: str, percent: int, *, who: str, now: datetime) -> None:
            if percent == 25:
                town.ramps.abort("r", "ada")
            super().move(route, percent, who=who, now=now)

    town.climb(5)
    slow = town.new_driver("first")
    slow._writer = Late(town.config)
    town.driver = slow
    assert 25 not in town.pass_time(10)
    assert (town.ramp().phase, town.toggle.percent("r")) == (Phase.ABORTED, 0)


def test_losses_that_come_after_a_promote_keep_it_where_it_is(town: Town) -> None:
    town.climb(5)
    town.config.write_text(town.config.read_text().replace("min_stay_s: 8", "min_stay_s: 20"))
    town.pass_time(1, requests=40)
    town.pass_time(4, requests=2)
    town.pass_time(3, requests=0)  # so that all pairs are judged
    (waiting,) = town.ramp().waiting
    assert waiting.startswith("stays at 5 %"), "nothing but time is lacking"

    async def lose() -> None:
        store = town.open_store()
        lost = {SkipReason.QUEUE_FULL: 500}
        await store.save_accounts("run", {"r": RouteAccount(town.served + 500, town.served, 0, lost)})
        await store.aclose()

    asyncio.run(lose())
    assert set(town.pass_time(8, requests=0)) == {5}
    assert any("lost" in waiting for waiting in town.ramp().waiting)


def test_bodies_that_cannot_be_read_do_not_keep_it_from_coming_back(town: Town) -> None:
    town.climb(5)

    async def save() -> None:
        store = town.open_store()
        large = body(json.dumps("x" * 20_000).encode(), "application/json")
        made = next(town._exchanges(1, 1.0))
        await store.save(replace(made, primary=replace(made.primary, body=large)))
        await store.aclose()

    asyncio.run(save())
    (found,) = [path for path in town.bodies.rglob("*") if path.is_file()]
    found.unlink()
    found.mkdir()  # as a disk or a bucket that fails: an OSError each time
    town.fail()
    assert town.pass_time(1, requests=0) == [0]


def test_errors_that_were_counted_while_the_toggle_could_not_be_read_bring_it_back_later(town: Town) -> None:
    town.climb(5)
    town.fail()
    away = town.config.rename(town.folder / "away")
    town.config.mkdir()  # the look fails after the counts were read, as with an API server that is away
    town.driver._situation = situation_of(away)
    town.now += timedelta(seconds=LOOK_S)
    assert not town.driver.look()
    town.config.rmdir()
    away.rename(town.config)
    town.driver._situation = situation_of(town.config)
    assert town.pass_time(1, requests=0) == [0]
