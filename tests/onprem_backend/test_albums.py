"""Albums over a real socket: one request, one line per picture, shared batches, and nothing hostile comes through."""

from __future__ import annotations

import base64
import io
import json
import socket
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from onprem_backend.settings import Settings
from tests.onprem_backend.pictures import SAMPLES, array, jpeg, noise, png
from tests.onprem_backend.processes import running_app
from tests.onprem_backend.scripted_models import (
    BATCH_SPEC,
    FAIL,
    HANG,
    OBEY,
    OUT_OF_MEMORY,
    OVERFLOW,
    SPEC,
    command_picture,
)
from tests.onprem_backend.test_failures import wait_for_idle

ASTRONAUT = SAMPLES.astronaut()[:256, :256]
CHELSEA = SAMPLES.chelsea()[:256, :256]


def zipped(*entries: tuple[str, bytes], way: int = zipfile.ZIP_DEFLATED) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", way) as archive:
        for name, content in entries:
            archive.writestr(zipfile.ZipInfo(name), content, way)
    return target.getvalue()


def form(*pictures: bytes, masks: Sequence[bytes] = ()) -> list[tuple[str, tuple[str, bytes, str]]]:
    files = [("file", (f"{index}.png", content, "image/png")) for index, content in enumerate(pictures)]
    return files + [("mask", ("m.png", content, "image/png")) for content in masks]


def lines(response: httpx.Response) -> list[dict[str, Any]]:
    """The pictures' lines in the order of the album; the last line has been checked."""
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/x-ndjson"
    *results, last = (json.loads(line) for line in response.text.splitlines())
    assert last == {"done": True, "pictures": len(results), "failed": sum("problem" in r for r in results)}
    return sorted(results, key=lambda line: int(line["index"]))


def test_each_picture_of_an_album_is_answered_as_it_would_be_alone(client: httpx.Client) -> None:
    pictures = [png(ASTRONAUT), jpeg(CHELSEA), png(noise(90, 60))]
    for feature in ("remove-background", "face-blur?mode=mosaic", "restore"):
        path, _, query = feature.partition("?")
        album = lines(client.post(f"/v1/batch/{feature}", files=form(*pictures)))
        assert [line["name"] for line in album] == ["0.png", "1.png", "2.png"]
        for picture, line in zip(pictures, album, strict=True):
            alone = client.post(f"/v1/{path}?{query}", content=picture)
            assert line["media_type"] == alone.headers["content-type"]
            assert base64.b64decode(line["body"]) == alone.content
            assert line["headers"]["x-model"] == alone.headers["x-model"]
            assert line["headers"].get("x-faces") == alone.headers.get("x-faces")


def test_a_zip_is_an_album_and_one_bad_picture_fails_alone(client: httpx.Client) -> None:
    album = zipped(("cat.png", png(CHELSEA)), ("a/notes.txt", b"hello"), ("写真.jpg", jpeg(ASTRONAUT)), ("empty/", b""))
    good, bad, other = lines(client.post("/v1/batch/classify?k=2", content=album))
    assert len(good["document"]["predictions"]) == 2
    assert "cat" in good["document"]["predictions"][0]["label"] + good["document"]["predictions"][1]["label"]
    assert (bad["name"], bad["status"], bad["problem"]["code"]) == ("a/notes.txt", 415, "unsupported_format")
    assert (other["name"], other["status"]) == ("写真.jpg", 200)


