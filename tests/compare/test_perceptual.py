"""SSIMULACRA2: the measured table, and what a route that asks for it gets."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from compare.kernels.image import judge_image
from compare.kernels.perceptual import ssimulacra2
from compare.kernels.pixels import Pixels
from compare.measurement import OutputClass
from compare.policy import ImageBands
from tests.compare.examples import encoded, photo

CHELSEA = "chelsea"


def jpeg(pixels: Pixels, quality: int) -> bytes:
    return encoded(pixels, "JPEG", quality=quality, subsampling=2)


def decoded(data: bytes) -> Pixels:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


TABLE = {
    ("astronaut", "q95"): 88.1, ("astronaut", "q90"): 85.0, ("astronaut", "swapped"): -63.1,
    (CHELSEA, "q95"): 90.6, (CHELSEA, "q90"): 86.5, (CHELSEA, "q75"): 77.0,
    (CHELSEA, "shifted"): 23.7, (CHELSEA, "swapped"): -27.4,
}  # fmt: skip


@pytest.mark.parametrize(("picture", "change"), TABLE)
def test_scores_are_those_of_the_measured_table_or_lower_the_other_way_round(picture: str, change: str) -> None:
    base = photo(picture)
    if change == "shifted":
        changed = np.roll(base, 1, axis=1)
    elif change == "swapped":
        changed = np.ascontiguousarray(base[..., ::-1])
    else:
        changed = decoded(jpeg(base, int(change[1:])))
    found = ssimulacra2(base, changed)
    assert TABLE[picture, change] - 1.5 < found < TABLE[picture, change] + 0.1
    assert ssimulacra2(changed, base) == found


def test_a_route_that_asks_gets_what_people_would_see_besides_the_tiles() -> None:
    base = photo("astronaut")
    plain, lossy = encoded(base), jpeg(base, 90)  # its lowest tile passes, its score of 83.8 does not
    assert judge_image(plain, lossy, ImageBands()).output_class is OutputClass.EQUIVALENT
    asked = ImageBands(lossy_ssimulacra2=85)
    found = judge_image(plain, lossy, asked)
    assert found.output_class is OutputClass.DIFFERENT
    assert found.diagnoses[0].code == "perceptible"
    assert found.numbers["ssimulacra2"] == pytest.approx(83.8, abs=0.3)
    assert judge_image(plain, jpeg(base, 95), asked).output_class is OutputClass.EQUIVALENT
    small = judge_image(encoded(base[:100, :100]), jpeg(base[:100, :100], 95), asked)
    assert "tiles alone" in small.note
    assert "ssimulacra2" not in small.numbers
