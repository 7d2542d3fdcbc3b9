"""Uploads of every kind, over a real socket: what is valid is served, the rest is a 4xx with a code, never a 500."""

from __future__ import annotations

import base64
import logging
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from onprem_backend.forms import parse_form
from onprem_backend.problems import Problem
from tests.onprem_backend.pictures import SAMPLES, array, half_red, load, noise, png, save, with_orientation

HEIC = b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic" + bytes(64)
PATHS = ("/v1/classify", "/v1/remove-background", "/v1/face-blur", "/v1/restore", "/v1/erase")


def problem(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == response.status_code
    return response.status_code, response.json()["code"]


def test_i01_every_answer_is_upright_and_without_orientation(client: httpx.Client) -> None:
    turned = with_orientation(half_red(), 6, quality=95, subsampling=0)
    image = load(client.post("/v1/face-blur", content=turned).content)
    assert image.size == (20, 40)
    assert image.getexif().get(0x0112) is None
    assert np.asarray(image)[5, 10, 0] > 200
    mask = np.zeros((40, 20), dtype=np.uint8)
    mask[:4] = 255
    erased = client.post("/v1/erase", files={"file": turned, "mask": png(mask)})
    assert load(erased.content).size == (20, 40)
    stored_size = client.post("/v1/erase", files={"file": turned, "mask": png(mask.T)})
    assert problem(stored_size) == (422, "mask_size_mismatch")


def test_i02_cmyk_comes_back_as_rgb(client: httpx.Client) -> None:
    cmyk = save(Image.new("CMYK", (64, 64), (0, 255, 255, 0)), "JPEG")
    image = load(client.post("/v1/face-blur", content=cmyk).content)
    assert image.mode == "RGB"
    assert np.abs(np.asarray(image).reshape(-1, 3).mean(axis=0) - (255, 0, 0)).max() < 6


def test_i04_transparency_is_kept_where_the_format_has_it(client: httpx.Client) -> None:
    clear = save(Image.new("RGBA", (32, 32), (255, 0, 0, 0)))
    kept = load(client.post("/v1/face-blur", content=clear).content)
    assert kept.mode == "RGBA"
    assert not np.asarray(kept)[:, :, 3].any()
    flat = load(client.post("/v1/face-blur", content=clear, headers={"Accept": "image/jpeg"}).content)
    assert flat.getpixel((5, 5)) == (255, 255, 255)
    for image in (Image.new("LA", (32, 32), (9, 90)), Image.new("1", (32, 32)), Image.new("P", (32, 32))):
        for path in PATHS[:4]:
            assert client.post(path, content=save(image)).status_code == 200


def test_i05_an_animation_is_flagged(client: httpx.Client) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "green", "blue")]
    animation = save(frames[0], "GIF", save_all=True, append_images=frames[1:])
    response = client.post("/v1/face-blur", content=animation)
    assert response.headers["x-frames"] == "3"
    assert response.headers["content-type"] == "image/png"
    assert "x-frames" not in client.post("/v1/face-blur", content=save(frames[0])).headers


def test_i06_heic_is_refused_with_the_accepted_formats_whatever_its_name(client: httpx.Client) -> None:
    response = client.post("/v1/face-blur", files={"file": ("a.jpg", HEIC, "image/jpeg")})
    assert problem(response) == (415, "unsupported_format")
    assert "image/jpeg" in response.json()["accepted"]
    named_jpg = client.post("/v1/face-blur", files={"file": ("a.jpg", png(noise()), "image/jpeg")})
    assert named_jpg.headers["content-type"] == "image/png"
    assert client.post("/v1/face-blur", content=save(half_red(), "AVIF")).status_code == 200


