"""Everything is killed at random under load; five minutes of it: `python -m benchmarks.chaos`."""

from __future__ import annotations

from benchmarks.chaos import AT_LEAST, run_chaos


def test_the_books_balance_though_everything_was_killed_at_least_twice() -> None:
    outcome = run_chaos(12.0, seed=5)
    assert not outcome.faults, "\n".join(outcome.faults)
    assert len(outcome.killed) == 7
    assert min(outcome.killed.values()) >= AT_LEAST
    assert outcome.answered >= 200
    assert outcome.total.received == outcome.total.recorded + sum(outcome.total.skipped.values())
