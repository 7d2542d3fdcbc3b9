"""JSON: what is equal, what is flagged, what rules suppress, and that hostile documents stay cheap."""

from __future__ import annotations

import json
import random
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compare.kernels.json_kernel import judge_json
from compare.kernels.ranking import Ranked, average_overlap, compare_rankings, rbo_ext
from compare.kernels.structured import judge_structured
from compare.measurement import Critical, Judgement, OutputClass
from compare.policy import JsonRule, Kind, RuleName
from tests.compare.examples import labels, policy

PLAIN = policy(Kind.JSON)


def judge(a: str | bytes, b: str | bytes, *rules: JsonRule) -> Judgement:
    one, other = (side.encode() if isinstance(side, str) else side for side in (a, b))
    return judge_json(one, other, policy(Kind.JSON, json_rules=rules))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ('{"a":NaN}', '{"a": NaN}'),
        ('{"a":1}', '{"a":1.0}'),
        ('{"a":1}', '{"a":1e0}'),
        ('{"a":1,"b":2}', '{"b":2,"a":1}'),
        ('"é"', '"\\u00e9"'),
        ("[Infinity]", "[ Infinity]"),
    ],
)
def test_c04_different_spellings_of_one_value_are_equal(a: str, b: str) -> None:
    assert judge(a, b).output_class is OutputClass.IDENTICAL


def test_c04_a_change_of_number_type_is_noted() -> None:
    assert "written as a fraction" in judge('{"a":1}', '{"a":1.0}').note
    assert judge('{"a":1}', '{"a": 1}').note == ""


def test_c04_tolerance_applies_where_asked_for_only() -> None:
    rule = JsonRule("a", RuleName.TOLERANCE, abs_tol=1e-9)
    assert judge('{"a":0.30000000000000004}', '{"a":0.3}').output_class is OutputClass.DIFFERENT
    assert judge('{"a":0.30000000000000004}', '{"a":0.3}', rule).output_class is OutputClass.EQUIVALENT
    assert judge('{"a":0.31}', '{"a":0.3}', rule).output_class is OutputClass.DIFFERENT


def test_c04_integers_beyond_two_to_the_53_are_exact() -> None:
    assert judge('{"a":9007199254740993}', '{"a":9007199254740992}').output_class is OutputClass.DIFFERENT
    long = "9" * 6000
    assert judge(f"[{long}]", f"[ {long}]").output_class is OutputClass.IDENTICAL
    assert judge(f"[{long}]", f"[{long[:-1]}8]").output_class is OutputClass.DIFFERENT


def test_c04_duplicate_keys_are_a_difference_and_a_byte_order_mark_is_a_flag() -> None:
    duplicate = judge('{"a":1,"a":2}', '{"a":2}')
    assert duplicate.output_class is OutputClass.DIFFERENT
    assert "duplicate keys" in duplicate.diagnoses[0].sentence
    marked = judge(b'\xef\xbb\xbf{"a":2}', '{"a":2}')
    assert marked.output_class is OutputClass.IDENTICAL
    assert "byte order mark" in marked.note


def test_c04_what_a_duplicate_key_hides_is_compared_too() -> None:
    same = judge('{"a":1,"a":2}', '{"a":1, "a":2.0}')
    assert same.output_class is OutputClass.IDENTICAL
    assert "duplicate keys on both sides" in same.note
    other = judge('{"l":[{"a":1,"a":2}]}', '{"l":[{"a":3,"a":2}]}')
    assert other.output_class is OutputClass.DIFFERENT
    assert "other values under duplicate keys" in other.diagnoses[0].sentence


