"""The job on the command line: it keeps up with what comes, ends cleanly on Ctrl-C, and can look at a stretch alone."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from compare.job import Job
from compare.policy import Kind
from compare.results import Results
from crossfade.moments import parse_moment
from shadow.exchange import Exchange
from shadow.store.reader import Reader
from shadow.store.store import Store
from tests.compare.examples import START, answer, exchange, labels, policy

CONFIG = """
backends:
  cloud: {servers: ["http://127.0.0.1:9001"]}
  onprem: {servers: ["http://127.0.0.1:9002"]}
routes:
  - name: classify
    match: {path: /v1/classify}
    baseline: cloud
    candidate: onprem
    active: cloud
    compare: {kind: classification}
store: {url: "sqlite:///record.db", bodies: bodies}
"""
NOW = datetime(2026, 5, 5, tzinfo=UTC)


def classified(numbers: range) -> Iterator[Exchange]:
    for n in numbers:
        kept = labels(("cat", 0.5 + n / 10_000), ("dog", 0.1))
        yield exchange(n, *(answer(name, kept, "application/json") for name in ("cloud", "onprem")), route="classify")


def save(folder: Path, exchanges: Iterator[Exchange]) -> None:
    async def all_of_them() -> None:
        store = Store.open(f"sqlite:///{folder / 'record.db'}", folder / "bodies")
        await asyncio.gather(*(store.save(each) for each in exchanges))
        await store.aclose()

    asyncio.run(all_of_them())


def test_following_takes_up_live_traffic_and_ctrl_c_ends_it_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "crossfade.yaml").write_text(CONFIG)
    save(tmp_path, classified(range(20)))
    command = [sys.executable, "-m", "crossfade.cli", "compare", "--follow", "--workers", "1",
               "--json", "out.json", "--config", "crossfade.yaml"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    running = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_for_verdict(tmp_path, 20)
        save(tmp_path, classified(range(20, 50)))
        wait_for_verdict(tmp_path, 50)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, errors) == (10, b"")
    assert json.loads((tmp_path / "out.json").read_text())["verdicts"][0]["pairs"] == 50


def wait_for_verdict(folder: Path, pairs: int) -> None:
    """Wait until the job has stored a verdict on so many pairs."""
    ends_at = time.monotonic() + 90
    reader = Reader.open(f"sqlite:///{folder / 'record.db'}", folder / "bodies")
    try:
        while time.monotonic() < ends_at:
            verdict = Results(reader.engine).latest_verdict("classify")
            if verdict is not None and verdict.pairs == pairs:
                return
            time.sleep(0.1)
    finally:
        reader.close()
    pytest.fail(f"no verdict on {pairs} pairs within 90 s")


def test_a_look_since_a_moment_judges_that_stretch_alone_and_keeps_nothing(tmp_path: Path) -> None:
    save(tmp_path, classified(range(40)))
    reader = Reader.open(f"sqlite:///{tmp_path / 'record.db'}", tmp_path / "bodies")
    job = Job(reader, [policy(Kind.CLASSIFICATION, route="classify")], workers=0, now=lambda: NOW)
    (whole,) = job.step()
    (part,) = job.since(START + timedelta(seconds=30))
    (nothing,) = job.since(NOW)
    (again,) = job.step()
    job.close()
    reader.close()
    assert (whole.verdict.pairs, part.verdict.pairs, nothing.verdict.pairs) == (40, 10, 0)
    assert part.verdict.first_at == START + timedelta(seconds=30)
    assert again.verdict == whole.verdict


def test_a_moment_is_so_long_ago_or_a_time() -> None:
    assert parse_moment("24h", NOW) == NOW - timedelta(days=1)
    assert parse_moment("90m", NOW) == NOW - timedelta(minutes=90)
    assert parse_moment("2026-05-04T12:00:00Z", NOW) == START
    assert parse_moment("2026-05-04 21:00+09:00", NOW) == START
    assert parse_moment("2026-05-04", NOW) == datetime(2026, 5, 4, tzinfo=UTC)
    for nonsense in ("yesterday", "5", "", "h", "-3h", "999999d"):
        with pytest.raises(ValueError, match="is no time"):
            parse_moment(nonsense, NOW)
