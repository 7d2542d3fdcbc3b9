"""Pictures: what is the same, what is the same to the eye, what is not, and what it looks like when it is not."""

from __future__ import annotations

import io
import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy.ndimage import gaussian_filter, uniform_filter
from skimage.metrics import structural_similarity

from compare.kernels.image import judge_image
from compare.kernels.pixels import Picture, Pixels, decode, read_orientation
from compare.kernels.scores import error_map, psnr_db, score, ssim_map, tile_means
from compare.measurement import Critical, Judgement, OutputClass
from compare.policy import ImageBands
from tests.compare.examples import encoded, photo, tagged
from tests.onprem_backend.pictures import save, srgb_profile

BANDS = ImageBands()


def judge(baseline: bytes, candidate: bytes, orientation: int | None = None) -> Judgement:
    return judge_image(baseline, candidate, BANDS, request_orientation=orientation)


def codes(judgement: Judgement) -> list[str]:
    return [d.code for d in judgement.diagnoses]


def noisy(pixels: Pixels) -> Pixels:
    steps = np.random.default_rng(1).integers(-1, 2, pixels.shape)
    result: Pixels = np.clip(pixels.astype(np.int16) + steps, 0, 255).astype(np.uint8)
    return result


def blurred(pixels: Pixels) -> Pixels:
    result = pixels.copy()
    for channel in range(3):
        result[100:180, 150:230, channel] = gaussian_filter(pixels[100:180, 150:230, channel].astype(np.float64), 8)
    return result


def test_psnr_and_ssim_match_the_published_numbers() -> None:
    camera = photo("camera")
    rough = np.clip(camera + 20 * np.random.default_rng(5).standard_normal(camera.shape), 0, 255).astype(np.uint8)
    assert psnr_db(camera[..., None], rough[..., None]) == pytest.approx(22.409353, abs=0.1)
    ours = score(camera[..., None], rough[..., None]).ssim
    theirs = structural_similarity(
        camera, rough, gaussian_weights=True, sigma=1.5, use_sample_covariance=False, data_range=255
    )  # type: ignore[no-untyped-call]
    assert ours == pytest.approx(theirs, abs=1e-4)
    assert ours == pytest.approx(0.358, abs=5e-3)


@pytest.mark.parametrize("shape", [(70, 45), (32, 32), (8, 300), (33, 64), (5, 5), (200, 31)])
def test_tiles_and_patches_in_strips_are_those_of_the_whole(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 256, (*shape, 3)).astype(np.uint8) for _ in range(2))
    errors = error_map(a, b)
    tiles, tops, lefts = tile_means(errors)
    whole = [[errors[y : y + 32, x : x + 32].mean() for x in lefts] for y in tops]
    np.testing.assert_allclose(tiles, whole, rtol=1e-5)
    found = score(a, b)
    assert found.tile_mae == pytest.approx(np.max(whole), rel=1e-5)
    assert found.patch_mae == pytest.approx(uniform_filter(errors, 8).max(), rel=1e-5)
    signed = a.astype(np.float32) - b
    bias = max(abs(signed[y : y + 32, x : x + 32].mean(axis=(0, 1))).max() for y in tops for x in lefts)
    assert found.tile_bias == pytest.approx(bias, rel=1e-4)


def test_a_patch_at_the_seam_of_two_strips_is_seen_as_in_the_whole() -> None:
    a = np.zeros((260, 12_000, 3), np.uint8)
    b = a.copy()
    seam = 1_500_000 // 12_000
    b[seam - 4 : seam + 4, 500:508] = 200
    found = score(a, b)
    assert found.patch_mae == 200
    assert psnr_db(a, b) == pytest.approx(10 * math.log10(255**2 / (200**2 * 64 / (260 * 12_000))), abs=1e-3)


