"""A phrase is its English text, and comes back from JSON as it was said."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict, dataclass

from hypothesis import given
from hypothesis import strategies as st

from compare.dashboard.phrases import KOREAN, translate
from compare.phrases import Phrase, as_fields, from_stored, joined, plural, say

VALUES = st.integers(0, 10**9) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
PHRASES = st.recursive(
    st.builds(lambda value: say("see {what}", what=value), VALUES)
    | st.builds(plural, st.integers(0, 9), st.just("pair")),
    lambda inner: st.builds(lambda parts: joined("; ", parts), st.lists(inner, min_size=1, max_size=3)),
    max_leaves=6,
)


@dataclass(frozen=True)
class Record:
    reason: str
    notes: tuple[str, ...]


@given(PHRASES, st.lists(PHRASES | st.text(max_size=20), max_size=3))
def test_a_stored_phrase_comes_back_with_its_key_and_values(reason: Phrase, notes: list[str]) -> None:
    raw = json.loads(json.dumps(asdict(Record(reason, tuple(notes)), dict_factory=as_fields)))
    assert raw["reason"]["text"] == str(reason)
    found, rest = from_stored(raw["reason"]), from_stored(raw["notes"])
    assert (found, found.source, dict(found.values)) == (reason, reason.source, dict(reason.values))
    assert rest == tuple(notes)
    assert [translate(each, KOREAN) for each in (found, *rest)] == [
        translate(each, KOREAN) for each in (reason, *notes)
    ]
    assert pickle.loads(pickle.dumps(reason)).source == copy.deepcopy(reason).source == reason.source


def test_what_an_older_version_stored_stays_as_it_was_said() -> None:
    assert from_stored("onprem is slower.") == "onprem is slower."
    other = {"text": "Wait for 3 pairs", "key": "Wait for about {pairs}", "values": {"n": 3}}
    assert translate(from_stored(other), KOREAN) == "Wait for 3 pairs"
