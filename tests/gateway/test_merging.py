"""One page out of several workers' pages: rules, without processes."""

from __future__ import annotations

from typing import Any

from gateway.merging import merge_metrics, merge_status
from gateway.metrics import Metrics
from gateway.place import share
from gateway.supervisor import MAX_WAIT_S, restart_wait_s
from shadow.rule import MirrorLimits
from tests.gateway.harness import one_route


def part(pid: int, received: int, **changes: Any) -> dict[str, Any]:
    account = {"received": received, "recorded": received, "in_flight": 0, "skipped": {"lost": 1}, "balanced": True}
    return {
        "pid": pid,
        "config": {"applied": "a", "applied_at": "now", "rejected": None},
        "routes": {"all": {"baseline": "cloud", "active": {"cloud": 60, "onprem": 40}, "account": account}},
        "backends": {"cloud": {"http://one": {"state": "up", "served": received}}},
        "mirror": {"breakers": {"onprem": "closed"}, "store_works": True, "queued": 2},
        **changes,
    }


def test_counts_are_summed_flags_hold_everywhere_and_the_worst_state_shows() -> None:
    sick = part(
        2,
        20,
        backends={
            "cloud": {"http://one": {"state": "broken", "served": 5}, "http://two": {"state": "up", "served": 1}}
        },
        mirror={"breakers": {"onprem": "half_open"}, "store_works": False, "queued": 3},
    )
    merged = merge_status({0: part(1, 10), 1: sick}, asked=0, count=2)
    route = merged["routes"]["all"]
    assert route["account"] == {
        "received": 30, "recorded": 30, "in_flight": 0, "skipped": {"lost": 2}, "balanced": True,
    }  # fmt: skip
    assert route["active"] == {"cloud": 60, "onprem": 40}, "percents are no counts"
    assert merged["backends"]["cloud"] == {
        "http://one": {"state": "broken", "served": 15},
        "http://two": {"state": "up", "served": 1},
    }
    assert merged["mirror"] == {"breakers": {"onprem": "half_open"}, "store_works": False, "queued": 5}
    assert merged["config"]["everywhere"] is True


def test_a_worker_that_is_missing_or_behind_shows() -> None:
    behind = part(2, 1, config={"applied": "b", "applied_at": "now", "rejected": None})
    assert merge_status({0: part(1, 1), 1: behind}, 0, 2)["config"]["everywhere"] is False
    merged = merge_status({1: part(7, 1)}, asked=1, count=2)
    assert merged["config"]["everywhere"] is False
    assert merged["workers"] == [
        {"worker": 0, "pid": None, "applied": None}, {"worker": 1, "pid": 7, "applied": "a"},
    ]  # fmt: skip


def test_every_sample_of_every_worker_is_there_once() -> None:
    first, second = Metrics(), Metrics()
    first.count_refused("all", "rate_limited")
    for _ in range(2):
        second.count_refused("all", 'odd "code"\n')
    first.count_error()
    text = merge_metrics({0: first.render().decode(), 1: second.render().decode()}).decode()
    assert 'crossfade_refused_total{code="rate_limited",route="all",worker="0"} 1.0' in text
    assert 'crossfade_refused_total{code="odd \\"code\\"\\n",route="all",worker="1"} 2.0' in text
    assert 'crossfade_internal_errors_total{worker="0"} 1.0' in text
    assert 'crossfade_internal_errors_total{worker="1"} 0.0' in text
    assert text.count("# TYPE crossfade_refused_total counter") == 1


def test_shares_never_exceed_the_whole_in_bytes_and_never_fall_to_nothing_in_tasks() -> None:
    whole = one_route("http://cloud.test")
    for count in (1, 2, 3, 7, 64):
        mirror = share(whole, count).mirror
        assert mirror.byte_budget_bytes * count <= MirrorLimits().byte_budget_bytes
        assert mirror.max_concurrent >= 1
        assert mirror.max_concurrent * count >= MirrorLimits().max_concurrent
    assert share(whole, 1) == whole


def test_a_worker_that_keeps_dying_is_started_less_and_less_often() -> None:
    waits = [restart_wait_s(lives) for lives in range(20)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[-1] == MAX_WAIT_S