LONG = "0." + "3" * 70


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("[1, 2]", "[2.0, 1e0]", OutputClass.EQUIVALENT),
        ('[{"n": 10}, {"n": 2}]', '[{"n": 2.00}, {"n": 1e1}]', OutputClass.EQUIVALENT),
        ("[0]", "[-0.0]", OutputClass.IDENTICAL),
        ("[NaN, 1]", "[1, NaN]", OutputClass.EQUIVALENT),
        (f"[{LONG}1]", f"[{LONG}2]", OutputClass.DIFFERENT),
        ("[1e99999999]", "[1e99999998]", OutputClass.DIFFERENT),
        ("[true]", "[1]", OutputClass.DIFFERENT),
        ('["1"]', "[1]", OutputClass.DIFFERENT),
        ('["decimal 1"]', "[1.0]", OutputClass.DIFFERENT),
        ('[["bool", 1]]', '[["bool", true]]', OutputClass.DIFFERENT),
        ("[[]]", "[{}]", OutputClass.DIFFERENT),
    ],
)
def test_c04_a_set_knows_the_same_values_for_equal_as_a_comparison_without_a_rule(
    a: str, b: str, expected: OutputClass
) -> None:
    """Every spelling and every digit of a number, and no value of another type that is written like it."""
    for one, other in ((a, b), (b, a)):
        assert judge(f'{{"v":{one}}}', f'{{"v":{other}}}', JsonRule("v", RuleName.SET)).output_class is expected
    if expected is OutputClass.DIFFERENT:
        rule = JsonRule("v", RuleName.TOLERANCE, abs_tol=1e-80, rel_tol=1e-80)
        assert judge(f'{{"v":{a}}}', f'{{"v":{b}}}', rule).output_class is expected


IGNORED, SET = JsonRule("l[*].id", RuleName.IGNORE), JsonRule("l", RuleName.SET)
CLOSE = JsonRule("l[*].s", RuleName.TOLERANCE, abs_tol=0.01)


@pytest.mark.parametrize(
    ("rules", "a", "b", "expected"),
    [
        ((SET, IGNORED), [("x", 1), ("y", 2)], [("p", 2), ("q", 1)], OutputClass.EQUIVALENT),
        ((SET, IGNORED), [("x", 1), ("y", 2)], [("p", 2), ("q", 3)], OutputClass.DIFFERENT),
        ((SET, IGNORED, CLOSE), [("x", 1), ("y", 1.01)], [("p", 1.02), ("q", 1.005)], OutputClass.EQUIVALENT),
        ((SET, IGNORED, CLOSE), [("x", 1), ("y", 1.01)], [("p", 1.02), ("q", 1.02)], OutputClass.DIFFERENT),
        ((SET, CLOSE), [("x", 1), ("y", 2)], [("y", 2.001), ("x", 0.999)], OutputClass.EQUIVALENT),
        ((SET, CLOSE), [("x", 1), ("y", 2)], [("y", 1), ("x", 2)], OutputClass.DIFFERENT),
        (
            (JsonRule("l", RuleName.TOLERANCE, abs_tol=0.01), IGNORED),
            [("x", 1)],
            [("y", 1.001)],
            OutputClass.EQUIVALENT,
        ),
        ((JsonRule("l", RuleName.TOLERANCE, abs_tol=0.01),), [("x", 1)], [("y", 1.001)], OutputClass.DIFFERENT),
        ((JsonRule("l", RuleName.TOLERANCE, abs_tol=9), CLOSE), [("x", 1)], [("x", 2)], OutputClass.DIFFERENT),
    ],
)
def test_c16_a_rule_for_a_place_holds_also_below_a_place_with_another_rule(
    rules: tuple[JsonRule, ...], a: list[tuple[str, float]], b: list[tuple[str, float]], expected: OutputClass
) -> None:
    one, other = (json.dumps({"l": [{"id": name, "s": score} for name, score in side]}) for side in (a, b))
    for found in (judge(one, other, *rules), judge(other, one, *rules)):
        assert found.output_class is expected
        assert "rules that matched nothing" not in found.numbers
        assert found.numbers["suppressed"] == len(a) * (IGNORED in rules)


def test_a_tolerance_names_the_very_place_that_is_beyond_it() -> None:
    rule = JsonRule("a", RuleName.TOLERANCE, abs_tol=0.1)
    found = judge('{"a":{"b":[1,2],"c":3}}', '{"a":{"b":[1.05,4],"c":3}}', rule)
    assert "a.b[*]: another number, under rule tolerance" in found.diagnoses[0].sentence