def test_masks_belong_to_their_pictures(client: httpx.Client) -> None:
    masks = [np.zeros((256, 256), dtype=np.uint8) for _ in range(2)]
    masks[0][10:20, 10:20] = masks[1][100:120, 50:90] = 255
    pictures = (ASTRONAUT, CHELSEA)

    def check(album: list[dict[str, Any]], used: list[Any]) -> None:
        for pixels, mask, line in zip(pictures, used, album, strict=True):
            erased = array(base64.b64decode(line["body"]))
            assert np.array_equal(erased[mask == 0], pixels[mask == 0])
            assert np.any(erased[mask > 0] != pixels[mask > 0])

    files = [png(pixels) for pixels in pictures]
    both = form(*files, masks=[png(mask) for mask in masks])
    check(lines(client.post("/v1/batch/erase", files=both)), masks)
    check(lines(client.post("/v1/batch/erase", files=form(*files, masks=[png(masks[0])]))), [masks[0]] * 2)
    pairs = [("a.png", files[0]), ("b.png", files[1]), ("masks/a.png", png(masks[0])), ("masks/b.png", png(masks[1]))]
    check(lines(client.post("/v1/batch/erase", content=zipped(*pairs))), masks)
    alone, lost = lines(client.post("/v1/batch/erase", content=zipped(*pairs[:3])))
    assert (alone["status"], lost["problem"]["code"]) == (200, "missing_field")
    odd = client.post("/v1/batch/erase", files=form(*files, *files, masks=[png(mask) for mask in masks]))
    assert (odd.status_code, odd.json()["field"]) == (422, "mask")


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with small limits and a batch model that obeys its pictures."""
    settings = Settings(
        models_dir=tmp_path_factory.mktemp("models"),
        device="cpu",
        pool_size=1,
        batch_delay_s=0.2,
        max_album_pictures=6,
        max_album_bytes=200_000,
        max_body_bytes=60_000,
    )
    with running_app(settings, [BATCH_SPEC]) as address, httpx.Client(base_url=address, timeout=30) as http:
        yield http


NAMES = ("/etc/passwd", "../up.png", "a/../../up.png", "C:/x.png", "a\\b.png", "new\nline.png")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_leads_out_condemns_the_album(strict: httpx.Client, name: str) -> None:
    response = strict.post("/v1/batch/face-blur", content=zipped(("a.png", b"x"), (name, b"x")))
    assert (response.status_code, response.json()["code"]) == (422, "unsafe_name")
    assert name not in response.text


def lying(content: bytes) -> bytes:
    """A zip whose entry announces four bytes (central directory, offset 24) and holds more."""
    archive = bytearray(zipped(("a.png", content)))
    central = archive.index(b"PK\x01\x02")
    archive[central + 24 : central + 28] = (4).to_bytes(4, "little")
    return bytes(archive)


@pytest.mark.parametrize(
    ("album", "status", "code"),
    [
        (zipped(*((f"{n}.png", bytes(50_000)) for n in range(5))), 413, "body_too_large"),
        (zipped(*((f"{n}.png", b"x") for n in range(7))), 413, "too_many_pictures"),
        (zipped(("a/", b"")), 422, "missing_field"),
        (zipped(("a.png", b"x"))[:-30], 400, "malformed_zip"),
        (b"hello", 415, "album_required"),
        (bytes(200_001), 413, "body_too_large"),
    ],
)
def test_an_album_is_bounded_before_anything_is_unpacked(
    strict: httpx.Client, album: bytes, status: int, code: str
) -> None:
    response = strict.post("/v1/batch/face-blur", content=album)
    assert (response.status_code, response.json()["code"]) == (status, code)


def test_an_entry_that_is_too_large_or_lies_fails_alone(strict: httpx.Client) -> None:
    good = ("good.png", png(command_picture(OBEY)))
    large, fine = lines(strict.post("/v1/batch/face-blur", content=zipped(("bomb.png", bytes(60_001)), good)))
    assert (large["problem"]["code"], fine["status"]) == ("body_too_large", 200)
    (liar,) = lines(strict.post("/v1/batch/face-blur", content=lying(png(noise()))))
    assert liar["problem"]["code"] == "damaged_image"
    two = bytearray(zipped(("a.png", png(noise())), good, way=zipfile.ZIP_STORED))
    two[60] ^= 0xFF
    broken, fine = lines(strict.post("/v1/batch/face-blur", content=bytes(two)))
    assert (broken["problem"]["code"], fine["status"]) == ("damaged_image", 200)


def batches(http: httpx.Client) -> tuple[float, float]:
    """How many runs there were, and how many pictures in all of them."""
    values = {}
    for line in http.get("/metrics").text.splitlines():
        if line.startswith(("onprem_batch_size_count", "onprem_batch_size_sum")):
            name, _, value = line.partition("{")
            values[name] = float(value.rpartition(" ")[2])
    return values["onprem_batch_size_count"], values["onprem_batch_size_sum"]


def test_the_pictures_of_an_album_share_batches(strict: httpx.Client) -> None:
    lines(strict.post("/v1/batch/face-blur", files=form(png(command_picture(OBEY)))))
    before = batches(strict)
    album = lines(strict.post("/v1/batch/face-blur", files=form(*[png(command_picture(OBEY))] * 4)))
    runs, pictures = (after - then for after, then in zip(batches(strict), before, strict=True))
    assert [line["headers"]["x-model"] for line in album] == [album[0]["headers"]["x-model"]] * 4
    assert pictures == 4
    assert runs <= 2


@pytest.mark.parametrize(
    ("command", "code"), [(FAIL, "inference_failed"), (OUT_OF_MEMORY, None), (OVERFLOW, "inference_failed")]
)
def test_a_batch_that_fails_costs_its_culprit_only(strict: httpx.Client, command: int, code: str | None) -> None:
    pictures = [png(command_picture(value)) for value in (OBEY, command, OBEY)]
    album = lines(strict.post("/v1/batch/face-blur", files=form(*pictures)))
    assert [line["status"] for line in album] == [200, 500 if code else 200, 200]
    assert album[1].get("problem", {}).get("code") == code


def test_a_client_that_leaves_stops_its_album_within_a_second(tmp_path: Path) -> None:
    settings = Settings(models_dir=tmp_path, device="cpu", pool_size=1)
    with running_app(settings, [SPEC]) as address, httpx.Client(base_url=address) as http:
        host, _, port = address.removeprefix("http://").partition(":")
        body = zipped(*((f"{n}.png", png(command_picture(HANG))) for n in range(5)))
        head = f"POST /v1/batch/face-blur HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + body)
            wait_for_idle(http, 0, 5.0)
        wait_for_idle(http, 1, 1.0)
        assert "onprem_upload_bytes 0.0" in http.get("/metrics").text
