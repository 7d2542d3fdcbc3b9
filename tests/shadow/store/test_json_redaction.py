"""Redaction of JSON bodies: what a path names is gone, all else stays, and what cannot be read is not kept."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadow.store.json_redaction import MAX_BYTES, Unreadable, parse_path, redact_content
from shadow.store.redaction import redact
from tests.shadow.bench import body_of, exchange_of

JSON = "application/json; charset=utf-8"
SESAME = b'{"user": "sesame", "n": 1}'


def redacted(document: object, *paths: str, media_type: str = JSON) -> Any:
    content = json.dumps(document).encode()
    return json.loads(redact_content(content, media_type, "", [parse_path(path) for path in paths]))


@pytest.mark.parametrize(
    ("paths", "document", "expected"),
    [
        (["user.email"], {"user": {"email": "a@b", "id": 1}}, {"user": {"email": "[redacted]", "id": 1}}),
        (["items[*].name"], {"items": [{"name": 1}, {}, {"name": {"a": 2}}]}, None),
        (["[0].id"], [{"id": 5}, {"id": 6}], [{"id": "[redacted]"}, {"id": 6}]),
        (["*.secret"], {"a": {"secret": 1}, "b": {"secret": 2}, "c": 3}, None),
        (["a", "b.c"], {"a": [1, 2], "b": {"c": None}}, {"a": "[redacted]", "b": {"c": "[redacted]"}}),
        (["nowhere.at.all"], {"a": 1}, {"a": 1}),
    ],
)
def test_values_at_paths_are_replaced(paths: list[str], document: object, expected: object) -> None:
    found = redacted(document, *paths)
    if expected is None:
        assert not {"1", "2"} & set(json.dumps(found))
    else:
        assert found == expected


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?", fullmatch=True))
def test_a_number_keeps_its_digits(digits: str) -> None:
    content = f'{{"secret":1,"kept":[{digits}]}}'.encode()
    expected = f'{{"secret":"[redacted]","kept":[{digits}]}}'.encode()
    assert redact_content(content, "application/json", "", [parse_path("secret")]) == expected


def test_a_body_in_which_nothing_is_found_stays_byte_for_byte() -> None:
    content = b'{ "a" : 1.0 ,\n "b":[1e2] }'
    assert redact_content(content, JSON, "", [parse_path("c")]) is content
    packed = gzip.compress(content)
    assert redact_content(packed, JSON, "gzip", [parse_path("c")]) is packed


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_compressed_bodies_are_looked_into(pack: Any) -> None:
    content = pack(b'{"email": "a@b"}')
    encoding = "gzip" if pack is gzip.compress else "deflate"
    assert redact_content(content, JSON, encoding, [parse_path("email")]) == b'{"email":"[redacted]"}'


def test_the_events_of_a_stream_are_redacted_one_by_one() -> None:
    stream = b'event: a\ndata: {"user":"me","n":1}\n\ndata: [DONE]\n\ndata:{"user":"you"}\r\n\r\n'
    found = redact_content(stream, "text/event-stream", "", [parse_path("user")])
    assert b"me" not in found
    assert b"you" not in found
    assert found.count(b"\n\n") + found.count(b"\r\n\r\n") == 3
    assert b"data: [DONE]" in found
    assert b'"n":1' in found


@pytest.mark.parametrize("media_type", ["image/png", "multipart/form-data; boundary=x", "application/octet-stream"])
def test_pictures_stay_and_json_that_calls_itself_a_picture_does_not(media_type: str) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(100)
    assert redact_content(picture, media_type, "", [parse_path("user")]) is picture
    assert redacted({"user": 1}, "user", media_type=media_type) == {"user": "[redacted]"}


@pytest.mark.parametrize(
    ("chunks", "encoding"),
    [
        ([b"\xef\xbb\xbf" + SESAME], ""),
        ([SESAME.decode().encode("utf-16")], ""),
        ([SESAME.decode().encode("utf-16-be")], ""),
        ([b" " * 100 + SESAME], ""),
        ([b"", b"\n", SESAME], ""),
        ([gzip.compress(SESAME, mtime=0)], "gzip"),
        ([gzip.compress(SESAME, mtime=0)[:5], gzip.compress(SESAME, mtime=0)[5:]], " GZIP"),
        ([b"data: " + SESAME + b"\n\n"], ""),
    ],
)
@pytest.mark.parametrize("media_type", ["application/octet-stream", "image/png", "text/event-stream", "text/plain", ""])
def test_no_wrong_name_hides_a_value(chunks: list[bytes], encoding: str, media_type: str) -> None:
    body = replace(body_of(b"".join(chunks), media_type=media_type, content_encoding=encoding), chunks=chunks)
    kept = b"".join(redact(exchange_of(body=body), json_paths=["user"]).request.body)
    for content in (kept, gzip.decompress(kept) if kept.startswith(b"\x1f") else b"", kept.replace(b"\0", b"")):
        assert b"sesame" not in content


def test_a_packed_picture_stays_and_one_that_cannot_be_unpacked_does_not() -> None:
    picture = gzip.compress(b"\x89PNG\r\n\x1a\n" + bytes(100), mtime=0)
    assert redact_content(picture, "image/png", "gzip", [parse_path("user")]) is picture
    with pytest.raises(Unreadable):
        redact_content(picture, "image/png", "zstd", [parse_path("user")])


@pytest.mark.parametrize(
    ("content", "encoding"),
    [
        (b'{"user": "me"', ""),
        (b"user=me&password=x", ""),
        (b"\xff\xfe broken", ""),
        (b"[" * 100_000, ""),
        (b'{"user": "me"}', "br"),
        (gzip.compress(b'{"user": "me"}', mtime=0)[:-4], "gzip"),  # the time would be in the test's name
        (gzip.compress(b'{"user": "me"}', mtime=0) * 2, "gzip"),
        (gzip.compress(b" " * (MAX_BYTES + 1), mtime=0), "gzip"),
        (b" " * (MAX_BYTES + 1), ""),
    ],
)
def test_what_cannot_be_looked_into_is_not_kept(content: bytes, encoding: str) -> None:
    with pytest.raises(Unreadable):
        redact_content(content, JSON, encoding, [parse_path("user")])


@pytest.mark.parametrize("start", [b"data: [ {", b"data:[[{", b"\xef\xbb\xbfdata: {"])
def test_an_event_is_redacted_however_its_json_begins(start: bytes) -> None:
    end = {b"{": b"}", b"[ {": b"}]", b"[[{": b"}]]"}[start.partition(b":")[2].strip()]
    content = start + b'"secret": "sesame"' + end + b"\n\n"
    paths = [parse_path(path) for path in ("secret", "[*].secret", "[*][*].secret")]
    assert b"sesame" not in redact_content(content, "text/event-stream", "", paths)


def test_a_body_with_a_name_twice_is_not_kept() -> None:
    content = b'{"user": {"email": "a@b.c"}, "user": 1}'
    with pytest.raises(Unreadable):
        redact_content(content, "application/json", "", [parse_path("user.email")])


@pytest.mark.parametrize("path", ["", "a..", "[x]", "a[", "a]b", "[*"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="JSON path"):
        parse_path(path)


DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["secret", "a", "b"]), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(DOCUMENTS)
def test_no_value_survives_at_a_path_and_nothing_else_changes(document: object) -> None:
    found = redacted(document, "secret", "[*].secret", "a.secret", "*.b.secret")

    def check(before: object, after: object, path: tuple[str, ...]) -> None:
        if path in {("secret",), ("[]", "secret"), ("a", "secret")} or (
            path[1:] == ("b", "secret") and path[0] != "[]"
        ):
            assert after == "[redacted]"
        elif isinstance(before, dict):
            assert isinstance(after, dict)
            assert before.keys() == after.keys()
            for key in before:
                check(before[key], after[key], (*path, key))
        elif isinstance(before, list):
            assert isinstance(after, list)
            assert len(before) == len(after)
            for one, other in zip(before, after, strict=True):
                check(one, other, (*path, "[]"))
        else:
            assert before == after

    check(document, found, ())
