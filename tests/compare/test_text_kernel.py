"""Texts: the ladder, the invariants, and that time stays bounded."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.kernels.material import Answer, Question
from compare.kernels.text import chrf, compare_texts, judge_texts, script_of
from compare.measurement import Judgement, OutputClass
from compare.policy import Kind
from tests.compare.examples import policy

CAT, OTHER = "The cat sat on the mat.", "The cat is sitting on the mat."


@pytest.mark.parametrize(
    ("a", "b", "score"),
    [
        (CAT, OTHER, 0.5489121204),
        ("abcdefg", "abcxefg", 0.3206349206),
        ("고양이가 매트 위에 앉았다", "고양이가 매트에 앉아 있다", 0.4483345358),
        ("same", "same", 1.0),
        ("", "x", 0.0),
    ],
)
def test_chrf_is_what_sacrebleu_says_in_the_mean_of_both_directions(a: str, b: str, score: float) -> None:
    assert chrf(a, b) == pytest.approx(score, abs=1e-9)


def test_the_ladder_stops_at_the_first_rung_that_holds() -> None:
    assert compare_texts(CAT, CAT).rung == "exact"
    assert compare_texts("caf\u00e9  au\nlait", "cafe\u0301 au lait ").rung == "normalised"
    apart = compare_texts(CAT, OTHER)
    assert apart.rung == "apart"
    assert apart.first_token == 2
    assert apart.common_prefix == pytest.approx(2 / 8)
    assert apart.similarity is not None
    assert 0.7 < apart.similarity < 0.95


def test_near_texts_are_equivalent_and_far_ones_a_mismatch_that_quotes_nothing() -> None:
    assert judge_texts(CAT, OTHER, 0.5).output_class is OutputClass.EQUIVALENT
    far = judge_texts("secret " * 10, "hidden words here " * 5, 0.8)
    assert far.output_class is OutputClass.DIFFERENT
    assert "secret" not in repr(far)
    assert "hidden" not in repr(far)


@pytest.mark.parametrize(
    ("a", "b", "code"),
    [
        ("something was said here", "  ", "empty_text"),
        ("", "something was said here", "empty_text"),
        ("a sentence of a usual length. " * 2, "a sentence of a usual length. " * 5, "length"),
        ("the answer is given in English words", "이 대답은 한국어로 되어 있습니다 여러분 안녕하세요", "language"),
    ],
)
def test_no_tolerance_excuses_a_broken_invariant(a: str, b: str, code: str) -> None:
    found = judge_texts(a, b, 0.01)
    assert found.output_class is OutputClass.DIFFERENT
    assert found.diagnoses[0].code == code


def test_scripts_are_told_from_letters() -> None:
    assert script_of("plain English text, long enough") == "latin"
    assert script_of("Это предложение написано по-русски") == "cyrillic"
    assert script_of("42 + 17 = 59") is None


def test_long_texts_are_measured_in_time_or_said_to_be_too_long() -> None:
    words = [f"w{n}" for n in range(40_000)]
    began = time.process_time()
    found = judge_texts(" ".join(words), " ".join(reversed(words)), 0.5)
    assert time.process_time() - began < 10
    assert found.numbers["similarity"] is None
    assert judge_texts("a" * 500_000, "b" * 500_000, 0.5).output_class is None


def judged(a: bytes, b: bytes, media_type: str = "text/plain; charset=utf-8") -> Judgement:
    return judge_bodies(Answer(media_type, a), Answer(media_type, b))


def judge_bodies(a: Answer, b: Answer) -> Judgement:
    from compare.kernels.dispatch import judge

    return judge(Question(), a, b, policy(Kind.AUTO))


def test_a_charset_is_followed_and_what_is_not_in_it_is_broken() -> None:
    assert judged("caf\u00e9".encode(), "caf\u00e9 ".encode()).output_class is OutputClass.EQUIVALENT
    latin = Answer("text/plain; charset=latin-1", "caf\u00e9".encode("latin-1"))
    assert judge_bodies(Answer("text/plain", "caf\u00e9".encode()), latin).output_class is OutputClass.IDENTICAL
    assert judged(b"plain", b"\xff\xfe\xff").output_class is OutputClass.BROKEN
    assert "first_difference" in judged(b"\xff\xff", b"\xff\xfe").numbers


@given(st.text(max_size=60), st.text(max_size=60))
def test_distances_are_symmetric_and_lie_between_nothing_and_all(a: str, b: str) -> None:
    there, back = compare_texts(a, b), compare_texts(b, a)
    assert there.rung == back.rung
    assert there.chrf == pytest.approx(back.chrf)
    assert 0 <= there.chrf <= 1 + 1e-9
    assert 0 <= there.common_prefix <= 1
    assert there.similarity is not None
    assert 0 <= there.similarity <= 1
    assert compare_texts(a, a).rung == "exact"
