"""The truth test judges as the product does: what it says first, the product's own gates say at that very pair."""

from __future__ import annotations

import pytest

from benchmarks.broken_pictures import class_of_fault
from benchmarks.detect import CONTROL_EVERY, Streams, Truth, draw, judge
from compare.gates import State, all_gates
from compare.measurement import Critical, Measurement, OutputClass
from compare.policy import Policy
from compare.state import fold
from tests.compare.examples import measured, photo

POLICY = Policy("route", "cloud", "onprem", min_span_s=0.0)
SAME, OTHER = OutputClass.IDENTICAL, OutputClass.DIFFERENT


def as_measured(streams: Streams, stream: int, count: int) -> list[Measurement]:
    """Return the first pairs of a stream as the job would have measured them."""
    found = []
    for n in range(count):
        failed, wrong = bool(streams.error[stream, n]), bool(streams.mismatch[stream, n])
        found.append(
            measured(
                n,
                None if failed else OTHER if wrong else SAME,
                critical=Critical.MISSED_FACE if streams.critical[stream, n] else None,
                control=(OTHER if streams.noise[stream, n] else SAME) if n % CONTROL_EVERY == 0 else None,
                baseline_s=float(streams.old_s[stream, n]),
                candidate_s=float(streams.new_s[stream, n]),
                failure="timeout" if failed else None,
            )
        )
    return found


@pytest.mark.parametrize(
    "truth",
    [
        Truth("slower", slower=1.6),
        Truth("errors", errors=0.15),
        Truth("missed", wrong=0.1, critical=True),
        Truth("wrong", wrong=0.8),
    ],
)
def test_the_first_failing_gate_and_the_reject_come_at_the_same_pair(truth: Truth) -> None:
    streams = draw(truth, 2, 260, seed=3)
    found = judge(streams, POLICY)
    assert found.failed.all()
    for stream, first in enumerate(found.failed):
        gates = [all_gates(fold(as_measured(streams, stream, n), POLICY).tally, POLICY) for n in (first - 1, first)]
        before, then = (any(g.state is State.FAIL for g in each if g.required or g.critical) for each in gates)
        assert (before, then) == (False, True)
        rejected = found.rejected[stream]
        if rejected:
            around = (as_measured(streams, stream, n) for n in (rejected - 1, rejected))
            last = [all_gates(fold(pairs, POLICY).tally, POLICY) for pairs in around]
            assert [any(g.rejects for g in each) for each in last] == [False, True]


@pytest.mark.parametrize("name", ["colour swap", "tile damage", "off-by-one orientation"])
def test_the_kernel_sees_every_broken_picture(name: str) -> None:
    class_of_fault(name, photo("chelsea"))
