"""Redaction of forms: what is named is gone, all else is read as before, and what cannot be read is not kept."""

from __future__ import annotations

import gzip
import logging
from dataclasses import replace
from email import message_from_bytes
from urllib.parse import parse_qsl, urlencode

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shadow.store.form_redaction import redact_form
from shadow.store.json_redaction import MAX_BYTES, Unreadable
from shadow.store.redaction import redact
from tests.shadow.bench import body_of, exchange_of

URLENCODED = "application/x-www-form-urlencoded"
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp", "Zs"], exclude_characters='"\\;%'))
NAME = NAMES.filter(bool).map(lambda name: f"n{name}")
SECRET = b"a face nobody may see"
BOUNDARY = b"0123456789abcdef"
PIECES = st.sampled_from([b"\r\n--", b"--", b"\r", b"\n", b"-", BOUNDARY[:-1], BOUNDARY[:1], BOUNDARY[1:], b"\0", b" "])
NEARLY = st.lists(PIECES, max_size=12).map(b"".join)  # what a parser may hold back, as it could become the boundary
VALUE = (st.binary(max_size=200) | NEARLY).filter(lambda value: b"--" + BOUNDARY not in value)  # as any client sees to


def multipart(fields: dict[str, str], files: dict[str, tuple[str, bytes, str]]) -> tuple[bytes, str]:
    """Return body and media type as a real client makes them, but for the boundary, which is always the same one."""
    kind = f"multipart/form-data; boundary={BOUNDARY.decode()}"
    request = httpx.Request("POST", "http://x", data=fields, files=files, headers={"Content-Type": kind})
    return request.read(), request.headers["content-type"]


def read_back(content: bytes, media_type: str) -> list[tuple[object, object, bytes]]:
    """Read the fields with another parser: (name, file name, value)."""
    message = message_from_bytes(b"Content-Type: " + media_type.encode() + b"\r\n\r\n" + content)
    found = []
    for part in message.get_payload():
        assert not isinstance(part, str)
        value = part.get_payload(decode=True)
        assert isinstance(value, bytes)
        found.append((part.get_param("name", header="content-disposition"), part.get_filename(), value))
    return found


def test_a_named_field_and_a_named_file_are_gone_and_the_rest_stays() -> None:
    fields, files = (
        {"email": "anna@example.org", "size": "3"},
        {
            "Photo": ("anna.jpg", SECRET, "image/jpeg"),
            "mask": ("mask.png", b"\x89PNG\r\n\r\n--", "image/png"),
        },
    )
    content, media_type = multipart(fields, files)
    found = redact_form(content, media_type, "", ["email", "photo"])
    assert read_back(found, media_type) == [
        ("email", None, b"[redacted]"),
        ("size", None, b"3"),
        ("Photo", "[redacted]", b"[redacted]"),
        ("mask", "mask.png", b"\x89PNG\r\n\r\n--"),
    ]
    assert redact_form(content, media_type, "", ["nobody"]) is content
    packed = gzip.compress(content)
    assert redact_form(packed, media_type, "gzip", ["email", "photo"]) == found
    assert redact_form(packed, media_type, "gzip", ["nobody"]) is packed


@given(st.dictionaries(NAME, VALUE, min_size=1, max_size=5), st.data())
def test_whatever_the_values_hold_only_the_named_one_changes(values: dict[str, bytes], data: st.DataObject) -> None:
    content, media_type = multipart({}, {name: ("f", value, "image/png") for name, value in values.items()})
    name = data.draw(st.sampled_from(sorted(values)))
    hidden = {each for each in values if each.strip().casefold() == name.strip().casefold()}
    before = read_back(content, media_type)
    after = read_back(redact_form(content, media_type, "", [name]), media_type)
    assert len(after) == len(before) == len(values)
    for each, old, new in zip(values, before, after, strict=True):
        assert new[2] == (b"[redacted]" if each in hidden else old[2])


@given(st.lists(st.tuples(st.sampled_from(["e mail", "größe", "x"]), st.text()), max_size=6))
def test_urlencoded_pairs_keep_their_order_and_other_values(pairs: list[tuple[str, str]]) -> None:
    content = urlencode(pairs).encode()
    found = redact_form(content, URLENCODED + "; charset=utf-8", "", ["e mail", "GRÖSSE", "Größe"])
    expected = [(name, value if name == "x" else "[redacted]") for name, value in pairs]
    assert parse_qsl(found.decode(), keep_blank_values=True) == expected


def part(disposition: str, value: str = "v", ending: str = "\r\n--b--\r\n") -> bytes:
    return f"--b\r\nContent-Disposition: {disposition}\r\n\r\n{value}{ending}".encode()


