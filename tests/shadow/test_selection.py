"""Which requests are mirrored, decided before any byte is copied."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadow.exchange import SkipReason
from shadow.rule import ShadowRule
from shadow.selection import is_sampled, skip_reason, wants_control

POSTS = ShadowRule(percent=100, methods=frozenset({"GET", "POST"}), max_body_bytes=1000)
BOTH_WAYS = ShadowRule(percent=100, methods=frozenset({"POST"}), both_ways=True)


@pytest.mark.parametrize(
    ("rule", "method", "served_by_candidate", "content_length", "expected"),
    [
        (POSTS, "POST", False, 1000, None),
        (POSTS, "POST", False, None, None),
        (POSTS, "POST", False, 0, None),
        (POSTS, "POST", False, 1001, SkipReason.BODY_TOO_LARGE),
        (POSTS, "POST", True, 10, SkipReason.SERVED_BY_CANDIDATE),
        (BOTH_WAYS, "POST", True, 10, None),
        (POSTS, "DELETE", False, None, SkipReason.METHOD_NOT_ALLOWED),
        (ShadowRule(), "GET", False, None, SkipReason.NOT_SAMPLED),
        (ShadowRule(percent=100), "GET", False, None, None),
        (ShadowRule(percent=100), "HEAD", False, None, None),
    ],
)
def test_the_first_reason_that_applies_is_named(
    rule: ShadowRule, method: str, served_by_candidate: bool, content_length: int | None, expected: SkipReason | None
) -> None:
    reason = skip_reason(
        rule,
        method=method,
        sampled=is_sampled(rule, "r"),
        served_by_candidate=served_by_candidate,
        content_length=content_length,
    )
    assert reason is expected


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"])
def test_m12_only_get_and_head_are_mirrored_unless_a_route_asks_for_more(method: str) -> None:
    reason = skip_reason(
        ShadowRule(percent=100), method=method, sampled=True, served_by_candidate=False, content_length=None
    )
    assert reason is SkipReason.METHOD_NOT_ALLOWED


def sampled(percent: float, request_id: str) -> bool:
    return is_sampled(ShadowRule(percent=percent), request_id)


@given(st.text(), st.floats(0, 100), st.floats(0, 100))
def test_a_growing_percent_only_adds_requests(request_id: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert not sampled(low, request_id) or sampled(high, request_id)


@given(st.text())
def test_none_at_0_percent_all_at_100_and_the_same_answer_each_time(request_id: str) -> None:
    assert not sampled(0, request_id)
    assert sampled(100, request_id)
    assert sampled(50, request_id) is sampled(50, request_id)


def test_what_the_candidate_served_has_a_percent_of_its_own() -> None:
    def chosen(rule: ShadowRule, *, crossed: bool) -> int:
        return sum(is_sampled(rule, str(n), served_by_candidate=crossed) for n in range(2000))

    back = ShadowRule(percent=100, both_ways=True, back_percent=5)
    assert chosen(back, crossed=False) == 2000
    assert 60 < chosen(back, crossed=True) < 140
    assert chosen(ShadowRule(percent=100, both_ways=True), crossed=True) == 2000
    assert chosen(ShadowRule(percent=100, back_percent=5), crossed=True) == 2000, "one way only: skipped by its name"


def test_the_share_that_is_sampled_is_the_percent() -> None:
    chosen = sum(sampled(20, f"request-{n}") for n in range(10_000))
    assert abs(chosen - 2000) < 200  # five standard deviations


def test_controls_are_drawn_independently_of_the_sample() -> None:
    ids = [f"request-{n}" for n in range(20_000) if sampled(50, f"request-{n}")]
    share = sum(wants_control(ShadowRule(control_percent=50), request_id) for request_id in ids) / len(ids)
    assert abs(share - 0.5) < 0.025


def test_no_control_unless_asked_for() -> None:
    assert not any(wants_control(ShadowRule(percent=100), f"request-{n}") for n in range(1000))
