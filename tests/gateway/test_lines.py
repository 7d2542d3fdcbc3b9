"""Fields as lines: each is read back as it was, or none is made."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as some

from gateway.lines import encode_lines

NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
VALUE = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
texts = some.lists(some.sampled_from([b"a", b"Z-9", b":", b": ", b" ", b"\t", b"\r", b"\n", b"\x00", b"\x7f", b"\xe9"]))
words = some.sampled_from([b"host", b"X-L", b"e"])


@given(some.lists(some.tuples(words | texts.map(b"".join), words | texts.map(b"".join))))
def test_fields_go_out_as_they_are_or_not_at_all(fields: list[tuple[bytes, bytes]]) -> None:
    lines = encode_lines(fields)
    assert (lines is not None) == all(NAME.fullmatch(name) and VALUE.fullmatch(value) for name, value in fields)
    if lines is not None:
        assert [tuple(line.split(b": ", 1)) for line in lines.split(b"\r\n")[:-1]] == fields