def test_c04_order_counts_in_lists_unless_a_rule_says_set() -> None:
    assert judge('["cat","dog"]', '["dog","cat"]').output_class is OutputClass.DIFFERENT
    rule = JsonRule("tags", RuleName.SET)
    assert judge('{"tags":["cat","dog"]}', '{"tags":["dog","cat"]}', rule).output_class is OutputClass.EQUIVALENT
    assert judge('{"tags":["cat","dog"]}', '{"tags":["dog","cow"]}', rule).output_class is OutputClass.DIFFERENT


def test_c04_tied_probabilities_may_change_places_with_a_note() -> None:
    tied = judge_structured(
        Kind.CLASSIFICATION,
        labels(("cat", 0.4), ("dog", 0.4), ("cow", 0.1)),
        labels(("dog", 0.4), ("cat", 0.4), ("cow", 0.1)),
        PLAIN,
    )
    assert tied.output_class is OutputClass.EQUIVALENT
    assert "tied" in tied.note


def deep(depth: int, inside: str) -> str:
    return "[" * depth + inside + "]" * depth


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (deep(2000, "1"), deep(2000, "2"), None),
        (deep(100_000, "1"), deep(100_000, "2"), None),
        (json.dumps("a" * 50_000_000), json.dumps("a" * 50_000_000 + "b"), None),
        (json.dumps(list(range(1_000_000))), json.dumps([n + 1 for n in range(1_000_000)]), OutputClass.DIFFERENT),
    ],
    ids=["deep", "deeper", "long string", "a million differences"],
)
def test_c14_huge_documents_finish_or_are_marked(a: str, b: str, expected: OutputClass | None) -> None:
    began = time.process_time()
    found = judge(a, b)
    assert time.process_time() - began < 20
    assert found.output_class is expected
    if expected is None:
        assert "too large or too deep" in found.note
    else:
        assert found.numbers["differences"] == 1_000_000
        assert len(found.diagnoses[0].sentence) < 1000
        assert "more" in found.diagnoses[0].sentence


@pytest.mark.parametrize(
    ("left", "right"), ["[]", ('{"a":', "}"), ('{"a":0,"a":', "}")], ids=["list", "object", "twice"]
)
def test_c14_whatever_a_document_nests_within_its_bound_no_rule_runs_out_of_stack(left: str, right: str) -> None:
    a, b = (left * 199 + leaf + right * 199 for leaf in ("1", "2"))
    for rule in (SET, JsonRule("l", RuleName.TOLERANCE), JsonRule("l[*].a.id", RuleName.IGNORE)):
        assert judge(f'{{"l":{a}}}', f'{{"l":{b}}}', rule, SET).output_class is OutputClass.DIFFERENT


def test_c14_a_shuffled_list_of_objects_is_compared_as_a_set_in_linear_time() -> None:
    items = [{"id": n, "name": f"item {n}", "tags": ["x" * 20]} for n in range(5000)]
    shuffled = random.Random(0).sample(items, len(items))
    began = time.process_time()
    found = judge(json.dumps({"l": items}), json.dumps({"l": shuffled}), JsonRule("l", RuleName.SET))
    assert found.output_class is OutputClass.EQUIVALENT
    assert time.process_time() - began < 5


def noisy_answer(score: float) -> str:
    identity = uuid.uuid4().hex
    return json.dumps({"id": identity, "ts": time.time_ns(), "score": score, "items": [{"id": uuid.uuid4().hex}]})


def test_c16_noise_is_suppressed_by_rules_and_real_changes_are_not() -> None:
    rules = (
        JsonRule("id", RuleName.IGNORE),
        JsonRule("ts", RuleName.IGNORE),
        JsonRule("items[*].id", RuleName.IGNORE),
    )
    quiet = [judge(noisy_answer(0.5), noisy_answer(0.5), *rules) for _ in range(100)]
    assert all(j.output_class is OutputClass.EQUIVALENT for j in quiet)
    assert all(j.numbers["suppressed"] == 3 for j in quiet)
    scores = [0.6 if n in (7, 50, 93) else 0.5 for n in range(100)]
    changed = [judge(noisy_answer(0.5), noisy_answer(score), *rules) for score in scores]
    assert [n for n, j in enumerate(changed) if j.output_class is OutputClass.DIFFERENT] == [7, 50, 93]
    assert changed[7].numbers["path score"] == 1


