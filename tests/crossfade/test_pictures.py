"""The demo's uploads: all different, the same for the same seed, and every awkward form among them."""

from __future__ import annotations

import io
from collections import Counter

import pytest
from PIL import Image

from crossfade.demo.pictures import ORIENTATION_TAG, Upload, uploads

ROUTES = ("classify", "remove-background", "face-blur", "restore")


def form(upload: Upload) -> str:
    with Image.open(io.BytesIO(upload.body)) as picture:
        orientation = picture.getexif().get(ORIENTATION_TAG, 1)
        return f"{picture.format} {picture.mode} {orientation}"


@pytest.mark.parametrize("route", ROUTES)
def test_every_route_sees_every_awkward_form(route: str) -> None:
    forms = Counter(form(upload) for upload in uploads(route, 60))
    assert forms["JPEG RGB 6"] + forms["JPEG RGB 8"] == 15
    assert {"JPEG RGB 6", "JPEG RGB 8", "JPEG CMYK 1", "PNG RGBA 1", "PNG I;16 1", "PNG RGB 1"} <= set(forms)


@pytest.mark.parametrize("route", [*ROUTES, "erase"])
def test_uploads_are_all_different_and_repeat_with_the_seed(route: str) -> None:
    first = [upload.body for upload in uploads(route, 60)]
    assert len(set(first)) == 60
    assert first == [upload.body for upload in uploads(route, 60)]
    assert first != [upload.body for upload in uploads(route, 60, seed=8)]


def test_turned_pictures_are_not_square() -> None:
    for upload in uploads("face-blur", 60):
        if "orientation" in upload.name:
            with Image.open(io.BytesIO(upload.body)) as picture:
                assert picture.width != picture.height
