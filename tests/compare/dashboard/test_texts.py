"""Bodies as lines: spelled as sent, bounded, never a fault."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from compare.dashboard.texts import MAX_BYTES, MAX_LINE, MAX_LINES, Text, mark_differences, read_text


def shown(text: Text) -> list[str]:
    return [line.text for line in text.lines]


def test_numbers_and_duplicate_keys_are_shown_as_they_were_sent() -> None:
    text = read_text(b'{"a": 1.0, "a": 1e0, "n": 9007199254740993, "x": NaN, "e": [], "o": {}}', "application/json")
    assert shown(text) == [
        "{",
        '  "a": 1.0,',
        '  "a": 1e0,',
        '  "n": 9007199254740993,',
        '  "x": NaN,',
        '  "e": [],',
        '  "o": {}',
        "}",
    ]


def test_only_the_lines_that_differ_are_marked() -> None:
    sides = [read_text(json.dumps({"label": "cat", "prob": p}).encode(), "application/json") for p in (0.9, 0.8)]
    left, right = mark_differences(*sides)
    assert [line.text.strip() for line in left.lines if line.differs] == ['"prob": 0.9']
    assert [line.text.strip() for line in right.lines if line.differs] == ['"prob": 0.8']


def test_what_is_too_long_is_cut_and_says_so() -> None:
    text = read_text(json.dumps(["x" * (MAX_LINE * 2)] + [1] * 2000).encode(), "application/json")
    assert len(text.lines) == MAX_LINES
    assert text.note == f"The first {MAX_LINES} of 2,003 lines."
    assert text.lines[1].text.endswith("more characters")


def test_a_purged_an_empty_and_a_huge_body_each_say_what_they_are() -> None:
    assert "not kept" in read_text(None, "application/json").note
    assert "empty" in read_text(b"", "application/json").note
    assert "too many" in read_text(b"1" * (MAX_BYTES + 1), "application/json").note


def test_bytes_that_are_no_text_are_not_shown_as_text() -> None:
    text = read_text(bytes(range(256)), "application/octet-stream")
    assert text.lines == ()
    assert "neither a picture nor text" in text.note


def test_nesting_that_would_exhaust_the_stack_is_shown_as_it_is() -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    assert shown(read_text(deep, "application/json"))[0].startswith("[[[[")


@given(st.binary(max_size=300), st.sampled_from(["application/json", "text/plain", "", "image/png", "text/html; x"]))
def test_no_bytes_raise(data: bytes, media_type: str) -> None:
    text = read_text(data, media_type)
    assert text.lines or text.note or not data.decode("utf-8", "replace").splitlines()
    mark_differences(text, Text())
