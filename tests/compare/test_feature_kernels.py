"""Cut-outs, blurred faces and erased areas."""

from __future__ import annotations

import numpy as np
from scipy.ndimage import gaussian_filter

from compare.kernels.cutout import judge_cutout
from compare.kernels.erase import judge_erase, read_mask
from compare.kernels.face_blur import Region, changed, judge_face_blur, match
from compare.kernels.pixels import Pixels
from compare.measurement import Critical, Judgement, OutputClass
from compare.policy import ImageBands
from tests.compare.examples import encoded, photo

BANDS = ImageBands()
FACE = (slice(60, 200), slice(160, 290))


def codes(judgement: Judgement) -> list[str]:
    return [d.code for d in judgement.diagnoses]


def cut(center: tuple[float, float] = (256, 230), radius: float = 150, hidden: int = 0) -> Pixels:
    """Return the astronaut cut out by a soft disc; ``hidden`` is the colour under full transparency."""
    y, x = np.mgrid[:512, :512]
    alpha = np.clip((radius - np.hypot(y - center[0], x - center[1])) * 40 + 128, 0, 255).astype(np.uint8)
    rgb = photo().copy()
    rgb[alpha == 0] = hidden
    return np.dstack([rgb, alpha])


def test_colour_under_full_transparency_does_not_count() -> None:
    assert judge_cutout(encoded(cut()), encoded(cut(hidden=200)), BANDS).output_class is OutputClass.IDENTICAL


def test_a_tiny_change_of_alpha_is_equivalent_and_another_outline_is_not() -> None:
    soft = cut()
    soft[..., 3] = np.clip(soft[..., 3].astype(int) + (soft[..., 3] > 0) * -1, 0, 255)
    assert judge_cutout(encoded(cut()), encoded(soft), BANDS).output_class is OutputClass.EQUIVALENT
    moved = judge_cutout(encoded(cut()), encoded(cut(radius=130)), BANDS)
    assert moved.output_class is OutputClass.DIFFERENT
    assert "mask" in codes(moved)


def test_a_small_hole_in_a_large_mask_is_found() -> None:
    holed = cut()
    holed[250:270, 220:240, 3] = 0
    assert judge_cutout(encoded(cut()), encoded(holed), BANDS).output_class is OutputClass.DIFFERENT


def test_a_cut_out_without_alpha_is_broken_and_critical() -> None:
    found = judge_cutout(encoded(cut()), encoded(photo()), BANDS)
    assert found.output_class is OutputClass.BROKEN
    assert found.critical is Critical.BROKEN_SCHEMA
    assert codes(found)[0] == "alpha_missing"


def test_swapped_colours_in_a_cut_out_are_named() -> None:
    swapped = cut()[..., [2, 1, 0, 3]]
    found = judge_cutout(encoded(cut()), encoded(swapped), BANDS)
    assert found.output_class is OutputClass.DIFFERENT
    assert codes(found)[0] == "red_blue_swapped"


def test_an_empty_cut_out_on_both_sides_agrees() -> None:
    empty = np.zeros((40, 40, 4), np.uint8)
    other = empty.copy()
    other[0, 0, 3] = 1
    assert judge_cutout(encoded(empty), encoded(other), BANDS).output_class is OutputClass.EQUIVALENT


def anonymised(sigma: float = 12, areas: tuple[tuple[slice, slice], ...] = (FACE,)) -> Pixels:
    result = photo().copy()
    for area in areas:
        for channel in range(3):
            result[(*area, channel)] = gaussian_filter(photo()[(*area, channel)].astype(np.float64), sigma)
    return result


def jpeg(pixels: Pixels) -> bytes:
    return encoded(pixels, "JPEG", quality=95, subsampling=0)


def test_a_face_that_only_the_baseline_blurred_is_missed_and_critical() -> None:
    source = encoded(photo(), "JPEG", quality=92)
    found = judge_face_blur(source, jpeg(anonymised()), jpeg(photo()), BANDS)
    assert found.output_class is OutputClass.DIFFERENT
    assert found.critical is Critical.MISSED_FACE
    assert codes(found)[0] == "missed_face"
    assert found.numbers["missed"] == 1


def test_two_blurs_of_the_same_face_agree_and_an_extra_region_is_minor() -> None:
    source = encoded(photo(), "JPEG", quality=92)
    same = judge_face_blur(source, jpeg(anonymised(12)), jpeg(anonymised(12.2)), BANDS)
    assert same.output_class is OutputClass.EQUIVALENT
    assert same.numbers["missed"] == 0
    extra = judge_face_blur(source, jpeg(photo()), jpeg(anonymised()), BANDS)
    assert extra.critical is None
    assert codes(extra)[0] == "extra_region"