def test_pictures_of_sixty_four_megapixels_are_within_the_cap_and_memory_stays_bounded() -> None:
    assert BANDS.max_pixels >= 8000 * 8000
    a = np.tile(photo("chelsea"), (10, 5, 1))
    b = a.copy()
    b[:100] = noisy(a[:100])
    tracemalloc.start()
    try:
        score(a, b)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    strip_bytes = 1_500_000 * 3 * 4 * 16
    assert peak < 13 * a.shape[0] * a.shape[1] + strip_bytes


def test_a_restored_picture_of_forty_megapixels_is_judged() -> None:
    a = np.zeros((5000, 8000, 3), np.uint8)
    a[::64] = 90
    b = a.copy()
    b[100, 100] = 4
    one, other = (encoded(side, compress_level=1) for side in (a, b))
    found = judge_image(one, other, BANDS, restore=True)
    assert found.output_class is OutputClass.EQUIVALENT


def test_the_ssim_map_in_strips_is_the_map_of_the_whole() -> None:
    a = np.tile(photo("chelsea"), (15, 2, 1))
    b = noisy(a)
    _, whole = structural_similarity(
        a.astype(np.float32), b.astype(np.float32), gaussian_weights=True, sigma=1.5, use_sample_covariance=False,
        data_range=255, channel_axis=-1, full=True,
    )  # type: ignore[no-untyped-call]  # fmt: skip
    strips = ssim_map(a, b)
    assert strips is not None
    assert strips.shape == a.shape[:2]
    np.testing.assert_allclose(strips, whole.mean(axis=-1), atol=2e-4)


# The measured table: PSNR, SSIM, worst tile's error, lowest tile's SSIM, on astronaut and on chelsea.
TABLE = {
    "q95": ({"quality": 95}, (38.3, 0.968, 5.5, 0.924), (41.3, 0.980, 2.5, 0.955)),
    "q90": ({"quality": 90}, (36.7, 0.957, 6.5, 0.908), (39.1, 0.969, 3.6, 0.921)),
    "q75": ({"quality": 75}, (34.0, 0.936, 9.6, 0.862), (36.0, 0.942, 5.8, 0.840)),
}


@pytest.mark.parametrize("name", TABLE)
def test_jpeg_scores_match_the_measured_table(name: str) -> None:
    options, *expected = TABLE[name]
    for picture, (psnr, ssim, error, tile) in zip(("astronaut", "chelsea"), expected, strict=True):
        candidate = decode(encoded(photo(picture), "JPEG", **options), BANDS.max_pixels)
        assert isinstance(candidate, Picture)
        found = score(photo(picture), candidate.pixels)
        assert found.psnr_db == pytest.approx(psnr, abs=0.06)
        assert found.ssim == pytest.approx(ssim, abs=0.0006)
        assert found.tile_mae == pytest.approx(error, abs=0.06)
        assert found.tile_ssim == pytest.approx(tile, abs=0.001)


def test_a_blurred_region_escapes_the_global_score_and_not_the_worst_tile() -> None:
    for picture in ("astronaut", "chelsea"):
        original = photo(picture)
        found = score(original, blurred(original))
        assert found.ssim is not None
        assert found.tile_ssim is not None
        assert found.ssim > 0.96
        assert found.tile_ssim < 0.4
        assert found.tile_mae > 25
        assert judge(encoded(original), encoded(blurred(original))).output_class is OutputClass.DIFFERENT


@pytest.mark.parametrize("picture", ["astronaut", "chelsea", "coffee", "rocket"])
def test_jpeg_at_95_with_full_colour_is_equivalent(picture: str) -> None:
    jpeg = encoded(photo(picture), "JPEG", quality=95, subsampling=0)
    assert judge(encoded(photo(picture)), jpeg).output_class is OutputClass.EQUIVALENT