def test_a_rule_that_matched_nothing_is_reported() -> None:
    found = judge('{"a":1}', '{"a":2}', JsonRule("nowhere", RuleName.IGNORE))
    assert found.numbers["rules that matched nothing"] == "nowhere"


def test_an_ignored_key_may_be_missing_on_one_side() -> None:
    assert judge('{"a":1,"id":2}', '{"a":1}', JsonRule("id", RuleName.IGNORE)).output_class is OutputClass.EQUIVALENT
    assert judge('{"a":1,"id":2}', '{"a":1}').output_class is OutputClass.DIFFERENT


def test_embeddings_are_compared_by_their_angle() -> None:
    rule = JsonRule("v", RuleName.EMBEDDING)
    assert judge('{"v":[1,2,3]}', '{"v":[1.001,2,3]}', rule).output_class is OutputClass.EQUIVALENT
    assert judge('{"v":[1,2,3]}', '{"v":[3,2,1]}', rule).output_class is OutputClass.DIFFERENT
    assert judge('{"v":[0,0]}', '{"v":[0,1]}', rule).output_class is OutputClass.DIFFERENT


def test_what_is_no_json_is_broken_and_critical() -> None:
    found = judge('{"a":1}', '{"a":')
    assert found.output_class is OutputClass.BROKEN
    assert found.critical is Critical.UNDECODABLE
    schema = judge('{"a":1}', "[1]")
    assert schema.critical is Critical.BROKEN_SCHEMA


def test_classification_tells_labels_from_scores() -> None:
    base = labels(("espresso", 0.84), ("cup", 0.1))
    close = judge_structured(Kind.CLASSIFICATION, base, labels(("espresso", 0.845), ("cup", 0.099)), PLAIN)
    other = judge_structured(Kind.CLASSIFICATION, base, labels(("cup", 0.6), ("espresso", 0.3)), PLAIN)
    scores = judge_structured(Kind.CLASSIFICATION, base, labels(("espresso", 0.6), ("cup", 0.1)), PLAIN)
    assert close.output_class is OutputClass.EQUIVALENT
    assert [d.code for d in other.diagnoses] == ["top_label"]
    assert "'espresso' against 'cup'" in other.diagnoses[0].sentence
    assert [d.code for d in scores.diagnoses] == ["scores"]


def test_c04_a_score_that_is_no_number_equals_itself_alone() -> None:
    nan, inf = float("nan"), float("inf")
    base = labels(("cat", nan), ("dog", 0.5))
    same = judge_structured(Kind.CLASSIFICATION, base, base + b" ", PLAIN)
    assert same.output_class is OutputClass.IDENTICAL
    assert same.numbers["largest_score_gap"] == 0
    for other in (0.9, inf):
        for found in (
            judge_structured(Kind.CLASSIFICATION, base, labels(("cat", other), ("dog", 0.5)), PLAIN),
            judge_structured(Kind.CLASSIFICATION, labels(("cat", other), ("dog", 0.5)), base, PLAIN),
        ):
            assert found.diagnoses[0].sentence == "a score is no number"
            assert found.numbers["largest_score_gap"] is None


def test_a_label_that_comes_twice_has_two_scores() -> None:
    found = judge_structured(
        Kind.CLASSIFICATION, labels(("cat", 0.9), ("cat", 0.1)), labels(("cat", 0.5), ("cat", 0.1)), PLAIN
    )
    assert [d.code for d in found.diagnoses] == ["scores"]


def test_a_classification_without_predictions_is_a_broken_schema() -> None:
    found = judge_structured(Kind.CLASSIFICATION, labels(("a", 1)), b'{"error": "no"}', PLAIN)
    assert found.output_class is OutputClass.BROKEN
    assert found.critical is Critical.BROKEN_SCHEMA


