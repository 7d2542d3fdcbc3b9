"""Which kernel judges what, on which bytes; and that no input makes one raise."""

from __future__ import annotations

import base64
import gzip
import io
import json
import math
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from compare.kernels.dispatch import judge, request_orientation
from compare.kernels.encoding import CannotDecode, DamagedContent, decode_content
from compare.kernels.form import form_parts, request_mask, request_picture
from compare.kernels.material import Answer, Question
from compare.measurement import Critical, OutputClass
from compare.policy import JsonRule, Kind, RuleName
from tests.compare.examples import encoded, labels, photo, policy, tagged

PNG = encoded(np.arange(300, dtype=np.uint8).reshape(10, 10, 3))
NOTHING = Question()


def answer(data: bytes, media_type: str = "image/png", status: int = 200) -> Answer:
    return Answer(media_type, data, status)


def form(*fields: tuple[str, bytes]) -> Question:
    parts = [
        b'--edge\r\nContent-Disposition: form-data; name="' + name.encode() + b'"; filename="a.png"\r\n'
        b"Content-Type: image/png\r\n\r\n" + content + b"\r\n"
        for name, content in fields
    ]
    return Question("multipart/form-data; boundary=edge", b"".join(parts) + b"--edge--\r\n")


def test_a_form_gives_its_parts_byte_for_byte() -> None:
    odd = b"\r\n--edg\r\n\x00\xff--\r\n"
    parts = form_parts(form(("file", PNG), ("mask", odd)))
    assert dict(parts) == {"file": PNG, "mask": odd}
    assert request_picture(form(("image", PNG))) == PNG
    assert request_picture(Question("image/png", PNG)) == PNG
    assert request_mask(Question("image/png", PNG)) is None


def test_the_requests_orientation_is_found_raw_and_in_a_form() -> None:
    turned = tagged(photo("chelsea"), 6)
    assert request_orientation(Question("image/jpeg", turned)) == 6
    assert request_orientation(form(("file", turned))) == 6
    assert request_orientation(NOTHING) is None


def test_different_statuses_are_a_mismatch_of_their_own() -> None:
    found = judge(NOTHING, answer(PNG), answer(b"{}", "application/json", 415), policy())
    assert found.output_class is OutputClass.DIFFERENT
    assert found.critical is None
    assert found.diagnoses[0].sentence == "the candidate answered 415 where the baseline answered 200"


def test_two_refusals_have_no_output_whatever_the_pages_say() -> None:
    found = judge(NOTHING, answer(b"no", "text/plain", 415), answer(b"no", "text/plain", 415), policy())
    assert found.output_class is None
    assert found.note == "no output to compare: 415 against 415"


@pytest.mark.parametrize(
    ("kind", "media_type", "a", "b", "number"),
    [
        (Kind.AUTO, "application/octet-stream", PNG, encoded(np.zeros((10, 10, 3), np.uint8)), "psnr_db"),
        (Kind.AUTO, "application/json; charset=utf-8", b'{"a":1}', b'{"a":2}', "differences"),
        (Kind.AUTO, "application/problem+json", b'{"a":1}', b'{"a":2}', "differences"),
        (Kind.AUTO, "text/plain", b"abc", b"abd", "chrf"),
        (Kind.BYTES, "image/png", PNG, PNG[:-1] + b"x", "first_difference"),
        (Kind.CLASSIFICATION, "application/json", labels(("a", 1)), labels(("b", 1)), "rbo"),
    ],
)
def test_the_kernel_follows_the_policy_and_then_the_content(
    kind: Kind, media_type: str, a: bytes, b: bytes, number: str
) -> None:
    found = judge(NOTHING, answer(a, media_type), answer(b, media_type), policy(kind))
    assert found.output_class is OutputClass.DIFFERENT
    assert number in found.numbers


ROWS = [{"label": "cat", "score": n / 100} for n in range(60)]
OTHER_ROWS = [{**row, "score": 0.9} if n == 30 else row for n, row in enumerate(ROWS)]


def lines(rows: list[dict[str, object]], separator: str = ": ", start: str = "", end: str = "\n") -> bytes:
    return "".join(start + json.dumps(row, separators=(",", separator)) + end for row in rows).encode()