def test_a_jpeg_at_90_on_a_busy_picture_is_named_re_encoding() -> None:
    rocket = photo("rocket")
    found = judge(encoded(rocket, "JPEG", quality=95, subsampling=0), encoded(rocket, "JPEG", quality=90))
    assert found.output_class is OutputClass.DIFFERENT
    assert codes(found) == ["reencoding"]
    assert "quality 90 with 4:2:0" in found.diagnoses[0].sentence
    lossless = judge(encoded(rocket), encoded(rocket, "JPEG", quality=90))
    assert lossless.numbers["tile_ssim"] == pytest.approx(0.765, abs=0.001)


def test_c01_different_sizes_are_never_equal_and_both_are_named() -> None:
    small, large = np.zeros((8, 8, 3), np.uint8), np.zeros((16, 16, 3), np.uint8)
    large[15, 15] = (255, 0, 0)
    cases = [(small, large), (np.zeros((100, 100, 3), np.uint8), np.zeros((101, 100, 3), np.uint8))]
    for a, b in cases:
        found = judge(encoded(a), encoded(b))
        assert found.output_class is not None
        assert found.output_class.mismatch
        assert found.critical is Critical.WRONG_SIZE
        sentence = next(d.sentence for d in found.diagnoses if d.code == "size")
        assert f"{a.shape[1]} x {a.shape[0]}" in sentence
        assert f"{b.shape[1]} x {b.shape[0]}" in sentence


@pytest.mark.parametrize("shape", [(6, 6), (1, 1), (4000, 5), (5, 4000), (7, 7)])
def test_c03_pictures_below_the_window_are_judged_by_pixel_differences(shape: tuple[int, int]) -> None:
    a = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    assert judge(encoded(a), encoded(a, compress_level=1)).output_class is OutputClass.IDENTICAL
    assert judge(encoded(a), encoded(noisy(a))).output_class is OutputClass.EQUIVALENT
    assert judge(encoded(a), encoded(255 - a)).output_class is OutputClass.DIFFERENT


def test_c03_grey_equals_rgb_of_the_same_values_and_constants_are_judged() -> None:
    grey = photo("chelsea")[..., 0]
    assert judge(encoded(grey), encoded(np.dstack([grey] * 3))).output_class is OutputClass.IDENTICAL
    flat = np.full((40, 40, 3), 128, np.uint8)
    assert judge(encoded(flat), encoded(flat + 1)).output_class is OutputClass.EQUIVALENT
    assert judge(encoded(flat), encoded(flat + 40)).output_class is OutputClass.DIFFERENT


def test_c03_one_corrupt_answer_of_fifty_costs_only_itself() -> None:
    good = encoded(photo("chelsea")[:64, :64])
    answers = [good] * 25 + [good[:200]] + [good] * 24
    found = [judge(good, answer) for answer in answers]
    assert sum(j.output_class is OutputClass.IDENTICAL for j in found) == 49
    assert found[25].critical is Critical.UNDECODABLE


def test_c17_the_same_pixels_in_different_bytes_are_identical() -> None:
    pixels = photo("chelsea")
    assert (
        judge(encoded(pixels, compress_level=1), encoded(pixels, compress_level=9)).output_class
        is OutputClass.IDENTICAL
    )


def test_c17_encoder_jitter_and_one_level_of_noise_are_within_tolerance() -> None:
    pixels = photo("astronaut")
    jpegs = [encoded(pixels, "JPEG", quality=quality, subsampling=0) for quality in (95, 94)]
    assert judge(jpegs[0], jpegs[1]).output_class is OutputClass.EQUIVALENT
    assert judge(encoded(pixels), encoded(noisy(pixels))).output_class is OutputClass.EQUIVALENT


@pytest.mark.parametrize("at", [(64, 64), (28, 28), (490, 731), (0, 992), (992, 992)])
def test_c17_an_eight_by_eight_inverted_block_is_found_wherever_it_is(at: tuple[int, int]) -> None:
    large = np.tile(photo("chelsea"), (4, 3, 1))[:1000, :1000]
    damaged = large.copy()
    block = (slice(at[0], at[0] + 8), slice(at[1], at[1] + 8))
    damaged[block] = 255 - damaged[block]
    assert judge(encoded(large), encoded(damaged)).output_class is OutputClass.DIFFERENT


