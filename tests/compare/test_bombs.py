"""Pictures that would take more memory or time than they may: told from their bytes, and held against nobody."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from PIL import Image

from compare.kernels.image import judge_image
from compare.kernels.pixels import Undecodable, decode
from compare.policy import ImageBands
from tests.compare.examples import encoded, photo
from tests.onprem_backend.pictures import save


def test_a_bomb_is_refused_from_its_header() -> None:
    bomb = encoded(np.zeros((2000, 2000), np.uint8))
    found = decode(bomb, max_pixels=1_000_000)
    assert isinstance(found, Undecodable)
    assert found.too_large
    other = encoded(np.ones((2000, 2000), np.uint8))
    assert judge_image(bomb, other, ImageBands(max_pixels=1_000_000)).output_class is None


def test_a_jpeg_of_a_scan_repeated_without_end_is_not_decoded() -> None:
    data = save(Image.new("L", (64, 64), 200), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    found = [decode(data[:last] + data[last:-2] * times + data[-2:], 10_000) for times in (20, 100)]
    assert [isinstance(one, Undecodable) and one.too_large for one in found] == [False, True]


def test_a_picture_too_large_for_the_decoder_itself_is_not_held_against_anybody() -> None:
    header = b"IHDR" + struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    large = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    large += b"\0\0\0\0IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    found = judge_image(encoded(photo("camera")), large, ImageBands())
    assert found.output_class is None
    assert "too large" in str(found.note)
