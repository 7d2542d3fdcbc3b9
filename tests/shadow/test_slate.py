"""The counts that outlive their process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shadow.delivery import Held
from shadow.estate import settled
from shadow.exchange import SkipReason
from shadow.slate import FORGOTTEN_AFTER_S, HEAD_BYTES, RECORDS, Counts, SlateFolder
from tests.shadow.bench import exchange_of

STORE = "sqlite:///var/crossfade.db"
CHANGES = st.lists(st.tuples(st.sampled_from(["a", "b" * 63]), st.none() | st.sampled_from(SkipReason)), max_size=40)
KILLED_RUN = """
import os, signal, sys
from shadow.slate import SlateFolder
slate = SlateFolder.open(sys.argv[1], sys.argv[2]).begin("run")
for _ in range(1234):
    slate.receive("all")
os.kill(os.getpid(), signal.SIGKILL)
"""


@given(CHANGES)
@settings(deadline=None, max_examples=30)
def test_every_count_of_a_run_is_there_after_it(changes: list[tuple[str, SkipReason | None]]) -> None:
    with TemporaryDirectory() as name:
        folder = SlateFolder.open(name, STORE)
        slate = folder.begin("run")
        for route, reason in changes:
            slate.receive(route)
            slate.settled(exchange_of(route=route), reason)
        assert folder.take_dead() == [], "its run lives"
        slate.close(keep=True)
        (dead,) = folder.take_dead()
        skipped = Counter((route, reason) for route, reason in changes if reason is not None)
        assert dead.run_id == "run"
        assert dead.routes == {
            route: Counts(received, {reason: n for (where, reason), n in skipped.items() if where == route})
            for route, received in Counter(route for route, _ in changes).items()
        }
        dead.remove()
        assert folder.take_dead() == []


def test_a_killed_run_has_exactly_one_heir_and_its_counts_go_to_no_other_store(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED_RUN, str(tmp_path), STORE], check=False)
    assert killed.returncode == -9
    assert SlateFolder.open(tmp_path, "sqlite:///var/other.db").take_dead() == []
    with ThreadPoolExecutor(8) as many:
        found = list(many.map(lambda _: SlateFolder.open(tmp_path, STORE).take_dead(), range(16)))
    (dead,) = [slate for slates in found for slate in slates]
    assert dead.routes == {"all": Counts(1234, {})}
    dead.let_go()
    (again,) = SlateFolder.open(tmp_path, STORE).take_dead()
    again.remove()
    assert not list(tmp_path.glob("*.slate"))


def test_one_that_was_not_started_in_its_place_waits_before_it_takes_over(tmp_path: Path) -> None:
    now_s = [100.0]
    folder = SlateFolder(tmp_path, STORE, lambda: now_s[0])
    folder.begin("run").close(keep=True)
    assert folder.take_dead(10.0) == []
    now_s[0] += 9.0
    assert folder.take_dead(10.0) == []
    now_s[0] += 1.0
    (dead,) = folder.take_dead(10.0)
    dead.remove()


def test_what_has_no_head_is_removed_and_too_many_routes_disturb_nobody(tmp_path: Path) -> None:
    folder = SlateFolder.open(tmp_path, STORE)
    slate = folder.begin("run")
    for number in range(RECORDS + 5):
        slate.receive(f"route-{number}")
    slate.close(keep=True)
    (dead,) = folder.take_dead()
    assert dead.routes == {f"route-{number}": Counts(1, {}) for number in range(RECORDS - 1)}
    dead.path.write_bytes(b"")
    dead.let_go()
    assert folder.take_dead() == []
    assert not dead.path.exists()


def test_a_folder_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        SlateFolder.open(tmp_path / "file", STORE)


def test_a_slate_is_forgotten_by_the_time_since_its_run_was_seen_alive_not_since_it_began(tmp_path: Path) -> None:
    long_ago = time.time() - FORGOTTEN_AFTER_S - 60
    own, other = SlateFolder.open(tmp_path, STORE), SlateFolder.open(tmp_path, "sqlite:///var/other.db")
    slate = own.begin("run")
    (path,) = tmp_path.glob("*.slate")
    os.utime(path, (long_ago, long_ago))  # counting does not move it
    assert own.take_dead(10.0) == [], "a run that lives looks round each second"
    slate.close(keep=True)
    other.take_dead()
    assert path.exists(), "its own next run may still come for what it had under way"
    os.utime(path, (long_ago, long_ago))
    other.take_dead()
    assert not path.exists()


def test_a_slate_of_which_nobody_can_make_sense_keeps_no_other_from_its_heir_and_is_left_to_its_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = SlateFolder.open(tmp_path, STORE)
    for name in ("a", "b", "c"):
        slate = folder.begin(name)
        slate.receive("all")
        slate.close(keep=True)
    paths = sorted(tmp_path.glob("*.slate"))
    for path, head in ((paths[0], b"[" * HEAD_BYTES), (paths[2], b"[]".ljust(HEAD_BYTES))):
        path.write_bytes(head + path.read_bytes()[HEAD_BYTES:])
    for _ in range(2):
        (dead,) = folder.take_dead()
        assert (dead.run_id, dead.routes) == ("b", {"all": Counts(1, {})})
        dead.let_go()
    assert len(caplog.records) == 2, "told once"
    assert sorted(tmp_path.glob("*.slate")) == paths
    assert len(SlateFolder.open(tmp_path, STORE).take_dead()) == 1, "nothing was left locked"


@given(st.lists(CHANGES, min_size=1, max_size=4))
@settings(deadline=None, max_examples=20)
def test_the_last_heir_knows_what_all_before_it_had_however_many_were_killed(
    runs: list[list[tuple[str, SkipReason | None]]],
) -> None:
    total: Counter[tuple[str, SkipReason]] = Counter()
    with TemporaryDirectory() as name:
        folder = SlateFolder.open(name, STORE)
        for number, changes in enumerate(runs):
            slate = folder.begin(f"run-{number}")
            for dead in folder.take_dead():
                for routes in (dead.before, dead.routes):
                    slate.inherit(0, {route: settled(counts, 0, Held()) for route, counts in routes.items()})
                slate.inherit(dead.runs_before + 1, {})
                dead.remove()
            for route, reason in changes:
                slate.receive(route)
                slate.settled(exchange_of(route=route), reason)
                total[route, reason or SkipReason.LOST] += 1
            slate.close(keep=True)
        (dead,) = folder.take_dead()
        found: Counter[tuple[str, SkipReason]] = Counter()
        for routes in (dead.before, dead.routes):
            for route, counts in routes.items():
                account = settled(counts, 0, Held())
                assert account.balanced
                found.update({(route, reason): n for reason, n in account.skipped.items()})
        assert (found, dead.runs_before) == (total, len(runs) - 1)
        dead.remove()


@given(st.dictionaries(st.sampled_from(SkipReason), st.integers(0, 9)), st.integers(0, 60), st.integers(0, 60))
def test_what_is_stored_and_was_counted_as_skipped_too_is_taken_from_what_failed(
    skipped: dict[SkipReason, int], more: int, waiting: int
) -> None:
    received = sum(skipped.values()) + more
    for recorded in (more, received):
        account = settled(Counts(received, skipped), recorded, Held(waiting))
        assert account.balanced
        assert (account.received, account.recorded) == (received, recorded)
        assert account.in_flight == 0
        assert min(account.skipped.values(), default=0) >= 0
    failed = {**skipped, SkipReason.STORE_FAILED: 3}
    account = settled(Counts(sum(failed.values()) + more, failed), more + 2, Held())
    assert account.skipped == {reason: n for reason, n in {**failed, SkipReason.STORE_FAILED: 1}.items() if n}


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 50), st.integers(0, 50))
def test_a_settled_account_balances_and_loses_only_what_nobody_has(
    recorded: int, skipped: int, waiting: int, gone: int
) -> None:
    counts = Counts(recorded + 2 * skipped + waiting + gone, {SkipReason.QUEUE_FULL: skipped})
    held = Held(waiting, {SkipReason.BREAKER_OPEN: skipped})
    account = settled(counts, recorded, held)
    assert account.balanced
    assert account.in_flight == waiting
    assert account.skipped.get(SkipReason.LOST, 0) == gone
    assert account.skipped.get(SkipReason.BREAKER_OPEN, 0) == skipped
    one_stored_what_another_skipped = settled(counts, recorded + skipped, Held(waiting, {SkipReason.SHUTDOWN: skipped}))
    assert one_stored_what_another_skipped.balanced
    assert one_stored_what_another_skipped.in_flight == waiting
    stored_and_still_there = settled(counts, recorded + waiting, held)
    assert stored_and_still_there.balanced
    assert 0 <= stored_and_still_there.in_flight <= waiting
    assert 0 <= stored_and_still_there.skipped.get(SkipReason.LOST, 0) <= gone, "told late, never too high"