def test_c17_a_shift_by_one_pixel_and_a_colour_swap_are_different_and_named() -> None:
    pixels = photo("astronaut")
    shifted = judge(encoded(pixels), encoded(np.roll(pixels, 1, axis=1)))
    swapped = judge(encoded(pixels), encoded(pixels[..., ::-1]))
    assert shifted.output_class is OutputClass.DIFFERENT
    assert "shifted by (1, 0)" in shifted.diagnoses[0].sentence
    assert swapped.output_class is OutputClass.DIFFERENT
    assert codes(swapped) == ["red_blue_swapped"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda x: np.rot90(x, 2), "rotated"),
        (lambda x: x[:, ::-1], "mirrored"),
        (lambda x: 255 - x, "inverted"),
        (lambda x: np.clip(x * 0.8 + 10, 0, 255), "levels"),
        (lambda x: 255 * (x / 255) ** 1.4, "gamma"),
        (lambda x: np.roll(x, (3, -2), (0, 1)), "shifted"),
    ],
)
def test_probes_name_what_was_done_to_a_picture(change: object, code: str) -> None:
    assert callable(change)
    pixels = photo("astronaut")
    assert codes(judge(encoded(pixels), encoded(np.ascontiguousarray(change(pixels)).astype(np.uint8))))[0] == code


@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_a_candidate_that_ignores_the_orientation_tag_is_named(orientation: int) -> None:
    upright = photo("chelsea")
    ignored = decode(tagged(upright, orientation), BANDS.max_pixels)
    assert isinstance(ignored, Picture)
    np.testing.assert_equal(ignored.size, (451, 300))
    stored = np.rot90(upright, {3: 2, 6: 1, 8: 3}[orientation])
    found = judge(encoded(upright), encoded(stored), orientation)
    assert codes(found)[0] == "orientation_ignored"
    assert (found.critical is Critical.WRONG_SIZE) == (orientation != 3)


def test_orientation_is_read_from_the_header_and_applied() -> None:
    assert read_orientation(tagged(photo("chelsea"), 6)) == 6
    assert read_orientation(encoded(photo("chelsea"))) == 1
    assert read_orientation(b"hello") is None


def test_an_undecodable_candidate_is_broken_and_critical_and_an_undecodable_baseline_is_not() -> None:
    good = encoded(photo("chelsea"))
    assert judge(good, b"<html>sorry</html>").critical is Critical.UNDECODABLE
    swapped = judge(b"<html>sorry</html>", good)
    assert swapped.output_class is OutputClass.BROKEN
    assert swapped.critical is None


def test_damage_within_the_pixels_of_a_candidate_is_seen_in_every_format() -> None:
    picture = photo("astronaut")
    for name, mark in (("PNG", b"IDAT"), ("AVIF", b"av01")):
        data = encoded(picture, name)
        place = data.index(mark) + (100 if name == "PNG" else 0)
        broken = data[:place] + bytes(4) + data[place + 4 :]
        assert judge(encoded(picture), broken).critical is Critical.UNDECODABLE


def test_sixteen_bit_and_cmyk_pictures_decode_to_rgb() -> None:
    buffer = io.BytesIO()
    Image.fromarray(photo("camera").astype(np.uint16) * 257).save(buffer, "PNG")
    found = decode(buffer.getvalue(), BANDS.max_pixels)
    assert isinstance(found, Picture)
    np.testing.assert_array_equal(found.rgb[..., 0], photo("camera"))
    buffer = io.BytesIO()
    Image.new("CMYK", (32, 32), (0, 255, 255, 0)).save(buffer, "JPEG")
    red = decode(buffer.getvalue(), BANDS.max_pixels)
    assert isinstance(red, Picture)
    assert np.abs(red.rgb.mean(axis=(0, 1)) - (255, 0, 0)).max() < 40


