"""Mask rules, without a server."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from compare.kernels.erase import read_mask
from onprem_backend.masks import THRESHOLD, decode_mask
from onprem_backend.problems import Problem
from tests.onprem_backend.pictures import LIMITS, png, save, with_orientation

SIZE = (64, 48)


def stroke(mode: str, background: object, colour: object) -> Image.Image:
    image = Image.new(mode, SIZE, background)  # type: ignore[arg-type]
    image.paste(colour, (10, 20, 30, 40))  # type: ignore[arg-type]
    return image


def with_holes(mask: Image.Image) -> Image.Image:
    """A few pixels of the background are transparent, as an editor leaves them."""
    mask.putpixel((0, 0), (*mask.getpixel((0, 0))[:-1], 0))  # type: ignore[index]
    mask.putpixel((60, 40), (*mask.getpixel((60, 40))[:-1], 127))  # type: ignore[index]
    return mask


def with_soft_edges() -> Image.Image:
    """A blue stroke as a canvas draws it: around it ever less alpha, with colours that rounding has moved."""
    mask = stroke("RGBA", (0, 0, 0, 0), (0, 0, 200, 255))
    mask.paste((0, 0, 170, 3), (5, 20, 10, 40))
    mask.paste((0, 0, 203, 128), (28, 20, 30, 40))
    return mask


EXPECTED = np.zeros((48, 64), dtype=np.bool_)
EXPECTED[20:40, 10:30] = True


@pytest.mark.parametrize(
    "image",
    [
        stroke("L", 0, 255),
        stroke("1", 0, 1),
        stroke("RGB", (0, 0, 0), (255, 255, 255)),
        stroke("RGBA", (0, 0, 0, 0), (0, 0, 0, 255)),
        stroke("RGBA", (0, 0, 0, 255), (255, 255, 255, 255)),
        stroke("LA", (0, 0), (255, 200)),
        stroke("RGBA", (0, 0, 0, 0), (255, 0, 0, 255)),
        with_soft_edges(),
        with_holes(stroke("RGBA", (0, 0, 0, 255), (255, 255, 255, 255))),
        with_holes(stroke("LA", (0, 255), (255, 255))),
        stroke("RGBA", (255, 255, 255, 0), (0, 0, 0, 255)),
    ],
    ids=[
        *("grey", "one bit", "colour", "black with the stroke in alpha", "opaque RGBA", "grey with alpha"),
        *("a dark colour on an empty canvas", "soft edges", "opaque RGBA with holes", "opaque grey with holes"),
        "hidden white",
    ],
)
def test_i13_a_stroke_is_found_in_brightness_or_alpha(image: Image.Image) -> None:
    assert np.array_equal(decode_mask(save(image), LIMITS, SIZE), EXPECTED)
    compared = read_mask(save(image), SIZE, LIMITS.max_pixels)  # the comparison looks outside of the same strokes
    assert compared is not None
    assert np.array_equal(compared, EXPECTED)


def test_i13_in_between_values_fall_on_one_side_of_the_threshold() -> None:
    values = np.arange(48 * 64, dtype=np.uint16).reshape(48, 64) % 248 + 3
    assert np.array_equal(decode_mask(png(values.astype(np.uint8)), LIMITS, SIZE), values >= THRESHOLD)
    lossy = decode_mask(save(stroke("L", 3, 250), "JPEG", quality=60), LIMITS, SIZE)
    assert np.mean(lossy != EXPECTED) < 0.01


def test_i13_a_fully_transparent_mask_marks_nothing() -> None:
    assert not decode_mask(save(Image.new("RGBA", SIZE, (255, 255, 255, 0))), LIMITS, SIZE).any()


@pytest.mark.parametrize(
    "data",
    [save(Image.new("L", (48, 64))), with_orientation(Image.new("L", SIZE), 6)],
    ids=["turned", "turned by its orientation"],
)
def test_i13_another_size_is_refused_naming_both(data: bytes) -> None:
    with pytest.raises(Problem) as caught:
        decode_mask(data, LIMITS, SIZE)
    assert caught.value.status == 422
    assert caught.value.extra == {"image": "64x48", "mask": "48x64"}
