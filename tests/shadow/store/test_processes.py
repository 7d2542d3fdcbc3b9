"""The store with several processes on it, one of which is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from shadow.store.database import writing
from shadow.store.reader import Reader
from tests.shadow.store.store_process import CONCURRENT

ROOT = Path(__file__).parents[3]
Spawn = Callable[[Path, str, int], "subprocess.Popen[str]"]


@pytest.fixture
def spawn() -> Spawn:
    def start(folder: Path, name: str, count: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.shadow.store.store_process", str(folder), name, str(count)]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    return start


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Return the ids that the process reported as saved."""
    with process:
        output, _ = process.communicate(timeout=60)
    # Killed while it wrote, the last line may be cut: that id was not reported.
    return output[: output.rfind("\n") + 1].split()


OPEN = """
import sys
from shadow.store.database import open_database
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    open_database(f"sqlite:///{sys.argv[1]}/{number}.db").dispose()
"""


def test_c11_several_processes_may_open_a_new_store_at_the_same_moment(tmp_path: Path) -> None:
    """A gateway's workers do; the switch to the write-ahead log does not wait by itself."""
    command = [sys.executable, "-c", OPEN, str(tmp_path)]
    pipe = subprocess.PIPE
    openers = [subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(4)]
    for opener in openers:
        assert opener.stdout is not None
        assert opener.stdout.readline() == "ready\n"
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("go\n")
        opener.stdin.flush()
    errors = [opener.communicate(timeout=60)[1] for opener in openers]
    assert [opener.returncode for opener in openers] == [0] * 4, errors
    assert len(list(tmp_path.glob("*.db"))) == 20


def test_c11_four_processes_write_while_a_job_and_a_reader_work(tmp_path: Path, spawn: Spawn) -> None:
    processes = [spawn(tmp_path, f"writer{number}", 500) for number in range(4)]
    reader = Reader.open(f"sqlite:///{tmp_path}/crossfade.db", tmp_path / "bodies")
    with writing(reader.engine).begin() as job:
        job.execute(text("CREATE TABLE judged (sequence INTEGER)"))
    polled = [0]
    for _ in range(4):
        with writing(reader.engine).begin() as job:  # a long transaction that reads, then writes
            last = job.execute(text("SELECT coalesce(max(sequence), 0) FROM exchanges")).scalar_one()
            time.sleep(0.3)  # holding the lock is the point: nothing to await
            polled.append(reader.count())
            job.execute(text("INSERT INTO judged VALUES (:last)"), {"last": last})
    saved = [finish(process) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    assert [len(ids) for ids in saved] == [500] * 4
    exchanges = reader.exchanges(limit=3000)
    assert len(exchanges) == 2000
    assert {exchange.id for exchange in exchanges} == {exchange_id for ids in saved for exchange_id in ids}
    assert polled == sorted(polled)
    reader.close()


def test_c11_kill_9_of_a_writer_loses_only_what_was_in_flight(tmp_path: Path, spawn: Spawn) -> None:
    victim = spawn(tmp_path, "victim", 1_000_000)
    other = spawn(tmp_path, "other", 300)
    assert victim.stdout is not None
    reported = [victim.stdout.readline().strip() for _ in range(100)]
    victim.kill()
    reported += finish(victim)
    assert victim.returncode == -9
    survivors = finish(other)
    assert (other.returncode, len(survivors)) == (0, 300)
    reader = Reader.open(f"sqlite:///{tmp_path}/crossfade.db", tmp_path / "bodies")
    found = {exchange.id: exchange for exchange in reader.exchanges(limit=1_000_000)}
    assert set(reported) | set(survivors) <= set(found)
    assert len(found) <= len(reported) + len(survivors) + CONCURRENT
    for exchange in found.values():
        content = reader.load(exchange.request.body)  # verified: never half a file
        assert content == exchange.id.encode() * 2000
    reader.close()