@pytest.mark.parametrize(
    ("media_type", "start", "end"),
    [
        ("application/x-ndjson", "", "\n"),
        ("application/jsonl; charset=utf-8", "", "\r\n\r\n"),
        ("application/json-seq", "\x1e", "\n"),
    ],
)
def test_c04_json_lines_are_compared_document_by_document(media_type: str, start: str, end: str) -> None:
    """Read as a text, one other number among sixty lines would be too small a difference to count."""
    turned = [dict(reversed(row.items())) for row in ROWS]
    old, same, new = (
        answer(lines(rows, gap, start, end), media_type)
        for rows, gap in ((ROWS, ": "), (turned, ":"), (OTHER_ROWS, ": "))
    )
    assert judge(NOTHING, old, same, policy()).output_class is OutputClass.IDENTICAL
    found = judge(NOTHING, old, new, policy())
    assert found.output_class is OutputClass.DIFFERENT
    assert found.numbers["path [*].score"] == 1
    ignored = policy(json_rules=(JsonRule("[*].score", RuleName.IGNORE),))
    assert judge(NOTHING, old, new, ignored).output_class is OutputClass.EQUIVALENT
    cut = judge(NOTHING, old, answer(old.data[:-9], media_type), policy())
    assert cut.critical is Critical.UNDECODABLE
    assert "line " in cut.diagnoses[0].sentence


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("text/plain", "application/json"),
        ("text/plain", "text/plain"),
        ("", ""),
        ("application/octet-stream", "application/json"),
        ("text/json", "application/json"),
    ],
)
def test_c04_json_is_compared_as_json_whatever_it_is_called(old: str, new: str) -> None:
    body = json.dumps(ROWS).encode()
    same = judge(NOTHING, answer(body, old), answer(json.dumps(ROWS, indent=1).encode(), new), policy())
    assert same.output_class is OutputClass.IDENTICAL
    assert ("Content-Type" in same.note) is (old != new)
    other = judge(NOTHING, answer(body, old), answer(json.dumps(OTHER_ROWS).encode(), new), policy())
    assert other.numbers["path [*].score"] == 1
    prose = judge(NOTHING, answer(b"[sic] so it is", old), answer(b"{so it is]", new), policy())
    assert "differences" not in prose.numbers


@pytest.mark.parametrize("media_type", ["text/csv", "application/xml", "image/svg+xml"])
def test_one_other_number_in_a_table_is_another_answer_however_alike_the_texts_are(media_type: str) -> None:
    old, new = (b"cat,0.5\n" * 60 + row for row in (b"dog,0.1\n", b"dog,0.9\n"))
    assert judge(NOTHING, answer(old, media_type), answer(new, media_type), policy()).output_class is (
        OutputClass.DIFFERENT
    )
    assert judge(NOTHING, answer(old, "text/plain"), answer(new, "text/plain"), policy()).output_class is (
        OutputClass.EQUIVALENT
    )


def in_json(picture: bytes, prefix: str = "") -> bytes:
    return json.dumps({"created": 1, "data": [{"b64_json": prefix + base64.b64encode(picture).decode()}]}).encode()


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,"])
def test_c17_pictures_in_json_are_compared_as_pictures(prefix: str) -> None:
    picture = photo()[:64, :64]
    old = in_json(encoded(picture), prefix)
    cases = [
        (encoded(picture, compress_level=0), OutputClass.IDENTICAL, None),
        (encoded(np.bitwise_xor(picture, np.uint8(1))), OutputClass.EQUIVALENT, None),
        (encoded(picture[..., ::-1]), OutputClass.DIFFERENT, None),
        (encoded(picture[1:]), OutputClass.BROKEN, Critical.WRONG_SIZE),
        (encoded(picture)[:900], OutputClass.BROKEN, Critical.UNDECODABLE),
    ]
    for other, expected, critical in cases:
        new = in_json(other, prefix)
        found = judge(NOTHING, answer(old, "application/json"), answer(new, "application/json"), policy())
        assert (found.output_class, found.critical) == (expected, critical)
    assert (
        "data[*].b64_json: another picture: different size"
        in judge(
            NOTHING, answer(old, "application/json"), answer(in_json(cases[3][0], prefix), "application/json"), policy()
        )
        .diagnoses[0]
        .sentence
    )
    exact = policy(json_rules=(JsonRule("data[*].b64_json"),))
    new = in_json(cases[0][0], prefix)
    found = judge(NOTHING, answer(old, "application/json"), answer(new, "application/json"), exact)
    assert found.output_class is OutputClass.DIFFERENT


def test_c17_however_many_pictures_one_answer_holds_each_is_compared_as_one() -> None:
    pictures = [photo()[row : row + 8, :8] for row in range(40)]
    old, new = (
        json.dumps([base64.b64encode(encoded(picture, compress_level=level)).decode() for picture in pictures]).encode()
        for level in (9, 0)
    )
    found = judge(NOTHING, answer(old, "application/json"), answer(new, "application/json"), policy())
    assert found.output_class is OutputClass.IDENTICAL


def parcel(boundary: str, *parts: tuple[str, bytes]) -> Answer:
    body = b"".join(
        f"--{boundary}\r\nContent-Type: {media_type}\r\n\r\n".encode() + content + b"\r\n"
        for media_type, content in parts
    )
    return Answer(f'multipart/mixed; boundary="{boundary}"', body + f"--{boundary}--\r\n".encode())


