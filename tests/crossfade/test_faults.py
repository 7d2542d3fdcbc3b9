"""The demo's faults: each does what its name says to a real picture, and touches nothing else."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from crossfade.demo.faults import FAULTS, leave_faces, parse_fault, swap_red_blue, without_orientation
from crossfade.demo.pictures import ORIENTATION_TAG, uploads


def turned() -> bytes:
    return next(upload.body for upload in uploads("face-blur", 20) if "orientation 6" in upload.name)


def test_without_orientation_keeps_the_pixels_and_resets_the_tag() -> None:
    body = turned()
    with Image.open(io.BytesIO(body)) as before, Image.open(io.BytesIO(without_orientation(body))) as after:
        assert before.getexif()[ORIENTATION_TAG] == 6
        assert after.getexif()[ORIENTATION_TAG] == 1
        assert np.array_equal(np.asarray(before), np.asarray(after))


def test_a_picture_without_a_tag_is_not_written_again() -> None:
    body = next(upload.body for upload in uploads("classify", 1))
    assert without_orientation(body) is body


def test_swap_exchanges_the_outer_channels() -> None:
    buffer = io.BytesIO()
    Image.new("RGBA", (4, 4), (10, 20, 30, 40)).save(buffer, "PNG")
    with Image.open(io.BytesIO(swap_red_blue(buffer.getvalue()))) as picture:
        assert picture.getpixel((0, 0)) == (30, 20, 10, 40)


def test_left_faces_are_the_request_turned_upright() -> None:
    body = turned()
    with Image.open(io.BytesIO(body)) as stored:
        width, height = stored.size
    answer = io.BytesIO()
    Image.new("RGB", (height, width)).save(answer, "JPEG")
    with Image.open(io.BytesIO(leave_faces(body, answer.getvalue()))) as picture:
        assert (picture.format, picture.size) == ("JPEG", (height, width))


@pytest.mark.parametrize("text", ["face-blur", "face-blur:", ":slow", "classify:misses-faces", "x:slow", ""])
def test_an_unknown_fault_lists_what_there_is(text: str) -> None:
    with pytest.raises(ValueError, match="face-blur:misses-faces"):
        parse_fault(text)


def test_all_five_faults_can_be_chosen() -> None:
    assert {name for _, name in FAULTS} == {"ignores-exif", "swaps-red-blue", "misses-faces", "slow", "errors"}
