"""A whole ramp on a fake clock: real store, real measuring and judging, the real file, and a town of requests."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from compare.job import run
from compare.ramp import Phase, Ramp
from compare.rampbook import RampBook
from compare.ramps import RampRefused, Ramps
from compare.results import Results
from crossfade.composition import policies
from crossfade.config.loading import load_config
from crossfade.config.toggle import FileToggle, write_toggle
from crossfade.ramp_run import situation_of
from crossfade.ramping import Driver
from crossfade.served import ServedMeter
from gateway.metrics import Metrics
from shadow.account import RouteAccount
from shadow.exchange import Body, Exchange, Observation, Request, SkipReason
from shadow.store.reader import Reader
from shadow.store.store import Store
from tests.compare.examples import body

BEGAN = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
LOOK_S = 2.0
CONFIG = """
backends:
  cloud: {servers: ["http://127.0.0.1:1"]}
  onprem: {servers: ["http://127.0.0.1:2"]}
routes:
  - name: r
    match: {path: /r}
    baseline: cloud
    candidate: onprem
    active: cloud  # the toggle
    shadow: {percent: 100, both_ways: true, back_percent: 60}
    compare: {kind: json, error_margin: 0.2, mismatch_margin: 0.2, critical_margin: 0.2, min_span_s: 10, min_pairs: 30}
    ramp: {min_stay_s: 8, min_requests: 1}
