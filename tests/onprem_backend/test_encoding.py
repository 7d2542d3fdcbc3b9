"""Which format a result has, and that nothing but pixels leaves."""

from __future__ import annotations

import numpy as np
import pytest

from onprem_backend.encoding import choose_media_type, encode
from onprem_backend.images import Picture
from onprem_backend.problems import Problem
from tests.onprem_backend.pictures import load, noise


@pytest.mark.parametrize(
    ("accept", "source", "transparent", "expected"),
    [
        (None, "JPEG", False, "image/jpeg"),
        ("*/*", "PNG", False, "image/png"),
        (None, "WEBP", False, "image/png"),
        (None, "JPEG", True, "image/png"),
        ("image/avif,image/webp,image/*,*/*;q=0.8", "JPEG", False, "image/jpeg"),
        ("image/webp", "PNG", True, "image/webp"),
        ("image/jpeg", "PNG", True, "image/jpeg"),
        ("image/png, image/jpeg;q=0.5", "JPEG", False, "image/png"),
        ("image/jpeg;q=0, */*", "JPEG", False, "image/png"),
        ("image/*;q=nonsense", "PNG", False, "image/png"),
    ],
)
def test_media_type_follows_the_input_unless_accept_overrides(
    accept: str | None, source: str, transparent: bool, expected: str
) -> None:
    assert choose_media_type(accept, source_format=source, transparent=transparent, longest_px=10) == expected


def test_nothing_acceptable_is_a_406() -> None:
    with pytest.raises(Problem) as caught:
        choose_media_type("text/html", source_format="PNG", transparent=False, longest_px=10)
    assert caught.value.status == 406


def test_a_side_too_long_for_a_format_is_never_put_into_it() -> None:
    assert choose_media_type(None, source_format="JPEG", transparent=False, longest_px=70_000) == "image/png"
    with pytest.raises(Problem) as caught:
        choose_media_type("image/webp", source_format="PNG", transparent=False, longest_px=17_000)
    assert caught.value.extra["offered"] == ["image/png", "image/jpeg"]


def test_png_keeps_every_bit_and_alpha() -> None:
    alpha = noise(channels=1)[:, :, 0]
    saved = np.asarray(load(encode(Picture(noise(), alpha), "image/png")))
    assert np.array_equal(saved, np.dstack([noise(), alpha]))


def test_jpeg_has_full_colour_resolution_and_flattens_on_white() -> None:
    image = load(encode(Picture(noise()), "image/jpeg"))
    assert image.layer == [(1, 1, 1, 0), (2, 1, 1, 1), (3, 1, 1, 1)]  # type: ignore[attr-defined]
    assert "exif" not in image.info
    clear = Picture(np.zeros((8, 8, 3), dtype=np.uint8), np.zeros((8, 8), dtype=np.uint8))
    assert np.asarray(load(encode(clear, "image/jpeg"))).min() == 255
