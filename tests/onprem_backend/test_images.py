"""Decoding, without a server: every rule of ``onprem_backend.images``."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image, ImageFile
from PIL.PngImagePlugin import PngInfo

from compare.kernels.pixels import Picture as ComparedPicture
from compare.kernels.pixels import decode as decode_to_compare
from onprem_backend.images import Limits, decode, sniff
from onprem_backend.problems import Problem
from tests.onprem_backend.pictures import (
    LIMITS,
    chunk,
    half_red,
    noise,
    png,
    raw_png,
    save,
    srgb_profile,
    with_orientation,
)

RED, BLUE = (255, 0, 0), (0, 0, 255)
# Where a viewer shows the red half of ``half_red`` stored with this orientation: (row, column) of two corners.
RED_CORNERS = {
    1: ((0, 0), (-1, 0)),
    2: ((0, -1), (-1, -1)),
    3: ((0, -1), (-1, -1)),
    4: ((0, 0), (-1, 0)),
    5: ((0, 0), (0, -1)),
    6: ((0, 0), (0, -1)),
    7: ((-1, 0), (-1, -1)),
    8: ((-1, 0), (-1, -1)),
}


def code_of(data: bytes, limits: Limits = LIMITS) -> str:
    with pytest.raises(Problem) as caught:
        decode(data, limits)
    return caught.value.code


def compared(data: bytes) -> ComparedPicture:
    """The same file as the comparison decodes it, whose code is its own."""
    picture = decode_to_compare(data, LIMITS.max_pixels)
    assert isinstance(picture, ComparedPicture)
    return picture


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_i01_exif_orientation_is_applied(orientation: int, name: str) -> None:
    picture = decode(
        with_orientation(half_red(), orientation, name, **({} if name == "TIFF" else {"quality": 95})), LIMITS
    )
    assert picture.size == ((20, 40) if orientation >= 5 else (40, 20))
    for row, column in RED_CORNERS[orientation]:
        assert np.abs(picture.rgb[row, column].astype(int) - RED).max() < 40
        assert np.abs(picture.rgb[-1 - row, -1 - column].astype(int) - BLUE).max() < 40


@pytest.mark.parametrize("orientation", [0, 9, 700])
def test_i01_an_orientation_out_of_range_is_ignored(orientation: int) -> None:
    assert decode(with_orientation(half_red(), orientation), LIMITS).size == (40, 20)


def test_i01_an_orientation_that_is_a_text_is_ignored() -> None:
    told = with_orientation(half_red(), 6)
    as_text = told.replace(
        b"\x01\x12\x00\x03\x00\x00\x00\x01\x00\x06\x00\x00", b"\x01\x12\x00\x02\x00\x00\x00\x026\x00\x00\x00"
    )
    assert as_text != told
    assert decode(as_text, LIMITS).size == compared(as_text).size == (40, 20)


def without_adobe_marker(data: bytes) -> bytes:
    start = data.index(b"\xff\xee")
    return data[:start] + data[start + 2 + int.from_bytes(data[start + 2 : start + 4], "big") :]


def test_i02_cmyk_jpeg_is_red_not_cyan() -> None:
    data = save(Image.new("CMYK", (64, 64), (0, 255, 255, 0)), "JPEG")
    for variant in (data, without_adobe_marker(data)):
        mean = decode(variant, LIMITS).rgb.reshape(-1, 3).mean(axis=0)
        assert np.abs(mean - RED).max() < 6


def test_i04_palette_transparency_is_kept_and_hidden_red_never_shows() -> None:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([255, 0, 0, 0, 255, 0])
    image.paste(0, (0, 0, 4, 8))
    picture = decode(save(image, transparency=0), LIMITS)
    assert picture.alpha is not None
    assert picture.alpha[0, 0] == 0
    assert picture.alpha[0, 7] == 255
    assert tuple(picture.flattened()[0, 0]) == (255, 255, 255)
    assert tuple(picture.visible()[0, 0]) == (255, 255, 255)
    assert tuple(picture.flattened()[0, 7]) == (0, 255, 0)


def test_i04_grey_one_bit_and_keyed_pictures_become_three_channels() -> None:
    grey_alpha = decode(save(Image.new("LA", (5, 4), (90, 128))), LIMITS)
    assert tuple(grey_alpha.rgb[0, 0]) == (90, 90, 90)
    assert grey_alpha.alpha is not None
    assert grey_alpha.alpha[0, 0] == 128
    one_bit = decode(save(Image.new("1", (5, 4), 1)), LIMITS)
    assert tuple(one_bit.rgb[0, 0]) == (255, 255, 255)
    assert one_bit.alpha is None
    keyed = decode(save(half_red(), transparency=RED), LIMITS)
    assert keyed.alpha is not None
    assert (keyed.alpha[0, 0], keyed.alpha[0, -1]) == (0, 255)
    clear = decode(save(Image.new("RGBA", (5, 4), (255, 0, 0, 0))), LIMITS)
    assert tuple(clear.flattened()[0, 0]) == (255, 255, 255)


KEYED = {
    "2 bits": raw_png(4, 2, 0, [b"\x1b"], chunk(b"tRNS", b"\0\x03")),
    "4 bits": raw_png(4, 4, 0, [b"\x01\x7f"], chunk(b"tRNS", b"\0\x0f")),
    "16-bit colours": raw_png(
        4,
        16,
        2,
        [struct.pack(">12H", *range(0, 11 * 256, 256), 0x8000)],
        *[chunk(b"tRNS", struct.pack(">3H", 9 * 256, 10 * 256, 0x8000))],
    ),
    "16 bits": raw_png(4, 16, 0, [struct.pack(">4H", 0, 0x0102, 0x0304, 0x0103)], chunk(b"tRNS", b"\x01\x03")),
}


@pytest.mark.parametrize("depth", KEYED)
def test_i04_a_transparent_colour_is_found_in_every_depth(depth: str) -> None:
    for decoded in (decode(KEYED[depth], LIMITS).alpha, compared(KEYED[depth]).alpha):
        assert decoded is not None
        assert decoded[0].tolist() == [255, 255, 255, 0]


def tiff(values: list[int], kind: str, *tags: tuple[int, int]) -> bytes:
    """A TIFF of one row in its simplest form, little-endian; ``tags`` are short ones besides the usual."""
    data = b"".join(struct.pack("<" + kind, value) for value in values)
    usual = {256: len(values), 257: 1, 258: 8 * struct.calcsize(kind), 259: 1, 262: 1, 273: 8, 277: 1, 278: 1}
    every = sorted({**usual, 279: len(data), **dict(tags)}.items())
    entries = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in every)
    head = b"II*\0" + struct.pack("<I", 8 + len(data))
    return head + data + struct.pack("<H", len(every)) + entries + bytes(4)


BITS, PHOTOMETRIC, SAMPLE_FORMAT = 258, 262, 339


def test_i04_grey_of_more_bits_keeps_its_brightness() -> None:
    values = [0, 0x8000, 0xFFFF]
    twelve = tiff([0xFF, 0xF8, 0x00], "B", (256, 2), (BITS, 12))
    for data, expected in (
        (save(Image.fromarray(np.array([values], dtype=np.uint16))), [0, 128, 255]),
        (tiff(values, "H"), [0, 128, 255]),
        (tiff(values, "H", (PHOTOMETRIC, 0)), [255, 127, 0]),
        (twelve, [255, 128]),
    ):
        assert decode(data, LIMITS).rgb[0, :, 0].tolist() == expected
        assert np.abs(compared(data).rgb[0, :, 0].astype(int) - expected).max() <= 1


def test_i04_pixels_without_a_defined_range_are_refused() -> None:
    assert code_of(save(Image.new("F", (4, 4), 0.5), "TIFF")) == "unsupported_pixels"
    for kind, sample_format in (("i", 2), ("I", 1), ("h", 2), ("b", 2)):
        assert code_of(tiff([0, 1, 100], kind, (SAMPLE_FORMAT, sample_format))) == "unsupported_pixels"


@pytest.mark.parametrize("name", ["GIF", "WEBP", "PNG"])
def test_i05_the_first_frame_counts_and_the_number_is_told(name: str) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    picture = decode(save(frames[0], name, save_all=True, append_images=frames[1:], duration=50), LIMITS)
    assert picture.frames == 3
    assert np.abs(picture.rgb[4, 4].astype(int) - RED).max() < 12


def test_i05_what_the_first_frame_of_a_gif_leaves_free_is_transparent() -> None:
    data = bytearray(save(half_red(8, 8), "GIF"))
    whole = decode(bytes(data), LIMITS)
    data[6:10] = struct.pack("<HH", 12, 10)  # the canvas; the frame stays 8 x 8
    frame = data.index(b",\0\0\0\0\x08\0\x08\0")
    data[frame + 1 : frame + 5] = struct.pack("<HH", 4, 2)
    picture = decode(bytes(data), LIMITS)
    assert picture.size == (12, 10)
    assert picture.alpha is not None
    expected = np.zeros((10, 12), dtype=np.uint8)
    expected[2:, 4:] = 255
    assert np.array_equal(picture.alpha, expected)
    assert np.array_equal(picture.rgb[2:, 4:], whole.rgb)


def test_i05_the_number_of_frames_is_bounded() -> None:
    frames = [Image.new("L", (1, 1), i % 2 * 255) for i in range(1000)]
    data = save(frames[0], "GIF", save_all=True, append_images=frames[1:], optimize=False)
    assert decode(data, LIMITS).frames == 1000
    assert code_of(data, Limits(LIMITS.max_pixels, 999)) == "too_many_frames"
    pages = save(frames[0], "TIFF", save_all=True, append_images=frames[1:5])
    assert decode(pages, LIMITS).frames == 5
    assert code_of(pages, Limits(LIMITS.max_pixels, 4)) == "too_many_frames"


def test_i06_the_content_decides_about_the_format() -> None:
    heic = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(64)
    with pytest.raises(Problem) as caught:
        decode(heic, LIMITS)
    assert caught.value.status == 415
    assert "image/jpeg" in caught.value.extra["accepted"]
    avif = decode(save(half_red(), "AVIF", quality=95), LIMITS)
    assert avif.format == "AVIF"
    assert avif.size == (40, 20)


def swapped_profile() -> bytes:
    """An sRGB profile whose red and blue primaries are swapped: a matrix profile that is not sRGB."""
    data = bytearray(srgb_profile())
    tags = {bytes(data[i : i + 4]): i for i in range(132, 132 + 12 * struct.unpack_from(">I", data, 128)[0], 12)}
    for first, second in ((b"rXYZ", b"bXYZ"),):
        data[tags[first] : tags[first] + 4], data[tags[second] : tags[second] + 4] = second, first
    return bytes(data)


@pytest.mark.parametrize("name", ["JPEG", "PNG"])
def test_i07_an_embedded_profile_is_converted_to_srgb(name: str) -> None:
    options = {"quality": 95, "subsampling": 0} if name == "JPEG" else {}
    picture = decode(save(Image.new("RGB", (8, 8), BLUE), name, icc_profile=swapped_profile(), **options), LIMITS)
    assert np.abs(picture.rgb[4, 4].astype(int) - RED).max() < 4
    clear = Image.new("RGBA", (8, 8), (*BLUE, 77))
    with_alpha = decode(save(clear, icc_profile=swapped_profile()), LIMITS)
    assert with_alpha.alpha is not None
    assert with_alpha.alpha[0, 0] == 77
    assert tuple(with_alpha.rgb[4, 4]) == RED


def test_i07_a_linear_profile_is_converted_whatever_it_calls_itself() -> None:
    half = decode(save(Image.new("RGB", (8, 8), (128, 128, 128)), icc_profile=srgb_profile(gamma=1.0)), LIMITS)
    assert np.abs(half.rgb.astype(int) - 188).max() <= 1  # sRGB's curve at 128/255


def test_i07_srgb_itself_changes_no_bit_and_a_corrupt_profile_is_ignored() -> None:
    pixels = noise()
    for profile in (srgb_profile(), b"0123456789"):
        assert np.array_equal(decode(save(Image.fromarray(pixels), icc_profile=profile), LIMITS).rgb, pixels)


def test_i07_a_gamma_is_applied_where_there_is_no_profile() -> None:
    half = [bytes([128, 128, 128] * 2)] * 2
    gamma = {value: chunk(b"gAMA", struct.pack(">I", value)) for value in (100_000, 55_556, 45_455, 0)}
    expected = {100_000: 188, 55_556: 147, 45_455: 128, 0: 128}
    for value, told in gamma.items():
        data = raw_png(2, 8, 2, half, told)
        assert np.abs(decode(data, LIMITS).rgb.astype(int) - expected[value]).max() <= 1
        assert np.array_equal(decode(data, LIMITS).rgb, compared(data).rgb)
    for told in (chunk(b"sRGB", b"\0"), chunk(b"iCCP", b"n\0\0" + zlib.compress(srgb_profile()))):
        data = raw_png(2, 8, 2, half, told, gamma[100_000])
        assert (decode(data, LIMITS).rgb == 128).all()
        assert (compared(data).rgb == 128).all()


def damaged_files() -> dict[str, bytes]:
    pixels = noise()
    whole = {
        name: save(Image.fromarray(pixels), name) for name in ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF")
    }
    files = {f"half a {name}": data[: len(data) // 2] for name, data in whole.items()}
    data = bytearray(whole["PNG"])
    data[data.index(b"IDAT") + 40] ^= 0xFF
    files["a flipped bit in IDAT"] = bytes(data)
    data = bytearray(whole["PNG"])
    data[-16] ^= 0xFF  # the last byte of the IDAT chunk's CRC
    files["a bad CRC"] = bytes(data)
    ends_early = {"all at once": 0, "in passes": 1}
    for way, interlace in ends_early.items():
        header = struct.pack(">IIBBBBB", 64, 64, 8, 2, 0, 0, interlace)
        packed = zlib.compress(bytes([0, *range(1, 193)]) * 32)
        files[f"PNG data that ends early but in order, {way}"] = whole["PNG"][:8] + b"".join(
            chunk(kind, body) for kind, body in ((b"IHDR", header), (b"IDAT", packed), (b"IEND", b""))
        )
    files["a palette that is not there"] = raw_png(3, 8, 3, [bytes([0, 1, 2])])
    avif = whole["AVIF"]
    files["an AVIF whose picture is missing"] = avif.replace(b"av01", b"av02")
    files["only a PNG signature"] = whole["PNG"][:8]
    files["only a GIF signature"] = b"GIF89a"
    files["only a TIFF signature"] = b"II*\x00"
    return files


@pytest.mark.parametrize("kind", damaged_files())
def test_i08_a_truncated_or_damaged_file_is_refused(kind: str) -> None:
    with pytest.raises(Problem) as caught:
        decode(damaged_files()[kind], LIMITS)
    assert caught.value.code == "damaged_image"
    assert " object at " not in caught.value.detail  # nor is anything of the process told
    assert ImageFile.LOAD_TRUNCATED_IMAGES is False


@pytest.mark.parametrize("data", [b"hello", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.7\n", bytes(100)])
def test_i09_what_is_not_a_picture_is_refused(data: bytes) -> None:
    assert sniff(data) is None
    assert code_of(data) == "unsupported_format"
    assert code_of(b"") == "empty_body"


def test_i08_a_black_foot_is_not_taken_for_missing_pixels() -> None:
    pixels = noise()
    pixels[20:] = 0
    for data in (png(pixels), raw_png(64, 8, 2, [row.tobytes() for row in pixels])):
        assert np.array_equal(decode(data, LIMITS).rgb, pixels)


def test_i09_junk_after_a_picture_is_ignored() -> None:
    assert np.array_equal(decode(png(noise()) + bytes(1 << 20), LIMITS).rgb, noise())


def test_size_is_checked_from_the_header_before_decoding() -> None:
    for side in (10_000, 30_000):
        header = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        bomb = png(noise(8, 8))[:12] + header + struct.pack(">I", zlib.crc32(header)) + png(noise(8, 8))[33:]
        assert code_of(bomb) == "too_many_pixels"
    assert code_of(png(noise(20, 10)), Limits(max_pixels=199, max_frames=1)) == "too_many_pixels"
    assert decode(png(noise(20, 10)), Limits(max_pixels=200, max_frames=1)).size == (20, 10)


def test_a_bomb_in_a_text_chunk_is_refused() -> None:
    info = PngInfo()
    info.add_text("k", "x" * (8 << 20), zip=True)
    assert code_of(save(Image.new("RGB", (4, 4)), pnginfo=info)) == "damaged_image"


def test_decoded_arrays_can_be_written_to() -> None:
    picture = decode(save(Image.new("RGBA", (4, 4), (1, 2, 3, 4))), LIMITS)
    assert picture.alpha is not None
    assert picture.rgb.flags.writeable
    assert picture.alpha.flags.writeable
