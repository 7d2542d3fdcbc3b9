"""Pairs are oriented, measured without loss, and what is no pair says why."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.measurement import (
    Critical,
    Diagnosis,
    Judgement,
    Leg,
    Measurement,
    NotComparable,
    OutputClass,
    measurement_from_json,
)
from compare.measuring import measure, measure_safely
from compare.pairing import Pair, pair_up
from compare.policy import Kind
from shadow.exchange import Failure, FailureKind, Observation
from tests.compare.examples import answer, encoded, exchange, labels, photo, policy, tagged

POLICY = policy(Kind.IMAGE)
PNG = encoded(photo("chelsea")[:64, :64])
OTHER = encoded(photo("chelsea")[:64, :64, ::-1])


def failed(backend: str, kind: FailureKind) -> Observation:
    return Observation(backend, f"{backend}-1", failure=Failure(kind, "for a reason"))


def test_a_pair_is_candidate_against_baseline_whoever_answered_the_client() -> None:
    cloud, onprem = answer("cloud", PNG), answer("onprem", OTHER)
    for made in (exchange(1, cloud, onprem), exchange(1, onprem, cloud)):
        pair = pair_up(made, POLICY)
        assert isinstance(pair, Pair)
        assert (pair.baseline, pair.candidate) == (cloud, onprem)
    served = measure(exchange(1, onprem, cloud), POLICY)
    assert served.served_by == "onprem"
    assert served.baseline is not None
    assert served.baseline.backend == "cloud"


@pytest.mark.parametrize(
    ("primary", "shadow", "reason"),
    [
        (answer("cloud", PNG), None, NotComparable.NO_SHADOW_ANSWER),
        (answer("cloud", PNG), answer("cloud", PNG), NotComparable.NOT_THIS_PAIR),
        (answer("cloud", PNG), answer("elsewhere", PNG), NotComparable.NOT_THIS_PAIR),
        (failed("cloud", FailureKind.CANCELLED), answer("onprem", PNG), NotComparable.CLIENT_LEFT),
    ],
)
def test_what_is_no_pair_says_why(primary: Observation, shadow: Observation | None, reason: NotComparable) -> None:
    found = measure(exchange(1, primary, shadow), POLICY)
    assert found.not_comparable is reason
    assert not found.paired


def test_a_failed_leg_is_evidence_and_no_loss() -> None:
    found = measure(exchange(1, answer("cloud", PNG), failed("onprem", FailureKind.TIMEOUT)), POLICY)
    assert found.not_comparable is None
    assert found.paired
    assert found.judgement.output_class is None
    assert found.candidate is not None
    assert found.candidate.failure == "timeout"
    assert found.candidate.wait_s == float("inf")
    error = measure(exchange(1, answer("cloud", PNG), answer("onprem", b"{}", "application/json", status=503)), POLICY)
    assert error.candidate is not None
    assert error.candidate.failure == "status 503"


@pytest.mark.parametrize("cut", ["cloud", "onprem"])
def test_p16_a_cut_answer_is_truncated_and_never_equal_whatever_came_of_it(cut: str) -> None:
    """A body that ends with its connection may have come whole before the reset: it still is no answer."""
    sides = {name: answer(name, PNG) for name in ("cloud", "onprem")}
    sides[cut] = replace(sides[cut], failure=Failure(FailureKind.TRUNCATED, "for a reason"))
    found = measure(exchange(1, sides["cloud"], sides["onprem"]), POLICY)
    leg = found.baseline if cut == "cloud" else found.candidate
    assert found.paired
    assert found.judgement.output_class is None
    assert leg is not None
    assert (leg.failure, leg.wait_s) == ("truncated", float("inf"))


@pytest.mark.parametrize("statuses", [(404, 404), (401, 401), (429, 429), (404, 415), (403, 404), (302, 302)])
def test_a_pair_that_both_sides_refused_has_no_output_and_no_latency(statuses: tuple[int, int]) -> None:
    sides = [answer(name, b"no", "text/plain", status=s) for name, s in zip(("cloud", "onprem"), statuses, strict=True)]
    found = measure(exchange(1, *sides), POLICY)
    assert found.both_refused
    assert not found.timed
    assert found.judgement.output_class is None
    assert found.not_comparable is None
    assert found.judgement.note.startswith("both refused")


@pytest.mark.parametrize("status", [401, 402, 403, 407, 408, 425, 429])
def test_a_status_that_speaks_of_one_leg_is_that_legs_failure(status: int) -> None:
    fine, limited = answer("onprem", PNG), answer("cloud", b"slow down", "text/plain", status=status)
    throttled = measure(exchange(1, limited, fine), POLICY)
    assert throttled.judgement.output_class is None
    assert throttled.baseline is not None
    assert throttled.baseline.failure == f"status {status}"
    assert throttled.timed
    other = measure(exchange(1, answer("cloud", PNG), replace(limited, backend="onprem")), POLICY)
    assert other.candidate is not None
    assert other.candidate.wait_s == float("inf")


def test_a_refusal_of_one_side_is_a_mismatch_and_no_latency() -> None:
    refused = measure(exchange(1, answer("cloud", PNG), answer("onprem", b"?", "text/plain", status=404)), POLICY)
    assert refused.judgement.output_class is OutputClass.DIFFERENT
    assert not refused.timed


def test_a_throttled_control_call_is_no_noise() -> None:
    fine = (answer("cloud", PNG), answer("onprem", PNG))
    for status in (429, 503):
        made = exchange(1, *fine, answer("cloud", b"no", "text/plain", status=status))
        assert measure(made, POLICY).control_class is None
    gone = exchange(1, *fine, answer("cloud", b"no", "text/plain", status=404))
    assert measure(gone, POLICY).control_class is OutputClass.DIFFERENT


def test_a_purged_pair_is_never_judged_not_even_where_the_hashes_are_equal() -> None:
    gone = answer("cloud", PNG)
    assert gone.body is not None
    gone = replace(gone, body=replace(gone.body, chunks=None))
    for candidate in (answer("onprem", PNG), answer("onprem", OTHER)):
        found = measure(exchange(1, gone, candidate), POLICY)
        assert found.not_comparable is NotComparable.BODIES_NOT_KEPT
        assert found.baseline is not None
        assert found.baseline.latency_s == 0.2


def test_bodies_beyond_the_cap_are_comparable_where_their_hashes_are_equal() -> None:
    small = replace(POLICY, max_body_bytes=100)
    sides = [answer(name, PNG) for name in ("cloud", "onprem")]
    huge = [replace(side, body=replace(side.body, chunks=None)) for side in sides if side.body is not None]
    same = measure(exchange(1, *huge), small)
    assert same.judgement.output_class is OutputClass.IDENTICAL
    assert same.same_bytes


def test_the_same_bytes_under_another_type_are_the_same_with_a_note() -> None:
    for content in (b"hello", b'{"a": 1}'):
        pair = exchange(
            0, answer("cloud", content, "text/plain; charset=utf-8"), answer("onprem", content, "Text/HTML")
        )
        found = measure(pair, policy()).judgement
        assert found.output_class is OutputClass.IDENTICAL
        assert found.note == "Content-Type 'text/html' against 'text/plain'"
    alike = exchange(0, answer("cloud", b"hello", "text/plain"), answer("onprem", b"hello", "text/plain;charset=UTF-8"))
    assert measure(alike, policy()).judgement.note == ""


def test_a_control_call_is_judged_against_the_baseline() -> None:
    made = exchange(1, answer("cloud", PNG), answer("onprem", OTHER), answer("cloud", PNG, total_s=0.4))
    found = measure(made, POLICY)
    assert found.judgement.output_class is OutputClass.DIFFERENT
    assert found.control_class is OutputClass.IDENTICAL
    silent = measure(replace(made, control=failed("cloud", FailureKind.RESET)), POLICY)
    assert silent.control_class is None
    assert silent.control_asked


def test_the_requests_orientation_goes_into_the_measurement_and_the_diagnosis() -> None:
    sent = tagged(photo("chelsea"), 6)
    right, turned = encoded(photo("chelsea")), encoded(np.rot90(photo("chelsea")))
    found = measure(exchange(1, answer("cloud", right), answer("onprem", turned), sent=sent), POLICY)
    assert found.request_orientation == 6
    assert found.judgement.critical is Critical.WRONG_SIZE
    assert found.judgement.diagnoses[0].code == "orientation_ignored"


def test_only_a_good_answer_names_a_build() -> None:
    fields = ((b"Server", b"nginx"), (b"X-Model", b"u2netp"))
    found = measure(
        exchange(
            1, answer("cloud", PNG, headers=fields), answer("onprem", b"", "text/html", status=404, headers=fields)
        ),
        POLICY,
    )
    assert found.baseline is not None
    assert found.baseline.build == "u2netp · nginx"
    assert found.candidate is not None
    assert found.candidate.build is None


def test_duplicated_client_ids_never_pair_wrongly() -> None:
    first = exchange(1, answer("cloud", PNG), answer("onprem", PNG))
    second = exchange(2, answer("cloud", OTHER), answer("onprem", OTHER))
    found = [measure(replace(e, client_request_id="the same"), POLICY) for e in (first, second)]
    assert [m.exchange_id for m in found] == ["route-1", "route-2"]
    assert all(m.judgement.output_class is OutputClass.IDENTICAL for m in found)


def test_damaged_and_unknown_content_encodings() -> None:
    cut = measure(exchange(1, answer("cloud", PNG), answer("onprem", b"no gzip", encoding="gzip")), POLICY)
    assert cut.judgement.critical is Critical.UNDECODABLE
    unknown = measure(exchange(1, answer("cloud", PNG), answer("onprem", b"?", encoding="compress")), POLICY)
    assert unknown.not_comparable is NotComparable.NOT_APPLICABLE
    assert "'compress' is not supported" in unknown.judgement.note


def test_a_fault_of_ours_costs_one_measurement_and_is_named() -> None:
    made = exchange(1, answer("cloud", PNG), answer("onprem", PNG))
    impossible = replace(made.request.body, chunks=(None,))  # type: ignore[arg-type]
    found = measure_safely(replace(made, request=replace(made.request, body=impossible)), POLICY)
    assert found.not_comparable is NotComparable.KERNEL_FAULT
    assert re.fullmatch(r"TypeError in \w+\.py line \d+", found.judgement.note)


def test_c12_measurements_keep_the_moment_whatever_the_zone() -> None:
    berlin, seoul = (timezone(timedelta(hours=hours)) for hours in (2, 9))
    moment = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
    made = exchange(1, answer("cloud", PNG), answer("onprem", PNG))
    for zone in (UTC, berlin, seoul):
        found = measure(replace(made, received_at=moment.astimezone(zone)), POLICY)
        assert measurement_from_json(found.to_json()).received_at == moment


TEXT = st.text(max_size=12)
LEGS = st.none() | st.builds(
    Leg, TEXT, st.none() | st.integers(100, 599), st.none() | st.floats(0, 1e6), st.none() | TEXT, st.none() | TEXT
)
NUMBERS = st.dictionaries(
    TEXT, st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT, max_size=4
)
DIAGNOSES = st.lists(st.builds(Diagnosis, TEXT, TEXT), max_size=3).map(tuple)


@given(
    st.builds(
        Measurement,
        TEXT,
        st.integers(0, 2**53),
        TEXT,
        st.datetimes(timezones=st.just(UTC)),
        st.builds(
            Judgement,
            st.none() | st.sampled_from(OutputClass),
            NUMBERS,
            DIAGNOSES,
            st.none() | st.sampled_from(Critical),
            TEXT,
        ),
        LEGS,
        LEGS,
        st.none() | st.sampled_from(NotComparable),
        st.none() | st.sampled_from(OutputClass),
        st.booleans(),
        DIAGNOSES,
        st.none() | st.integers(1, 8),
        st.booleans(),
        TEXT,
    )
)
def test_any_measurement_survives_json(measurement: Measurement) -> None:
    assert measurement_from_json(measurement.to_json()) == measurement


def test_a_classification_is_measured_from_the_wire() -> None:
    made = exchange(
        1,
        answer("cloud", labels(("cat", 0.9)), "application/json"),
        answer("onprem", labels(("dog", 0.9)), "application/json"),
        sent=PNG,
        media_type="image/png",
    )
    found = measure(made, policy(Kind.CLASSIFICATION))
    assert [d.code for d in found.judgement.diagnoses] == ["top_label"]
    assert found.request_orientation == 1


@pytest.mark.parametrize("kind", ["application/problem+json", "application/json; charset=utf-8"])
def test_i15_a_backend_without_memory_is_labelled_as_such_and_not_as_different(kind: str) -> None:
    told = answer("onprem", b'{"status": 503, "code": "out_of_memory"}', kind, status=503)
    found = measure(exchange(1, answer("cloud", PNG), told), POLICY)
    assert found.candidate is not None
    assert found.candidate.failure == "out_of_memory"
    assert found.judgement.output_class is None
    for body in (b"[]", b"\xff", b'{"code": 5}', b""):
        plain = measure(exchange(1, answer("cloud", PNG), answer("onprem", body, kind, status=503)), POLICY)
        assert plain.candidate is not None
        assert plain.candidate.failure == "status 503"


def test_what_a_backend_says_of_its_own_time_is_read_and_nonsense_is_not() -> None:
    fields = ((b"Server-Timing", b'queue;dur=12.5, decode;dur=1, inference; dur="80"'),)
    found = measure(exchange(1, answer("cloud", PNG), answer("onprem", PNG, headers=fields), sent=b"12345"), POLICY)
    assert found.candidate is not None
    assert (found.candidate.queue_s, found.candidate.inference_s) == (0.0125, 0.08)
    assert found.candidate.first_byte_s == 0.1
    assert found.request_bytes == 5
    for nonsense in (b"queue", b"queue;dur", b"queue;dur=-1", b"queue;dur=nan", b";;;=,,", b"queue;dur=1e999"):
        odd = answer("onprem", PNG, headers=((b"Server-Timing", nonsense),))
        leg = measure(exchange(1, answer("cloud", PNG), odd), POLICY).candidate
        assert leg is not None
        assert leg.queue_s is None
