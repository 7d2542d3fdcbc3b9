"""Pictures made for the pages: small, upright, made anew, and honest about what cannot be drawn."""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image

from compare.dashboard.app import create_app
from compare.dashboard.pictures import (
    FULL_HEAT,
    MAX_PIXELS,
    THUMB_SIDE,
    VIEW_SIDE,
    describe_picture,
    render_difference,
    render_picture,
)
from compare.kernels.pixels import Pixels
from compare.policy import Kind
from compare.results import Results
from shadow.store.reader import Reader
from tests.compare.dashboard.filling import LATER, answer, ask, exchange, fill, route_policy, sample
from tests.compare.dashboard.serving import running


def encode(pixels: Pixels, form: str = "PNG", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form, **options)
    return buffer.getvalue()


def decode(png: bytes | None) -> Pixels:
    assert png is not None
    assert png.startswith(b"\x89PNG")
    with Image.open(io.BytesIO(png)) as image:
        return np.asarray(image.convert("RGB"))


def bomb() -> bytes:
    """A PNG whose header promises more pixels than are allowed; its pixels do not exist."""
    png = bytearray(encode(np.zeros((1, 1, 3), np.uint8)))
    side = int(MAX_PIXELS**0.5) + 1
    png[16:24] = side.to_bytes(4) + side.to_bytes(4)
    crc = zlib.crc32(bytes(png[12:29]))
    png[29:33] = crc.to_bytes(4)
    return bytes(png)


def test_a_thumbnail_is_upright_and_small() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    body = encode(sample("chelsea"), "JPEG", exif=exif)
    height, width, _ = decode(render_picture(body, THUMB_SIDE)).shape
    assert (width < height, max(width, height)) == (True, THUMB_SIDE)
    assert describe_picture(body) == ("JPEG", 300, 451)


def test_metadata_of_the_picture_is_not_passed_on() -> None:
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    png = render_picture(encode(sample("chelsea"), "JPEG", exif=exif), VIEW_SIDE)
    assert png is not None
    assert b"taken at home" not in png


@pytest.mark.parametrize(
    "body",
    [b"", b"no picture", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", bomb()],
    ids=["empty", "text", "svg", "bomb"],
)
def test_what_is_no_picture_of_an_allowed_size_is_not_drawn(body: bytes) -> None:
    assert describe_picture(body) is None
    assert render_picture(body, THUMB_SIDE) is None
    assert render_difference(body, body) is None


def test_a_cut_off_picture_is_not_drawn() -> None:
    body = encode(sample("astronaut"))
    assert render_picture(body[: len(body) // 2], THUMB_SIDE) is None


def test_the_heat_map_is_bright_exactly_where_the_pictures_differ() -> None:
    one = np.full((40, 60, 3), 90, np.uint8)
    other = one.copy()
    other[10:20, 30:40, 2] += FULL_HEAT
    bright = decode(render_difference(encode(one), encode(other))).max(axis=2) > 200
    expected = np.zeros((40, 60), bool)
    expected[10:20, 30:40] = True
    assert (bright == expected).all()


def test_equal_pictures_have_no_heat() -> None:
    body = encode(sample("astronaut"))
    heat = decode(render_difference(body, body)).astype(int)
    assert np.ptp(heat, axis=2).max() == 0


def test_a_small_fault_keeps_its_heat_in_a_large_picture() -> None:
    one = np.zeros((VIEW_SIDE * 2, VIEW_SIDE * 2, 3), np.uint8)
    other = one.copy()
    other[1001, 1001] = 255
    heat = decode(render_difference(encode(one), encode(other)))
    assert max(heat.shape) == VIEW_SIDE
    assert heat.max() > 200


def test_a_difference_of_alpha_alone_is_seen_and_hidden_colour_is_not() -> None:
    one = np.zeros((20, 20, 4), np.uint8)
    hidden, visible = one.copy(), one.copy()
    hidden[..., :3] = 200
    visible[5:10, 5:10, 3] = 255
    assert decode(render_difference(encode(one), encode(hidden))).max() < 30
    assert decode(render_difference(encode(one), encode(visible))).max() > 200


def test_pictures_of_different_sizes_have_no_heat_map() -> None:
    assert render_difference(encode(np.zeros((8, 8, 3), np.uint8)), encode(np.zeros((16, 16, 3), np.uint8))) is None


def test_an_erasers_mask_is_drawn_over_both_answers_and_audited(tmp_path: Path) -> None:
    picture, mask = encode(sample("astronaut")[:200, :200]), np.zeros((200, 200), np.uint8)
    mask[50:150, 60:120] = 255
    parts = (("image", picture), ("mask", encode(mask)))
    form = b"".join(
        b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), content)
        for name, content in parts
    )
    request = ask("/v1/erase", form + b"--x--\r\n", "multipart/form-data; boundary=x")
    answers = [answer(name, picture, "image/png", 0.3) for name in ("cloud", "onprem")]
    pair = exchange("erase", 0, request, *answers)
    url, bodies, seen = f"sqlite:///{tmp_path / 'store.db'}", tmp_path / "bodies", list[Mapping[str, object]]()
    fill(url, bodies, [pair])
    reader = Reader.open(url, bodies)
    policy = route_policy("erase", Kind.ERASE)
    app = create_app(reader, Results(reader.engine), [policy], audit=seen.append, now=lambda: LATER)
    try:
        with running(app) as address, httpx.Client(base_url=address, trust_env=False) as client:
            page = client.get(f"/pairs/{pair.id}", headers={"accept": "text/html"}).text
            assert page.count('<img class="outline"') == 2
            drawn = {role: client.get(f"/outlines/{pair.id}/{role}").content for role in ("primary", "shadow")}
    finally:
        reader.close()
    assert drawn["primary"] == drawn["shadow"]
    with Image.open(io.BytesIO(drawn["primary"])) as image:
        alpha = np.asarray(image.convert("RGBA"))[..., 3]
    assert alpha[100, 90] == alpha[10, 10] == 0, "inside and outside stay clear"
    assert all(alpha[place] for place in ((50, 90), (149, 90), (100, 60), (100, 119))), "each edge is drawn"
    assert [line["shown"] for line in seen] == ["outline", "outline"]