def test_a_much_weaker_blur_is_said() -> None:
    found = judge_face_blur(encoded(photo()), encoded(anonymised(12)), encoded(anonymised(1.2)), BANDS)
    assert found.critical is None
    assert "weaker_blur" in codes(found)


def test_a_close_up_whose_face_only_the_baseline_blurred_is_missed_and_critical() -> None:
    close, y = photo()[40:240, 130:330], np.arange(200)
    inside = np.hypot(y[:, None] - 100, y - 100) < 96
    hidden = close.copy()
    hidden[inside] = np.stack([gaussian_filter(close[..., c].astype(np.float64), 25) for c in range(3)], -1)[inside]
    hidden[inside] = hidden[inside] // 2
    found = judge_face_blur(encoded(close), encoded(hidden), encoded(close), BANDS)
    assert changed(close, hidden).mean() > 0.6
    assert found.critical is Critical.MISSED_FACE
    both = judge_face_blur(encoded(close), encoded(hidden), encoded(np.maximum(hidden, 1)), BANDS)
    assert both.critical is None


def test_one_of_two_faces_missed_is_critical() -> None:
    both = (FACE, (slice(300, 420), slice(60, 180)))
    found = judge_face_blur(encoded(photo()), encoded(anonymised(12, both)), encoded(anonymised()), BANDS)
    assert found.critical is Critical.MISSED_FACE
    assert found.numbers["regions_baseline"] == 2
    assert found.numbers["missed"] == 1


def test_swapped_colours_are_no_missed_face() -> None:
    found = judge_face_blur(encoded(photo()), encoded(anonymised()), encoded(anonymised()[..., ::-1]), BANDS)
    assert found.critical is None
    assert codes(found)[0] == "red_blue_swapped"


def test_without_the_input_faces_are_not_judged_and_it_is_said() -> None:
    found = judge_face_blur(None, jpeg(anonymised(12)), jpeg(anonymised(12.2)), BANDS)
    assert found.output_class is OutputClass.EQUIVALENT
    assert "no input" in found.note


def test_matching_is_the_best_assignment_of_regions_that_overlap_enough() -> None:
    near, far = Region(0, 0, 10, 10), Region(50, 50, 10, 10)
    assert match([near, far], [Region(51, 50, 10, 10), Region(1, 0, 10, 10)], 0.5) == {0: 1, 1: 0}
    assert match([near], [Region(8, 8, 10, 10)], 0.5) == {}
    assert match([], [near], 0.5) == {}


AREA = (slice(300, 380), slice(100, 200))


def mask() -> bytes:
    drawn = np.zeros((512, 512), np.uint8)
    drawn[AREA] = 255
    return encoded(drawn)


def erased(filling: Pixels | int) -> Pixels:
    result = photo().copy()
    result[AREA] = filling
    return result


def test_fillings_may_differ_a_little_and_the_outside_may_not() -> None:
    smooth = gaussian_filter(photo()[AREA].astype(np.float64), (3, 3, 0)).astype(np.uint8)
    nearly = gaussian_filter(photo()[AREA].astype(np.float64), (2.5, 2.5, 0)).astype(np.uint8)
    fine = judge_erase(mask(), encoded(erased(smooth)), encoded(erased(nearly)), BANDS)
    assert fine.output_class is OutputClass.EQUIVALENT
    touched = erased(smooth)
    touched[10:60, 10:60] = 0
    outside = judge_erase(mask(), encoded(erased(smooth)), encoded(touched), BANDS)
    assert outside.output_class is OutputClass.DIFFERENT
    assert "outside_mask" in codes(outside)


def test_a_wildly_different_filling_asks_for_a_person() -> None:
    rough = np.random.default_rng(0).integers(0, 256, (80, 100, 3)).astype(np.uint8)
    found = judge_erase(mask(), encoded(erased(90)), encoded(erased(rough)), BANDS)
    assert codes(found) == ["inside_mask"]


def test_masks_in_alpha_are_read_and_masks_of_another_size_are_not() -> None:
    stroke = np.zeros((512, 512, 4), np.uint8)
    stroke[(*AREA, 3)] = 255
    area = read_mask(encoded(stroke), (512, 512), BANDS.max_pixels)
    assert area is not None
    assert area.sum() == 80 * 100
    assert read_mask(encoded(stroke), (512, 500), BANDS.max_pixels) is None
    note = judge_erase(None, encoded(erased(90)), encoded(erased(91)), BANDS).note
    assert "no usable mask" in note