def test_rank_biased_overlap_matches_the_published_values() -> None:
    assert rbo_ext("abcde", "bacde") == pytest.approx(0.8)
    assert rbo_ext("abcde", "abced") == pytest.approx(0.974, abs=5e-4)
    assert rbo_ext("abcde", "abcdx") == pytest.approx(0.918, abs=5e-4)
    assert average_overlap("abcdefg", "zcavwxy") == pytest.approx(0.312, abs=5e-4)
    assert average_overlap("abcde", "bacde") == pytest.approx(0.8)
    assert average_overlap("abcde", "abced") == pytest.approx(0.95)


def test_rank_biased_overlap_gives_the_first_ten_places_their_published_weight() -> None:
    """Two lists that agree in ten places and in none of the 990 after them, where p to the depth is nothing."""
    top = [f"top {n}" for n in range(10)]
    a, b = ([*top, *(f"{side} {n}" for n in range(990))] for side in "ab")
    assert rbo_ext(a, b, p=0.9) == pytest.approx(0.85558544674735, abs=1e-13)


def test_a_new_label_at_the_end_is_a_tie_when_its_score_is() -> None:
    a = [Ranked("a", 0.5), Ranked("b", 0.101)]
    assert compare_rankings(a, [Ranked("a", 0.5), Ranked("c", 0.1)], 0.01).same
    assert not compare_rankings(a, [Ranked("a", 0.5), Ranked("c", 0.3)], 0.01).same


SECRET = "alice@example.org"
PRIVATE = [
    (f'{{"email": "{SECRET}"}}', '{"email": "bob"}'),
    (f'{{"email": "{SECRET}"}}', "{}"),
    (f'["{SECRET}"]', "[1, 2]"),
    (f'{{"{SECRET}": 1}}', f'{{"{SECRET}": 2}}'),
    (f'{{"{SECRET}": 1}}', "{}"),
    (f'{{"{SECRET}": 1, "{SECRET}": 1}}', "{}"),
    (f'{{"a": {{"{SECRET}": [1]}}}}', f'{{"a": {{"{SECRET}": [2]}}}}'),
    ('{"phone": 4915112345678}', '{"phone": 4915112345679}'),
    ('{"phone": 1.25e4915112345678}', '{"phone": 1}'),
    ("4915112345678", f'"{SECRET}"'),
    (f'"{SECRET}', f'"{SECRET}"'),
    (f'"{SECRET}"', f'"{SECRET}'),
]


@pytest.mark.parametrize("rule", RuleName)
@pytest.mark.parametrize("path", ["email", "phone", "a", "[*]", "", SECRET])
def test_no_value_of_a_body_is_in_what_is_stored(rule: RuleName, path: str) -> None:
    for one, other in [*PRIVATE, *((b, a) for a, b in PRIVATE)]:
        found = repr(judge(one, other, JsonRule(path, rule))).replace(f"'rules that matched nothing': '{path}'", "")
        for value in (SECRET, "alice", "bob", "4915112345678", "4915112345679"):
            assert value not in found


def test_a_difference_names_its_path_its_kinds_and_counts() -> None:
    assert "email: another string, 17 characters against 3" in judge(*PRIVATE[0]).diagnoses[0].sentence
    assert "[*]: a string against a number" in judge(*PRIVATE[2]).diagnoses[0].sentence
    assert "a.{key}[*]: another number" in judge(*PRIVATE[6]).diagnoses[0].sentence
    assert "tags: another list, 2 items against 1, under rule set" in (
        judge('{"tags":["a","b"]}', '{"tags":["c"]}', JsonRule("tags", RuleName.SET)).diagnoses[0].sentence
    )


def test_a_key_that_is_no_schema_name_is_still_governed_by_its_rule() -> None:
    rule = JsonRule(f"users.{SECRET}", RuleName.IGNORE)
    found = judge(f'{{"users":{{"{SECRET}":1}}}}', f'{{"users":{{"{SECRET}":2}}}}', rule)
    assert found.output_class is OutputClass.EQUIVALENT


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(JSON, JSON)
def test_json_classes_are_symmetric_and_reflexive(a: object, b: object) -> None:
    one, other = json.dumps(a).encode(), json.dumps(b, indent=1).encode()
    assert judge(one, other).output_class is judge(other, one).output_class
    assert judge(one, json.dumps(a, indent=2)).output_class is OutputClass.IDENTICAL
