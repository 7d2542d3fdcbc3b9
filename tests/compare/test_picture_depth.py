"""Pictures that eight bits of an opaque colour do not tell apart: depth maps, nearly clear pixels, animations."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from compare.kernels.image import judge_image
from compare.measurement import Judgement, OutputClass
from compare.policy import ImageBands
from tests.compare.examples import encoded, photo

SAME, NEAR, OFF = OutputClass.IDENTICAL, OutputClass.EQUIVALENT, OutputClass.DIFFERENT
RAMP = np.linspace(0, 1, 64 * 64).reshape(64, 64)
MAP = (1000 + 300 * RAMP).astype(np.uint16)
HOLE, FILLED = RAMP.copy(), RAMP.copy()
HOLE[8:24, 8:24], FILLED[8:24, 8:24] = np.nan, 0


def judge(a: bytes, b: bytes) -> Judgement:
    found, back = (judge_image(one, other, ImageBands()) for one, other in ((a, b), (b, a)))
    assert found.output_class is back.output_class
    return found


def grey(values: NDArray[Any], form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, form, **options)
    return buffer.getvalue()


def floats(values: NDArray[np.float64]) -> bytes:
    return grey(values.astype(np.float32), "TIFF")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (grey(MAP), grey(MAP, compress_level=0), SAME),
        (grey(MAP), grey(MAP + 1), NEAR),
        (grey(MAP), grey(MAP + 100), OFF),
        (grey(np.full_like(MAP, 5000)), grey(np.full_like(MAP, 5001)), NEAR),
        (grey(np.full_like(MAP, 5000)), grey(np.full_like(MAP, 5400)), OFF),
        (grey((65535 * RAMP).astype(np.uint16)), grey((255 * RAMP).astype(np.uint8)), NEAR),
        (floats(0.999 * RAMP), floats(1.001 * RAMP), NEAR),
        (floats(10 * RAMP), floats(10 * RAMP + 0.3), OFF),
        (floats(0 * RAMP + 5000), floats(0 * RAMP + 9000), OFF),
        (floats(0 * RAMP - 5), floats(0 * RAMP - 9), OFF),
        (floats(HOLE), floats(HOLE), SAME),
        (floats(HOLE), floats(FILLED), OFF),
        (grey((1e6 * RAMP).astype(np.int32), "TIFF"), grey((1e6 * RAMP + 2e5).astype(np.int32), "TIFF"), OFF),
    ],
    ids=["same", "one unit", "another", "flat", "flat other", "8 bits", "floats", "floats off", "above 255", "below 0",
         "no number", "a number for none", "32 bits"],
)  # fmt: skip
def test_c17_a_depth_map_is_told_apart_within_its_own_range(a: bytes, b: bytes, expected: OutputClass) -> None:
    assert judge(a, b).output_class is expected


def colour_of_sixteen_bits(low_byte: int) -> bytes:
    """Return a PNG of 16 bits a sample, which Pillow cannot write; its low bytes are all the same."""
    samples = photo()[:16, :16].astype(">u2") * 256 + low_byte
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 16, 16, 16, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def test_c17_what_only_the_highest_bits_of_say_that_it_is_the_same_is_not_called_identical() -> None:
    found = judge(colour_of_sixteen_bits(0), colour_of_sixteen_bits(200))
    assert found.output_class is NEAR
    assert "16 bits a sample against 16" in found.note


def test_c17_colour_counts_as_much_as_it_is_seen() -> None:
    """A tool that multiplies by alpha and divides again rounds the colour of what is nearly clear away."""
    colour = photo()[:64, :64]
    alpha = np.tile(np.linspace(0, 255, 64).round().astype(np.uint8), (64, 1))
    share = alpha[..., None] / 255
    back = np.divide((colour * share).round(), share, out=np.zeros(colour.shape), where=share > 0)
    straight, returned, dark = (
        encoded(np.dstack([side.round().clip(0, 255).astype(np.uint8), alpha]))
        for side in (colour, back, colour * share)
    )
    assert judge(straight, returned).output_class is NEAR
    assert judge(straight, dark).output_class is OFF


def animation(form: str, *lasts_ms: int) -> bytes:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "green", "blue")]
    buffer = io.BytesIO()
    options: dict[str, Any] = {"lossless": True} if form == "WEBP" else {}
    frames[0].save(buffer, form, save_all=True, append_images=frames[1:], duration=list(lasts_ms), **options)
    return buffer.getvalue()


def test_an_animation_at_another_pace_is_another_and_one_that_a_format_rounds_is_not() -> None:
    old = animation("GIF", 100, 100, 100)
    for form in ("WEBP", "PNG"):
        assert judge(old, animation(form, 104, 97, 100)).output_class is SAME
    found = judge(old, animation("GIF", 100, 1000, 100))
    assert found.output_class is OFF
    assert found.diagnoses[0].sentence == ("the frames are shown for 1200 ms where the baseline's are for 300")
