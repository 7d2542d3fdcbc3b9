"""Damage that touches no pixel is passed over; damage that does is found. Every cut of a file is tried."""

from __future__ import annotations

import io
import re
import struct

import numpy as np
import pytest
from PIL import Image

from onprem_backend.images import decode
from onprem_backend.jpegs import without_metadata
from onprem_backend.problems import Problem
from tests.onprem_backend.pictures import LIMITS, SAMPLES, array, chunk, half_red, noise, png, save, with_orientation

END = b"\xff\xd9"
PICTURES = {
    "noise": Image.fromarray(noise()),
    "a photograph": Image.fromarray(SAMPLES.astronaut()[:120, 180:300]),
    "a white foot": Image.fromarray(np.concatenate([noise(50, 30), np.full((30, 50, 3), 255, dtype=np.uint8)])),
    "grey": Image.fromarray(noise(40, 40)).convert("L"),
    "CMYK": Image.fromarray(noise(40, 40)).convert("CMYK"),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_i08_a_jpeg_without_its_end_marker_is_accepted_exactly_when_no_pixel_is_missing(kind: str) -> None:
    data = save(PICTURES[kind], "JPEG")
    whole = decode(data, LIMITS).rgb
    assert np.array_equal(decode(data[: -len(END)], LIMITS).rgb, whole)
    refused = 0
    for cut in [*range(3, 24), *range(24, len(data) - 700, 97)]:
        try:
            picture = decode(data[:-cut], LIMITS)
        except Problem as problem:
            assert problem.code == "damaged_image"  # noqa: PT017  (others are accepted, and compared below)
            refused += 1
        else:
            assert np.array_equal(picture.rgb, whole), cut
    assert refused > 10


@pytest.mark.parametrize("options", [{"progressive": True}, {"restart_marker_rows": 1}])
def test_i08_where_nobody_can_tell_a_missing_end_marker_is_refused(options: dict[str, object]) -> None:
    data = save(PICTURES["noise"], "JPEG", **options)
    decode(data, LIMITS)
    with pytest.raises(Problem, match="damaged or truncated"):
        decode(data[: -len(END)], LIMITS)


@pytest.mark.parametrize("kind", PICTURES)
def test_i08_a_jpeg_that_was_cut_and_closed_again_is_refused(kind: str) -> None:
    data = save(PICTURES[kind], "JPEG")
    for share in (0.5, 0.7, 0.9):
        with pytest.raises(Problem, match="pixels are missing"):
            decode(data[: int(len(data) * share)] + END, LIMITS)


def with_height(data: bytes, height: int) -> bytes:
    place = next(data.index(marker) for marker in (b"\xff\xc0", b"\xff\xc2") if marker in data)
    return data[: place + 5] + struct.pack(">H", height) + data[place + 7 :]


@pytest.mark.parametrize("width", [33, 40, 41, 48])
def test_i08_a_jpeg_that_lacks_its_last_rows_is_refused_whatever_its_width(width: int) -> None:
    data = save(Image.fromarray(SAMPLES.astronaut()[100:141, 200 : 200 + width]), "JPEG")
    assert decode(data, LIMITS).size == (width, 41)
    for height in (49, 58, 73):  # 41 rows end within a row of blocks that is there
        with pytest.raises(Problem, match="pixels are missing"):
            decode(with_height(data, height), LIMITS)


def test_i08_a_progressive_jpeg_is_accepted_only_with_all_its_scans() -> None:
    data = save(PICTURES["a photograph"], "JPEG", progressive=True)
    scans = [found.start() for found in re.finditer(b"\xff\xda", data)]
    assert len(scans) > 3
    for scan in scans[1:]:
        with pytest.raises(Problem, match="scans are missing"):
            decode(data[:scan] + END, LIMITS)


def test_i08_a_jpeg_that_lacks_a_stretch_between_restarts_is_refused() -> None:
    data = save(PICTURES["a photograph"], "JPEG", restart_marker_rows=1)
    decode(data, LIMITS)
    places = [found.start() for found in re.finditer(rb"\xff[\xd0-\xd7]", data)]
    with pytest.raises(Problem, match="part of its data"):
        decode(data[: places[1]] + data[places[3] :], LIMITS)
    with pytest.raises(Problem, match="JPEG file is damaged"):
        decode(data.replace(END, b"\xff\xd5"), LIMITS)


def test_a_jpeg_of_absurdly_many_segments_is_refused() -> None:
    with pytest.raises(Problem, match="segments"):
        decode(b"\xff\xd8" + b"\xff\xfe\x00\x02" * 20_000 + save(PICTURES["grey"], "JPEG")[2:-2], LIMITS)


def test_a_jpeg_of_a_scan_repeated_without_end_is_refused() -> None:
    """Of a large picture each takes a quarter of a second, whatever the file's size."""
    data = save(Image.new("L", (64, 64), 200), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    scan, few = data[last : -len(END)], 20
    assert decode(data[:last] + scan * few + END, LIMITS).size == (64, 64)
    with pytest.raises(Problem, match="scans"):
        decode(data[:last] + scan * 5 * few + END, LIMITS)


def test_i08_a_bad_checksum_of_a_text_is_passed_over_and_of_pixels_refused() -> None:
    data = png(noise())
    for place in (33, len(data) - 12):  # before and after the pixels
        for kind in (b"tEXt", b"tIME", b"zTXt"):
            damaged = data[:place] + chunk(kind, b"Comment\0hello", error=1) + data[place:]
            assert np.array_equal(decode(damaged, LIMITS).rgb, noise())
    malformed = {b"iCCP": (b"", b"name\0\x07profile", b"\0\0"), b"pHYs": (b"\0",), b"gAMA": (b"",), b"acTL": (b"",)}
    for kind, bodies in malformed.items():
        for body in bodies:
            assert np.array_equal(decode(data[:33] + chunk(kind, body) + data[33:], LIMITS).rgb, noise())
    keyed = save(half_red(), transparency=(255, 0, 0))
    where = keyed.index(b"tRNS")
    flipped = keyed[: where + 10] + bytes([keyed[where + 10] ^ 1]) + keyed[where + 11 :]
    for broken in (flipped, data[:33] + chunk(b"ABCD", b"", error=1) + data[33:]):
        with pytest.raises(Problem, match="checksum"):
            decode(broken, LIMITS)


def test_a_jpeg_loses_its_metadata_and_nothing_else() -> None:
    exif = Image.Exif()
    exif[0x010E] = "where I live"
    plain = save(PICTURES["a photograph"], "JPEG", icc_profile=b"p" * 200)
    told = save(PICTURES["a photograph"], "JPEG", icc_profile=b"p" * 200, exif=exif, comment=b"where I live")
    assert b"where I live" in told
    assert without_metadata(told + b"where I live") == plain
    assert without_metadata(plain) == plain
    assert Image.open(io.BytesIO(plain)).info["icc_profile"] == b"p" * 200
    progressive = save(PICTURES["a photograph"], "JPEG", progressive=True)
    assert without_metadata(progressive) == progressive
    assert without_metadata(plain[: -len(END)]) == plain


def test_nothing_hides_among_the_segments_that_a_jpeg_keeps() -> None:
    photograph = PICTURES["a photograph"]
    several = save(photograph, "MPO", save_all=True, append_images=[photograph.rotate(180)])
    plain = save(photograph, "JPEG")
    assert without_metadata(several) == plain
    for marker, secret in ((0xE0, b"JFXX\0where I live"), (0xE2, b"FPXR\0where I live"), (0xEE, b"where I live")):
        segment = bytes([0xFF, marker]) + struct.pack(">H", len(secret) + 2) + secret
        assert without_metadata(plain[:20] + segment + plain[20:]) == plain
    adobe = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x01"
    longer = adobe[:3] + bytes([adobe[3] + 4]) + adobe[4:] + b"home"
    assert without_metadata(plain[:20] + longer + plain[20:]) == plain[:20] + adobe + plain[20:]
    lines = b"\xff\xdc\x00\x08" + b"street"  # a DNL that libjpeg does not read
    assert array(plain[:20] + lines + plain[20:]).shape == (120, 120, 3)
    assert without_metadata(plain[:20] + lines + plain[20:]) == plain
    thumbnail = b"\x01\x01" + b"red"
    with_thumbnail = plain[:2] + b"\xff\xe0\x00\x13" + plain[6:18] + thumbnail + plain[20:]
    assert array(with_thumbnail).shape == (120, 120, 3)
    assert without_metadata(with_thumbnail) == plain
    cut_short = plain[:4] + b"\x00\x0a" + plain[6:14] + plain[20:]
    assert without_metadata(cut_short) == plain[:2] + plain[20:]


def test_a_jpeg_that_is_not_shown_as_it_is_stored_is_not_copied() -> None:
    assert without_metadata(with_orientation(half_red(), 6)) is None
    assert without_metadata(save(PICTURES["CMYK"], "JPEG")) is None
    upright = without_metadata(with_orientation(half_red(), 1))
    assert upright is not None
    assert np.array_equal(array(upright), array(save(half_red(), "JPEG")))
