"""Embeddings, tags and boxes, as a kind of their own and as rules of JSON paths."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.kernels.boxes import match_boxes, overlaps, read_boxes
from compare.kernels.json_kernel import judge_json
from compare.kernels.json_rules import cosine
from compare.kernels.structured import judge_structured, values_at
from compare.measurement import Critical, Judgement, OutputClass
from compare.policy import JsonRule, Kind, RuleName
from tests.compare.examples import policy

SAME, NEAR, OFF, BROKEN = OutputClass.IDENTICAL, OutputClass.EQUIVALENT, OutputClass.DIFFERENT, OutputClass.BROKEN


def judged(kind: Kind, a: object, b: object, **changes: object) -> Judgement:
    one, other = (json.dumps(side).encode() for side in (a, b))
    return judge_structured(kind, one, other, policy(kind, **changes))


def ruled(rule: JsonRule, a: object, b: object) -> OutputClass | None:
    return judge_json(
        json.dumps(a).encode(), json.dumps(b).encode(), policy(Kind.JSON, json_rules=(rule,))
    ).output_class


def embedded(*vectors: list[float]) -> dict[str, Any]:
    return {"data": [{"embedding": list(v), "index": i} for i, v in enumerate(vectors)], "id": len(vectors)}


def test_embeddings_are_judged_by_their_angle_each_with_its_own() -> None:
    base = [0.1 * n for n in range(1, 9)]
    close = [x + 0.001 for x in base]
    assert judged(Kind.EMBEDDING, embedded(base), embedded(base)).output_class is SAME
    near = judged(Kind.EMBEDDING, embedded(base, base), embedded(base, close))
    assert near.output_class is NEAR
    assert near.numbers["values"] == 2
    off = judged(Kind.EMBEDDING, embedded(base, base), embedded(base, base[::-1]))
    assert off.output_class is OFF
    assert off.numbers["values_apart"] == 1
    assert off.diagnoses[0].code == "direction"


def test_embeddings_packed_in_base64_are_judged_as_those_in_numbers() -> None:
    def packed(*values: float) -> dict[str, Any]:
        return {"data": [{"embedding": base64.b64encode(np.array(values, "<f4").tobytes()).decode()}], "id": values[0]}

    assert judged(Kind.EMBEDDING, packed(1.5, 2, 3), {**packed(1.5, 2, 3), "id": 0}).output_class is SAME
    assert judged(Kind.EMBEDDING, packed(1, 2, 3), packed(1.001, 2, 3)).output_class is NEAR
    assert judged(Kind.EMBEDDING, packed(1, 2, 3), packed(3, 2, 1)).diagnoses[0].code == "direction"
    other_form = judged(Kind.EMBEDDING, packed(1, 2, 3), embedded([1.0, 2.0, 3.0]))
    assert other_form.critical is Critical.BROKEN_SCHEMA


def test_a_vector_of_another_length_or_a_missing_one_is_a_broken_schema() -> None:
    others: list[object] = [embedded([1.0, 2.0]), embedded(), {}, embedded([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])]
    for other in others:
        found = judged(Kind.EMBEDDING, embedded([1.0, 2.0, 3.0]), other)
        assert found.output_class is BROKEN
        assert found.critical is Critical.BROKEN_SCHEMA


def test_the_place_of_the_output_can_be_named() -> None:
    a, b = {"result": {"vector": [1, 2]}}, {"result": {"vector": [2, 1]}}
    assert judged(Kind.EMBEDDING, a, b, value_path="result.vector").output_class is OFF
    assert values_at({"a": [{"b": [1]}, {"b": [2, 3]}, {}]}, "a[*].b[*]") == [1, 2, 3]
    both_without = judged(Kind.EMBEDDING, {"a": 1}, {"a": 2})
    assert both_without.output_class is OFF
    assert "compared as JSON" in both_without.note


def test_cosines_of_huge_tiny_and_empty_vectors() -> None:
    assert cosine([1e200, 0.0], [1e200, 0.0]) == pytest.approx(1)
    assert cosine([1e-200, 0.0], [0.0, 1e-200]) == pytest.approx(0)
    assert cosine([0.0, 0.0], [0.0, 0.0]) == 1
    assert cosine([0.0, 0.0], [1.0, 0.0]) == 0
    assert cosine([float("inf"), 1.0], [1.0, 1.0]) is None


def test_tags_are_judged_by_their_common_share() -> None:
    five = ["cat", "sofa", "indoor", "pet", "fur"]
    assert judged(Kind.TAGS, {"tags": five}, {"tags": five[::-1]}).output_class is NEAR
    assert judged(Kind.TAGS, {"tags": five}, {"tags": [*five, "eyes"]}).output_class is NEAR
    off = judged(Kind.TAGS, {"tags": five}, {"tags": ["dog", *five[1:]]})
    assert off.output_class is OFF
    assert off.numbers["jaccard"] == pytest.approx(4 / 6, abs=1e-4)
    assert off.diagnoses[0].sentence == "1 of 5 tags are missing and 1 are new"
    assert judged(Kind.TAGS, {"tags": []}, {"tags": []}).output_class is SAME
    assert judged(Kind.TAGS, {"tags": five}, {"tags": [1]}).critical is Critical.BROKEN_SCHEMA


def box(x: float, y: float, label: str = "cat", score: float = 0.9) -> dict[str, Any]:
    return {"box": [x, y, x + 10, y + 10], "label": label, "score": score}


def test_boxes_are_matched_one_to_one_and_counted() -> None:
    old = [box(30 * n, 0) for n in range(20)]
    moved = [box(30 * n + 1, 1) for n in reversed(range(20))]
    near = judged(Kind.BOXES, {"boxes": old}, {"boxes": moved})
    assert near.output_class is NEAR
    assert near.numbers["f1"] == 1
    assert near.numbers["mean_iou"] == pytest.approx(81 / 119, abs=1e-4)
    one_of_20_missing = judged(Kind.BOXES, {"boxes": old}, {"boxes": old[1:]})
    assert one_of_20_missing.output_class is NEAR
    off = judged(Kind.BOXES, {"boxes": old}, {"boxes": [*old[2:], box(0, 900)]})
    assert off.output_class is OFF
    assert (off.numbers["missed"], off.numbers["extra"]) == (2, 1)
    other_label = judged(Kind.BOXES, {"boxes": [box(0, 0)]}, {"boxes": [box(0, 0, "dog")]})
    assert other_label.output_class is OFF
    assert judged(Kind.BOXES, {"boxes": []}, {"boxes": []}).output_class is SAME


@pytest.mark.parametrize(
    ("value", "form"),
    [
        ([[1, 2, 3, 4]], "xyxy"),
        ([[1, 2, 2, 2]], "xywh"),
        ([{"bbox": [1, 2, 3, 4], "class": "a", "confidence": 0.5}], "xyxy"),
        ([{"xmin": 1, "ymin": 2, "xmax": 3, "ymax": 4}], "xyxy"),
        ([{"box": {"x1": 1, "y1": 2, "x2": 3, "y2": 4}}], "xyxy"),
    ],
)
def test_boxes_are_read_in_the_usual_forms(value: object, form: Any) -> None:
    found = read_boxes(value, form)
    assert found is not None
    assert found.corners.tolist() == [[1, 2, 3, 4]]


@pytest.mark.parametrize("value", [{}, [1], [[1, 2, 3]], [[1, 2, 3, "4"]], [[1, 2, 3, True]], [{"box": 1}]])
def test_what_is_no_list_of_boxes_is_none(value: object) -> None:
    assert read_boxes(value) is None


@given(
    st.lists(st.tuples(*[st.integers(0, 50)] * 4), max_size=8),
    st.lists(st.tuples(*[st.integers(0, 50)] * 4), max_size=8),
)
def test_matching_boxes_is_symmetric(a: list[tuple[int, ...]], b: list[tuple[int, ...]]) -> None:
    one, other = read_boxes([list(x) for x in a]), read_boxes([list(x) for x in b])
    assert one is not None
    assert other is not None
    there, back = match_boxes(one, other), match_boxes(other, one)
    assert there.f1 == back.f1
    assert (there.missed, there.extra) == (back.extra, back.missed)
    assert 0 <= there.f1 <= 1
    np.testing.assert_array_equal(overlaps(one.corners, other.corners), overlaps(other.corners, one.corners).T)


LIST = [{"label": "a", "score": 0.6}, {"label": "b", "score": 0.4}]


@pytest.mark.parametrize(
    ("rule", "a", "b", "expected"),
    [
        (JsonRule("v", RuleName.ORDERED), [1, 2], [1, 2], SAME),
        (JsonRule("v", RuleName.ORDERED), [1, 2], [2, 1], OFF),
        (JsonRule("v", RuleName.SET), [1, 2], [2, 1], NEAR),
        (JsonRule("v", RuleName.TAGS), ["a", "b"], ["b", "a"], NEAR),
        (JsonRule("v", RuleName.TAGS), ["a", "b"], ["a", "c"], OFF),
        (JsonRule("v", RuleName.BOXES), [box(0, 0)], [box(1, 0)], NEAR),
        (JsonRule("v", RuleName.BOXES), [box(0, 0)], [box(9, 0)], OFF),
        (JsonRule("v", RuleName.TEXT), "the cat sat on a mat", "the cat sat on the mat", OFF),
        (JsonRule("v", RuleName.TEXT, min_similarity=0.6), "the cat sat on a mat", "the cat sat on the mat", NEAR),
        (JsonRule("v", RuleName.TEXT), "words", 5, OFF),
        (JsonRule("v", RuleName.RANKING, score="score"), LIST, LIST[:1], OFF),
        (JsonRule("v", RuleName.EMBEDDING), [1, 2], [1, 2.0001], NEAR),
        (JsonRule("v", RuleName.TOLERANCE, rel_tol=0.01), {"x": [100]}, {"x": [100.9]}, NEAR),
        (JsonRule("v", RuleName.TOLERANCE, rel_tol=0.01), {"x": [100]}, {"x": [102]}, OFF),
    ],
)
def test_c04_every_rule_of_a_path_tolerates_what_it_says_and_no_more(
    rule: JsonRule, a: object, b: object, expected: OutputClass
) -> None:
    assert ruled(rule, {"v": a}, {"v": b}) is expected
    assert ruled(rule, {"v": b}, {"v": a}) is expected


def test_c04_an_order_is_named_as_one_difference() -> None:
    rules = policy(Kind.JSON, json_rules=(JsonRule("v", RuleName.ORDERED),))
    found = judge_json(b'{"v":[1,2,3]}', b'{"v":[3,2,1]}', rules)
    assert found.numbers["differences"] == 1
    assert "the same 3 items in another order" in found.diagnoses[0].sentence
