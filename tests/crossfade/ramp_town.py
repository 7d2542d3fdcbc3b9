"""A town on a fake clock: clients, gateway, mirror and both backends in one, around a real store and the real file."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from compare.job import run
from compare.ramp import Ramp
from compare.rampbook import RampBook
from compare.ramps import Ramps
from compare.results import Results
from compare.states import States
from crossfade.composition import policies
from crossfade.config.loading import load_config
from crossfade.config.toggle import FileToggle
from crossfade.ramp_journal import RampJournal
from crossfade.ramp_run import situation_of
from crossfade.ramping import Driver
from crossfade.served import ServedMeter
from gateway.metrics import Metrics
from shadow.account import RouteAccount
from shadow.exchange import Body, Exchange, Observation, Request
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
store: {url: "sqlite:///store.db", bodies: bodies, key: "file:store.key"}
audit: audit.jsonl
"""
NOTHING = body(b"", "")


@dataclass
class Town:
    """Clients, gateway, mirror and both backends in one: serves by the toggle in the file, and time is a number."""

    folder: Path
    now: datetime = BEGAN
    wrong: str = ""
    build: str = "m1"
    url: str = "sqlite:///store.db"
    metrics: Metrics = field(default_factory=Metrics)
    metrics_answer: bool = True
    served: int = 0
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.config = self.folder / "crossfade.yaml"
        self.config.write_text(CONFIG.replace("sqlite:///store.db", self.url))
        self.rng = random.Random(4)
        loaded = load_config(self.config, secrets=False)
        self.policy = policies(loaded)[0]
        self.url, self.bodies, self.key = loaded.store.url, Path(loaded.store.bodies), loaded.store.key
        self.toggle = FileToggle(self.config)
        self.store_requests(60, over_s=40)
        self.now += timedelta(seconds=41)
        self.reader = replace(Reader.open(self.url, self.bodies, key=self.key), now=lambda: self.now)
        run(self.reader, [self.policy], workers=0, now=lambda: self.now)
        results, book = Results(self.reader.engine), RampBook(self.reader.engine)
        self.journal = RampJournal.beside(self.folder / "audit.jsonl")
        states = States(self.reader.engine, results)
        self.ramps = Ramps(
            book, results, self.toggle, situation_of(self.config), lambda: self.now, states, self.journal
        )
        self.driver = self.new_driver("first")

    def new_driver(self, owner: str) -> Driver:
        meter = ServedMeter(["gateway"], self.fetch)
        return Driver(
            self.reader,
            self.toggle,
            meter,
            situation_of(self.config),
            journal=self.journal,
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
        return Observation(backend, "s", status, ((b"X-Model", self.build.encode()),), found, total_s / 2, total_s)

    def open_store(self) -> Store:
        return Store.open(self.url, self.bodies, key=self.key, now=lambda: self.now)

    def store_requests(self, n: int, over_s: float = LOOK_S) -> None:
        asyncio.run(self._store_requests(n, over_s))

    async def _store_requests(self, n: int, over_s: float) -> None:
        store = self.open_store()
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

    def climb(self, to: int) -> None:
        """Start a ramp and let it go up to a step."""
        self.ramps.start("r", "ada")
        for _ in range(100):
            if self.pass_time(1)[-1] == to:
                return
        raise AssertionError(f"never at {to} %: {self.ramp()}")

    def fail(self, route: str = "r", n: int = 20) -> None:
        """Let the candidate answer clients with errors that no pair tells of."""
        for _ in range(n):
            self.metrics.count_served(route, Observation("onprem", "s", 503, total_s=0.1))