@pytest.mark.parametrize(
    ("content", "media_type", "encoding"),
    [
        (part('form-data; name="a"', ending=""), "multipart/form-data; boundary=b", ""),
        (part('form-data; name="a"'), "multipart/form-data", ""),
        (part('form-data; name="a"'), "multipart/form-data; boundary=other", ""),
        (part('form-data; name="a"'), "multipart/mixed; boundary=b", ""),
        (part('form-data; name="a"'), "text/plain", ""),
        (part('form-data; name="a"; name="email"'), "multipart/form-data; boundary=b", ""),
        (part("form-data; name*=utf-8''email"), "multipart/form-data; boundary=b", ""),
        (part('form-data; name="e\\mail"'), "multipart/form-data; boundary=b", ""),
        (part('form-data; name="=?utf-8?q?email?="'), "multipart/form-data; boundary=b", ""),
        (part("form-data"), "multipart/form-data; boundary=b", ""),
        (
            part('form-data; name="a"\nContent-Disposition: form-data; name="email"'),
            "multipart/form-data; boundary=b",
            "",
        ),
        (
            part('form-data; name="a"', "v\n--b\nContent-Disposition: form-data; name=email\n\nx"),
            "multipart/form-data; boundary=b",
            "",
        ),
        (b"--b\r\nX: y\r\n\r\nv\r\n--b--\r\n", "multipart/form-data; boundary=b", ""),
        (b"email=a%40b", URLENCODED, "br"),
        (b"email=a".ljust(MAX_BYTES + 1), URLENCODED, ""),
    ],
)
def test_a_form_that_two_could_read_differently_is_not_kept_and_no_byte_of_it_is_logged(
    content: bytes, media_type: str, encoding: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Unreadable):
        redact_form(content, media_type, encoding, ["email"])
    exchange = exchange_of(body=body_of(content, media_type=media_type, content_encoding=encoding))
    assert redact(exchange, form_fields=["email"]).request.body.chunks is None
    assert redact(exchange).request.body.chunks == (content,), "a route that asks for nothing keeps it as it was"
    assert not caplog.records


def test_pictures_and_json_are_no_forms() -> None:
    for content, media_type in [(b"\x89PNG", "image/png"), (b'{"email": 1}', "application/json"), (b"", "")]:
        exchange = exchange_of(body=body_of(content, media_type=media_type))
        assert redact(exchange, form_fields=["email"]).request.body is exchange.request.body


def test_a_semicolon_neither_ends_a_named_field_nor_hides_one() -> None:
    found = redact_form(b"a=1;password=x;y&password=abc;def&b=2;c", URLENCODED, "", ["password"])
    assert found == b"a=1;password=[redacted]&password=[redacted]&b=2;c"


@pytest.mark.parametrize("kind", ["Multipart/Form-Data; boundary=b", "multipart/related; boundary=b"])
@pytest.mark.parametrize("json", ['{"user": {"email": "anna@example.org"}}', '\ufeff [{"user": 1}]'])
@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_form_with_json_in_it_is_not_kept_where_json_is_redacted(kind: str, json: str, encoding: str) -> None:
    picture = b'--b\r\nContent-Disposition: form-data; name="photo"; filename="x"\r\n\r\n\x89PNG \n\n{:[\r\n'
    for content, kept in [
        (picture + part('form-data; name="meta"', json), False),
        (b"--b\r\n\r\n" + json.encode() + b"\r\n--b--\r\n", False),
        (picture + part('form-data; name="size"', "512"), True),
    ]:
        sent = gzip.compress(content, mtime=0) if encoding else content
        body = body_of(sent, media_type=kind, content_encoding=encoding)
        for chunks in ([sent], [sent[start : start + 7] for start in range(0, len(sent), 7)]):
            exchange = exchange_of(body=replace(body, chunks=chunks))
            assert (redact(exchange, json_paths=["user.email"]).request.body.chunks is not None) == kept


def test_json_in_a_form_goes_with_its_field() -> None:
    content = part('form-data; name="meta"', '{"user": {"email": "anna@example.org"}}')
    exchange = exchange_of(body=body_of(content, media_type="multipart/form-data; boundary=b"))
    assert redact(exchange, json_paths=["user.email"], form_fields=["other"]).request.body.chunks is None
    kept = redact(exchange, json_paths=["user.email"], form_fields=["meta"]).request.body
    assert b'name="meta"' in b"".join(kept)
    assert b"anna" not in b"".join(kept)


def test_a_form_by_another_name_is_known_however_it_is_cut() -> None:
    content = b"\r\n" + part('Form-Data; name="email"', "anna@example.org")
    for chunks in ([content], [content[:3], content[3:]], [b"", *(bytes([byte]) for byte in content)]):
        body = replace(body_of(content, media_type="text/plain"), chunks=chunks)
        assert redact(exchange_of(body=body), form_fields=["email"]).request.body.chunks is None


@pytest.mark.parametrize("encoding", ["", "gzip"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_json_that_is_called_a_form_is_redacted_by_its_paths_too(encoding: str, mark: bytes) -> None:
    content = mark + b' {"user": {"email": "anna@example.org"}, "size": 3}'
    sent = gzip.compress(content, mtime=0) if encoding else content
    exchange = exchange_of(body=body_of(sent, media_type=URLENCODED, content_encoding=encoding))
    kept = redact(exchange, frozenset(), json_paths=["user.email"], form_fields=["password"]).request.body
    assert b"anna" not in b"".join(kept)
    assert b'"size"' in b"".join(kept)