SMALL = st.tuples(st.integers(1, 24), st.integers(1, 24), st.integers(0, 2**32 - 1))


@settings(max_examples=40, deadline=None)
@given(SMALL, SMALL, st.booleans())
def test_the_class_is_symmetric_and_deterministic(
    first: tuple[int, int, int], second: tuple[int, int, int], alpha: bool
) -> None:
    a, b = (
        np.random.default_rng(seed).integers(0, 256, (height, width, 4 if alpha else 3)).astype(np.uint8)
        for height, width, seed in (first, second)
    )
    one, other = encoded(a), encoded(b)
    there, back, again = judge(one, other), judge(other, one), judge(one, other)
    assert there.output_class is back.output_class
    assert there == again


def test_a_profile_is_judged_by_what_it_does_not_by_its_name() -> None:
    pixels = photo("camera")[:64, :64]
    colours = np.dstack([pixels, pixels.T, 255 - pixels])
    linear = decode(save(Image.new("RGB", (8, 8), (128, 128, 128)), icc_profile=srgb_profile(gamma=1.0)), 100)
    named = decode(save(Image.fromarray(colours), icc_profile=srgb_profile()), 5000)
    assert isinstance(linear, Picture)
    assert isinstance(named, Picture)
    assert np.abs(linear.pixels.astype(int) - 188).max() <= 1  # sRGB's curve at 128/255
    assert np.array_equal(named.pixels, colours)


def animation(colours: list[int], **options: object) -> bytes:
    frames = [Image.fromarray(np.full((20, 30, 3), colour, np.uint8)) for colour in colours]
    buffer = io.BytesIO()
    frames[0].save(buffer, "GIF", save_all=True, append_images=frames[1:], **options)
    return buffer.getvalue()


def test_animations_are_compared_beyond_their_first_frame() -> None:
    base = animation([10, 60, 120])
    assert judge(base, animation([10, 60, 120], comment=b"x")).output_class is OutputClass.IDENTICAL
    other = judge(base, animation([10, 60, 200]))
    assert other.output_class is OutputClass.DIFFERENT
    assert other.note == "frame 3 differs"
    fewer = judge(base, animation([10, 60]))
    assert codes(fewer) == ["frames"]
    long = judge(animation(list(range(100))), animation(list(range(100)), comment=b"x"))
    assert long.output_class is OutputClass.IDENTICAL
    assert long.note == "only the first 64 frames were compared"


def test_an_animation_that_breaks_off_is_broken() -> None:
    base = animation([10, 60, 120, 180])
    found = judge(base, base[:-30] + b"\0" * 30)
    assert found.output_class in (OutputClass.BROKEN, OutputClass.DIFFERENT)


# The rest of the measured table: PSNR and SSIM of changes that are no encoding, on astronaut and on chelsea.
CHANGES: dict[str, tuple[Callable[[Pixels], Pixels], tuple[float, float], tuple[float, float]]] = {
    "noise of one level": (noisy, (50.1, 0.994), (49.9, 0.996)),
    "shift by one pixel": (lambda pixels: np.roll(pixels, 1, axis=1), (23.8, 0.831), (28.5, 0.830)),
    "red and blue swapped": (lambda pixels: pixels[..., ::-1], (12.5, 0.82), (13.6, 0.84)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_scores_of_other_changes_match_the_measured_table(name: str) -> None:
    change, *expected = CHANGES[name]
    for picture, (psnr, ssim) in zip(("astronaut", "chelsea"), expected, strict=True):
        found = score(photo(picture), change(photo(picture)))
        assert found.psnr_db == pytest.approx(psnr, abs=0.06)
        assert found.ssim == pytest.approx(ssim, abs=0.003)