store: {url: "sqlite:///store.db", bodies: bodies}
audit: audit.jsonl
"""
NOTHING = body(b"", "")


@dataclass
class Town:
    """Clients, gateway, mirror and both backends in one: serves by the toggle in the file, and time is a number."""

    folder: Path
    now: datetime = BEGAN
    wrong: str = ""
    metrics: Metrics = field(default_factory=Metrics)
    metrics_answer: bool = True
    served: int = 0
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = self.folder / "crossfade.yaml"
        self.config.write_text(CONFIG)
        self.rng = random.Random(4)
        loaded = load_config(self.config, secrets=False)
        self.policy = policies(loaded)[0]
        self.url, self.bodies = loaded.store.url, Path(loaded.store.bodies)
        self.toggle = FileToggle(self.config)
        self.store_requests(60, over_s=40)
        self.now += timedelta(seconds=41)
        self.reader = replace(Reader.open(self.url, self.bodies), now=lambda: self.now)
        run(self.reader, [self.policy], workers=0, now=lambda: self.now)
        results, book = Results(self.reader.engine), RampBook(self.reader.engine)
        self.ramps = Ramps(book, results, self.toggle, situation_of(self.config), lambda: self.now)
        self.driver = self.new_driver("first")

    def new_driver(self, owner: str) -> Driver:
        meter = ServedMeter(["gateway"], self.fetch)
        return Driver(
            self.reader,
            self.toggle,
            meter,
            situation_of(self.config),
            owner=owner,
            now=lambda: self.now,
            tell=self.told.append,
        )

    def fetch(self, _address: str) -> str:
        if not self.metrics_answer:
            raise ValueError("no answer")
        return self.metrics.render().decode()

    def answer(self, backend: str) -> Observation:
        fine = {"label": "cat", "n": 1}
        status, total_s = 200, 0.3 if backend == "cloud" else 0.1
        if backend == "onprem":
            status = 503 if self.wrong == "errors" else 200
            total_s = 0.6 if self.wrong == "slow" else total_s
            fine = {"label": "dog", "n": 1} if self.wrong == "outputs" else fine
        found: Body = body(json.dumps(fine).encode(), "application/json")
        return Observation(backend, "s", status, ((b"X-Model", b"m1"),), found, total_s / 2, total_s)

    def store_requests(self, n: int, over_s: float = LOOK_S) -> None:
        asyncio.run(self._store_requests(n, over_s))

    async def _store_requests(self, n: int, over_s: float) -> None:
        store = Store.open(self.url, self.bodies, now=lambda: self.now)
        try:
            await asyncio.gather(*(store.save(each) for each in self._exchanges(n, over_s)))
            await store.save_accounts("run", {"r": RouteAccount(self.served, self.served)})
        finally:
            await store.aclose()

    def _exchanges(self, n: int, over_s: float) -> Iterator[Exchange]:
        share = self.toggle.percent("r")  # at least 15 in 100, so that few requests do
        for place in range(n):
            crossed = self.rng.randrange(100) < max(share, 15 * bool(share))
            primary, other = ("onprem", "cloud") if crossed else ("cloud", "onprem")
            self.served += 1
            at = self.now + timedelta(seconds=over_s * place / n)
            answered = self.answer(primary)
            self.metrics.count_served("r", answered)
            asked = Request("POST", b"/r", (), NOTHING)
            yield Exchange(f"x{self.served}", "r", at, asked, answered, self.answer(other))

    def pass_time(self, looks: int, *, requests: int = 12) -> list[int]:
        """Let time and traffic go on; return what the candidate served after each look."""
        shares = []
        for _ in range(looks):
            if requests:
                self.store_requests(requests)
            self.now += timedelta(seconds=LOOK_S)
            while self.driver.look():
                pass
            shares.append(self.toggle.percent("r"))
        return shares

    def ramp(self) -> Ramp:
        found = self.ramps.state("r").ramp
        assert found is not None
        return found


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    town = Town(tmp_path)
    yield town
    town.reader.close()


def climb(town: Town, to: int) -> None:
    """Start a ramp and let it go up to a step."""
    town.ramps.start("r", "ada")
    for _ in range(100):
        if town.pass_time(1)[-1] == to:
            return
    raise AssertionError(f"never at {to} %: {town.ramp()}")


def test_a_whole_ramp_goes_up_and_comes_back(town: Town) -> None:
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


def test_different_outputs_bring_it_one_step_back_and_a_person_goes_on(town: Town) -> None:
    climb(town, 25)
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
    climb(town, 5)
    for _ in range(20):
        town.metrics.count_served("r", Observation("onprem", "s", 503, total_s=0.1))
    assert town.pass_time(1, requests=0) == [0]
    assert "served requests" in town.ramp().reason


def test_a_gateway_that_tells_nothing_never_lets_it_go_on(town: Town) -> None:
    climb(town, 5)
    town.metrics_answer = False
    assert set(town.pass_time(10)) == {5}
    assert "the gateway's counts cannot be read" in town.ramp().waiting


def test_a_driver_that_takes_over_goes_on_where_the_other_was(town: Town) -> None:
    climb(town, 25)
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
    climb(town, 5)
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
    climb(town, 5)
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
    climb(town, 5)
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

    climb(town, 5)
    slow = town.new_driver("first")
    slow._writer = Late(town.config)
    town.driver = slow
    assert 25 not in town.pass_time(10)
    assert (town.ramp().phase, town.toggle.percent("r")) == (Phase.ABORTED, 0)


def test_losses_that_come_after_a_promote_keep_it_where_it_is(town: Town) -> None:
    climb(town, 5)
    town.config.write_text(town.config.read_text().replace("min_stay_s: 8", "min_stay_s: 20"))
    town.pass_time(1, requests=40)
    town.pass_time(4, requests=2)
    town.pass_time(3, requests=0)  # so that all pairs are judged
    (waiting,) = town.ramp().waiting
    assert waiting.startswith("stays at 5 %"), "nothing but time is lacking"

    async def lose() -> None:
        store = Store.open(town.url, town.bodies, now=lambda: town.now)
        lost = {SkipReason.QUEUE_FULL: 500}
        await store.save_accounts("run", {"r": RouteAccount(town.served + 500, town.served, 0, lost)})
        await store.aclose()

    asyncio.run(lose())
    assert set(town.pass_time(8, requests=0)) == {5}
    assert any("lost" in waiting for waiting in town.ramp().waiting)


def test_bodies_that_cannot_be_read_do_not_keep_it_from_coming_back(town: Town) -> None:
    climb(town, 5)

    async def save() -> None:
        store = Store.open(town.url, town.bodies, now=lambda: town.now)
        large = body(json.dumps("x" * 20_000).encode(), "application/json")
        made = next(town._exchanges(1, 1.0))
        await store.save(replace(made, primary=replace(made.primary, body=large)))
        await store.aclose()

    asyncio.run(save())
    (found,) = [path for path in town.bodies.rglob("*") if path.is_file()]
    found.unlink()
    found.mkdir()  # as a disk or a bucket that fails: an OSError each time
    for _ in range(20):
        town.metrics.count_served("r", Observation("onprem", "s", 503, total_s=0.1))
    assert town.pass_time(1, requests=0) == [0]


def test_errors_that_were_counted_while_the_toggle_could_not_be_read_bring_it_back_later(town: Town) -> None:
    climb(town, 5)
    for _ in range(20):
        town.metrics.count_served("r", Observation("onprem", "s", 503, total_s=0.1))
    away = town.config.rename(town.folder / "away")
    town.config.mkdir()  # the look fails after the counts were read, as with an API server that is away
    town.driver._situation = situation_of(away)
    town.now += timedelta(seconds=LOOK_S)
    assert not town.driver.look()
    town.config.rmdir()
    away.rename(town.config)
    town.driver._situation = situation_of(town.config)
    assert town.pass_time(1, requests=0) == [0]