def test_multipart_answers_are_compared_part_by_part_whatever_their_boundaries() -> None:
    anew = encoded(np.asarray(Image.open(io.BytesIO(PNG))), compress_level=0)
    old = parcel("aa b", ("application/json", b'{"a":1}'), ("image/png", PNG))
    same = parcel("x-9", ("application/json", b'{"a": 1.0}'), ("image/png", anew))
    assert judge(NOTHING, old, same, policy()).output_class is OutputClass.IDENTICAL
    for other, critical in (
        (parcel("x", ("application/json", b'{"a":2}'), ("image/png", PNG)), None),
        (parcel("x", ("application/json", b'{"a":1}'), ("image/png", PNG[:60])), Critical.UNDECODABLE),
        (parcel("x", ("application/json", b'{"a":1}')), Critical.BROKEN_SCHEMA),
    ):
        found = judge(NOTHING, old, other, policy())
        assert found.output_class is not None
        assert found.output_class.mismatch
        assert found.critical is critical
    cut = replace(old, data=old.data[:-9])
    assert judge(NOTHING, old, cut, policy()).critical is Critical.UNDECODABLE
    assert judge(NOTHING, old, same, policy(Kind.BYTES)).diagnoses[0].code == "bytes"


def test_json_where_a_picture_is_due_is_broken() -> None:
    found = judge(NOTHING, answer(PNG), answer(b"{}", "application/json"), policy())
    assert found.critical is Critical.BROKEN_SCHEMA


def test_other_labels_for_a_picture_with_an_orientation_tag_hint_at_the_tag() -> None:
    question = Question("image/jpeg", tagged(photo("chelsea"), 6))
    found = judge(question, answer(labels(("cat", 0.9))), answer(labels(("dog", 0.9))), policy(Kind.CLASSIFICATION))
    assert [d.code for d in found.diagnoses] == ["orientation_ignored", "top_label"]
    upright = Question("image/jpeg", tagged(photo("chelsea"), 1))
    plain = judge(upright, answer(labels(("cat", 0.9))), answer(labels(("dog", 0.9))), policy(Kind.CLASSIFICATION))
    assert [d.code for d in plain.diagnoses] == ["top_label"]


def test_content_encodings_are_undone_within_the_cap() -> None:
    text = b"hello " * 100
    raw = zlib.compressobj(wbits=-15)
    assert decode_content(gzip.compress(text), "gzip", 1000) == text
    assert decode_content(zlib.compress(text), "deflate", 1000) == text
    assert decode_content(raw.compress(text) + raw.flush(), "deflate", 1000) == text
    assert decode_content(gzip.compress(gzip.compress(text)), "gzip, gzip", 1000) == text
    assert decode_content(text, "identity", 1000) == text
    with pytest.raises(CannotDecode, match="more than"):
        decode_content(gzip.compress(b"\0" * 10_000_000), "gzip", 1000)
    with pytest.raises(CannotDecode, match="not supported"):
        decode_content(text, "compress", 1000)
    for damaged in (gzip.compress(text)[:-9], b"no gzip"):
        with pytest.raises(DamagedContent):
            decode_content(damaged, "gzip", 1000)


def test_the_first_differing_byte_is_found() -> None:
    a = bytes(range(256)) * 100
    for at in (0, 1, 12_345, len(a) - 1):
        b = a[:at] + bytes([a[at] ^ 1]) + a[at + 1 :]
        found = judge(NOTHING, answer(a, ""), answer(b, ""), policy(Kind.BYTES))
        assert found.numbers["first_difference"] == at
    assert judge(NOTHING, answer(a, ""), answer(a[:77], ""), policy(Kind.BYTES)).numbers["first_difference"] == 77


def gif() -> bytes:
    buffer = io.BytesIO()
    frames = [Image.new("P", (8, 8), color) for color in (1, 2, 3)]
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], transparency=0)
    return buffer.getvalue()


FORM = "multipart/form-data; boundary=x"
SEEDS = [PNG, tagged(photo("chelsea")[:40, :60], 6), gif(), encoded(photo()[:30, :30], "TIFF"), b'{"a": [1, 2]}', b""]


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """Draw bytes that begin like something real."""
    data = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 8))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    end = draw(st.integers(0, len(data)))
    return bytes(data[:end]) + draw(st.binary(max_size=20)) if draw(st.booleans()) else bytes(data)


@settings(max_examples=150, deadline=None)
@given(
    mangled(),
    mangled(),
    mangled(),
    st.sampled_from(list(Kind)),
    st.sampled_from(["", "multipart/form-data; boundary=x"]),
)
def test_no_kernel_raises_on_any_input(sent: bytes, a: bytes, b: bytes, kind: Kind, media_type: str) -> None:
    question = Question(media_type, sent)
    rules = policy(kind)
    there, again = (judge(question, answer(a), answer(b), rules) for _ in range(2))
    assert there == again
    assert all(math.isfinite(n) for n in there.numbers.values() if isinstance(n, float))
    if a == b:
        assert there.output_class is OutputClass.IDENTICAL
    if there.output_class is None:
        assert there.note
    elif there.output_class.mismatch:
        assert there.diagnoses
