"""Two JSON documents as a tree of fields."""

from __future__ import annotations

import json
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from compare.dashboard.fields import MOST_DIFFERING, MOST_SAME, Field, build_fields
from compare.dashboard.texts import read_text

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("xyz", max_size=2), inner, max_size=4),
    max_leaves=12,
)


def tree(one: str, other: str, *, tolerated: bool = False) -> Field:
    texts = [read_text(text.encode(), "application/json").json for text in (one, other)]
    found = build_fields(*texts, tolerated=tolerated)
    assert found is not None
    return found


def leaves(field: Field) -> Iterator[Field]:
    if not field.folds:
        yield field
    for child in field.children:
        yield from leaves(child)


@given(DOCUMENTS, DOCUMENTS)
def test_the_count_of_differences_is_fair_to_both_sides(one: object, other: object) -> None:
    there, back = (tree(*map(json.dumps, pair)) for pair in ((one, other), (other, one)))
    assert there.differing == back.differing == sum(leaf.tone != "same" for leaf in leaves(there))
    swapped = {"gone": "new", "new": "gone"}
    assert sorted(swapped.get(leaf.tone, leaf.tone) for leaf in leaves(there)) == sorted(
        leaf.tone for leaf in leaves(back)
    )
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (there.differing == 0) is same


def test_each_difference_has_its_sign_and_what_is_equal_is_folded() -> None:
    found = tree('{"a": 1.0, "b": [1, 2, 3], "c": {"d": 1}}', '{"c": {"d": 1}, "b": [1, 3], "a": 1.00, "e": null}')
    signs = {(leaf.name, leaf.sign, leaf.left, leaf.right) for leaf in leaves(found) if leaf.tone != "same"}
    assert signs == {('"a"', "≠", "1.0", "1.00"), ("[1]", "\N{MINUS SIGN}", "2", ""), ('"e"', "+", "", "null")}
    assert [child.differing for child in found.children] == [1, 1, 0, 1]
    assert found.about == "4 fields, 3 differences"
    assert tree("[1.0]", "[1.00]", tolerated=True).children[0].sign == "≈"


def test_a_large_document_is_bounded_and_shows_what_differs_first() -> None:
    same, spoiled = [0] * 5000, [1] * 2000
    found = tree(json.dumps(same + spoiled), json.dumps(same + [2] * 2000))
    assert len(found.children) == MOST_SAME + MOST_DIFFERING
    assert found.differing == 2000
    assert "1,500 more that differ" in found.more
    assert "4,750 more that are the same" in found.more


def test_nesting_is_cut_and_never_exhausts_the_stack() -> None:
    deep = "[" * 300 + "1" + "]" * 300
    assert tree(deep, deep.replace("1", "2")).differing == 1