def test_i08_truncated_files_are_refused_and_the_server_goes_on(client: httpx.Client) -> None:
    for whole in (save(Image.fromarray(noise()), "JPEG"), png(noise())):
        for path in PATHS[:4]:
            assert problem(client.post(path, content=whole[: len(whole) // 2])) == (422, "damaged_image")
    assert client.post("/v1/classify", content=png(noise())).status_code == 200


@pytest.mark.parametrize(
    ("content", "media_type", "expected"),
    [
        (b"", "image/png", (400, "empty_body")),
        (b"hello", "image/png", (415, "unsupported_format")),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml", (415, "unsupported_format")),
        (b"%PDF-1.7\n", "application/pdf", (415, "unsupported_format")),
    ],
)
def test_i09_what_is_no_picture_is_refused(
    client: httpx.Client, content: bytes, media_type: str, expected: tuple[int, str]
) -> None:
    assert problem(client.post("/v1/classify", content=content, headers={"Content-Type": media_type})) == expected


@pytest.mark.parametrize(
    "media_type", ["application/octet-stream", "text/plain", "application/x-www-form-urlencoded", None]
)
def test_i09_a_picture_is_accepted_under_any_media_type(client: httpx.Client, media_type: str | None) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    content = png(noise()) + bytes(1 << 20 if media_type is None else 0)
    assert client.post("/v1/classify", content=content, headers=headers).status_code == 200


def test_i17_a_mask_that_cannot_be_used_is_named_as_the_field(client: httpx.Client) -> None:
    for mask, expected in ((b"", (400, "empty_body")), (b"hello", (415, "unsupported_format"))):
        response = client.post("/v1/erase", files={"file": png(noise()), "mask": ("m.png", mask)})
        assert problem(response) == expected
        assert response.json()["field"] == "mask"
        assert response.json()["detail"].startswith("mask: ")


SHAPES = {
    "1x1": np.zeros((1, 1, 3), dtype=np.uint8),
    "1x4000": noise(1, 4000),
    "8000x2": noise(8000, 2),
    "7x7": noise(7, 7),
    "all black": np.zeros((40, 50, 3), dtype=np.uint8),
    "all white": np.full((40, 50, 3), 255, dtype=np.uint8),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("path", PATHS)
def test_i11_tiny_and_extreme_shapes_work_everywhere(client: httpx.Client, path: str, shape: str) -> None:
    pixels = SHAPES[shape]
    if path == "/v1/erase":
        mask = np.zeros(pixels.shape[:2], dtype=np.uint8)
        mask[0, : -(-mask.shape[1] // 2)] = 255 if mask.size > 1 else 0
        response = client.post(path, files={"file": png(pixels), "mask": png(mask)})
    else:
        response = client.post(path, content=png(pixels))
    assert response.status_code == 200
    if path != "/v1/classify":
        factor = 4 if path == "/v1/restore" else 1
        assert array(response.content).shape[:2] == (pixels.shape[0] * factor, pixels.shape[1] * factor)


def form(*parts: tuple[str, bytes], boundary: str = "XX", end: bool = True) -> dict[str, Any]:
    """A multipart body of (header lines after Content-Disposition's value, content)."""
    body = b"".join(
        f"--XX\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + content + b"\r\n"
        for head, content in parts
    )
    media_type = "multipart/form-data" + (f"; boundary={boundary}" if boundary else "")
    return {"content": body + (b"--XX--\r\n" if end else b""), "headers": {"Content-Type": media_type}}


@pytest.mark.parametrize(
    "head",
    [
        'name="file"; filename="写真.png"',
        "name=\"image\"; filename*=UTF-8''%E5%86%99.png",
        'name="file"; filename="../../etc/passwd"',
        'name="file"; filename="<img onerror>"',
        'name="file"; filename=""',
        'name="file"\r\nContent-Type: image/png',
    ],
)
def test_i17_file_names_never_matter(client: httpx.Client, head: str) -> None:
    response = client.post("/v1/classify", **form((head, png(noise()))))
    assert response.status_code == 200
    assert "onerror" not in response.text


FILE = 'name="file"; filename="a.png"'


def test_i17_what_stands_around_the_fields_says_nothing(client: httpx.Client) -> None:
    request = form((FILE, png(noise())))
    for before in (b"\r\n", b"This is a message in MIME format.\r\n\r\n", b"--XY\r\n"):
        around = {**request, "content": before + request["content"] + b"\r\nan epilogue"}
        assert client.post("/v1/classify", **around).status_code == 200


def test_i17_a_field_in_base64_is_decoded_and_an_unknown_encoding_named(client: httpx.Client) -> None:
    lines = base64.encodebytes(png(noise())).replace(b"\n", b"\r\n")
    head = FILE + "\r\nContent-Transfer-Encoding: "
    plain = client.post("/v1/classify", **form((FILE, png(noise()))))
    assert client.post("/v1/classify", **form((head + "BASE64", lines))).json() == plain.json()
    assert client.post("/v1/classify", **form((head + "binary", png(noise())))).json() == plain.json()
    assert problem(client.post("/v1/classify", **form((head + "base64", b"AAAAA")))) == (400, "malformed_form")
    refused = client.post("/v1/classify", **form((head + "x-uuencode", lines)))
    assert problem(refused) == (400, "malformed_form")
    assert "x-uuencode" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("request_", "expected", "field"),
    [
        (form(('name="other"; filename="a.png"', b"x")), (422, "missing_field"), "file"),
        (form((FILE, b"x"), (FILE, b"x")), (422, "duplicate_field"), "file"),
        (form((FILE, b"x"), ('name="image"; filename="a.png"', b"x")), (422, "duplicate_field"), "image"),
        (form(('name="image"', b"text")), (422, "not_a_file"), "image"),
        (form((FILE, b"x"), boundary=""), (400, "malformed_form"), None),
        (form((FILE, b"x"), end=False), (400, "malformed_form"), None),
        (form((FILE, b"x"), boundary="other"), (400, "malformed_form"), None),
        (form(*[(FILE, b"x")] * 17), (400, "malformed_form"), None),
        (form((FILE, b"")), (400, "empty_body"), None),
    ],
)
def test_i17_a_malformed_form_names_its_field(
    client: httpx.Client, request_: dict[str, Any], expected: tuple[int, str], field: str | None
) -> None:
    response = client.post("/v1/classify", **request_)
    assert problem(response) == expected
    assert response.json().get("field") == field


def test_too_many_bytes_or_pixels_are_refused_before_the_work(client: httpx.Client) -> None:
    large = bytes(32 * 1024 * 1024 + 1)
    assert problem(client.post("/v1/classify", content=large)) == (413, "body_too_large")
    assert problem(
        client.post("/v1/classify", content=(large[i : i + (1 << 20)] for i in range(0, len(large), 1 << 20)))
    ) == (
        413,
        "body_too_large",
    )
    wide = save(Image.new("1", (2001, 2000)))
    assert problem(client.post("/v1/restore", content=wide)) == (413, "too_many_pixels")


def test_errors_of_the_protocol_are_problems_too(client: httpx.Client) -> None:
    assert problem(client.get("/v1/classify")) == (405, "method_not_allowed")
    assert problem(client.get("/nowhere")) == (404, "not_found")
    unknown = client.post("/v1/face-blur?mode=pixels", content=png(noise()))
    assert problem(unknown) == (422, "unknown_option")
    assert unknown.json()["allowed"] == ["blur", "mosaic"]
    raw = client.post("/v1/erase", content=png(noise()))
    assert problem(raw) == (415, "form_required")
    absurd = client.post("/v1/face-blur", content=png(noise()), headers={"Accept": "text/html"})
    assert problem(absurd) == (406, "not_acceptable")


def test_an_accept_in_two_lines_is_one_list(client: httpx.Client) -> None:
    lines = [("Accept", "text/html"), ("Accept", "image/webp")]
    response = client.post("/v1/face-blur", content=png(noise()), headers=lines)
    assert response.headers["content-type"] == "image/webp"


def test_every_answer_names_model_server_and_timings(client: httpx.Client) -> None:
    response = client.post("/v1/face-blur", content=save(Image.fromarray(SAMPLES.astronaut()), "JPEG"))
    assert response.headers["server"] == "crossfade-onprem"
    assert response.headers["x-model"] == "centerface@09189dea torch"
    timings = dict(item.split(";dur=") for item in response.headers["server-timing"].split(", "))
    assert list(timings) == ["queue", "decode", "inference", "encode"]
    assert all(float(value) >= 0 for value in timings.values())
    assert client.get("/nowhere").headers.get_list("server") == ["crossfade-onprem"]


def test_no_byte_of_a_broken_form_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Problem):
        parse_form("multipart/form-data; boundary=b", b"--bsecret\r\n")
    assert not caplog.records
