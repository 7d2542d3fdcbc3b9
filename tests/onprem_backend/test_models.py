"""The genuine models on real pictures, through the server."""

from __future__ import annotations

import json
from collections.abc import Callable

import cv2
import httpx
import numpy as np
import pytest
import torch

from onprem_backend.cutout import load_u2netp
from onprem_backend.face_search import Boxes, Search
from onprem_backend.faces import hide_faces, load_centerface
from onprem_backend.images import Picture, Pixels
from onprem_backend.inpaint import erase, fill_lama
from onprem_backend.onnx_networks import load_network
from onprem_backend.runtime import Network, Runtime
from onprem_backend.sessions import Job
from tests.onprem_backend.pictures import SAMPLES, array, jpeg, load, noise, png

ASTRONAUT = SAMPLES.astronaut()
FACE_MASK = np.zeros(ASTRONAUT.shape[:2], dtype=np.uint8)
FACE_MASK[60:120, 190:260] = 255


def test_coffee_is_espresso_and_chelsea_is_a_cat(client: httpx.Client) -> None:
    coffee = client.post("/v1/classify", content=png(SAMPLES.coffee()))
    assert coffee.headers["x-model"] == "efficientnet-lite0@57934424 torch"
    predictions = coffee.json()["predictions"]
    assert len(predictions) == 5
    assert predictions[0]["label"] == "espresso"
    assert predictions[0]["prob"] > 0.8
    assert [p["prob"] for p in predictions] == sorted((p["prob"] for p in predictions), reverse=True)
    cat = client.post("/predict", content=png(SAMPLES.chelsea())).json()["predictions"]
    assert {p["label"] for p in cat[:3]} == {"Egyptian cat", "tabby", "tiger cat"}


@pytest.mark.parametrize("mode", ["blur", "mosaic"])
def test_the_astronaut_has_one_face_and_only_it_is_hidden(client: httpx.Client, mode: str) -> None:
    response = client.post(f"/v1/face-blur?mode={mode}", content=png(ASTRONAUT))
    assert response.headers["x-faces"] == "1"
    x1, y1, x2, y2, score = json.loads(response.headers["x-face-boxes"])[0]
    assert score > 0.8
    assert x1 < 205 < 245 < x2  # both eyes
    assert y1 < 100 < 160 < y2  # eyes and mouth
    changed = np.any(array(response.content) != ASTRONAUT, axis=2)
    rows, columns = np.nonzero(changed)
    assert 0.6 * (x2 - x1) < columns.max() - columns.min() < 1.4 * (x2 - x1)
    assert 0.6 * (y2 - y1) < rows.max() - rows.min() < 1.4 * (y2 - y1)
    assert changed[y1:y2, x1:x2].mean() > 0.9
    again = client.post("/v1/face-blur", content=response.content)
    assert again.headers["x-faces"] == "0"


def close_up() -> Pixels:
    return np.asarray(cv2.resize(ASTRONAUT[60:190, 175:280], (840, 1040), interpolation=cv2.INTER_CUBIC))


def thumbnail() -> Pixels:
    return np.asarray(cv2.resize(ASTRONAUT, (51, 51), interpolation=cv2.INTER_AREA))


def panorama() -> Pixels:
    return np.concatenate([np.full((512, 4000, 3), 60, np.uint8), ASTRONAUT, np.full((512, 4000, 3), 60, np.uint8)], 1)


def far_away() -> Pixels:
    pixels = np.full((1500, 2000, 3), (90, 120, 90), dtype=np.uint8)
    pixels[1300:1460, 1800:1960] = cv2.resize(ASTRONAUT, (160, 160), interpolation=cv2.INTER_AREA)
    return pixels


@pytest.mark.parametrize(
    ("make", "face"),
    [
        (close_up, (56, 0, 760, 944)),
        (panorama, (4182, 58, 4270, 178)),
        (far_away, (1857, 1318, 1884, 1355)),
        (thumbnail, (18, 6, 27, 18)),
    ],
)
def test_a_face_is_found_as_a_whole_whatever_share_of_the_picture_it_takes(
    client: httpx.Client, make: Callable[[], Pixels], face: tuple[int, int, int, int]
) -> None:
    (found,) = client.post("/v1/face-blur?output=boxes", content=png(make())).json()["faces"]
    box, wanted = np.array(found["box"]), np.array(face)
    both = np.stack([box, wanted])
    shared = (both[:, 2:].min(axis=0) - both[:, :2].max(axis=0)).clip(min=0).prod()
    areas = (both[:, 2:] - both[:, :2]).prod(axis=1)
    assert shared > 0.7 * (areas.sum() - shared)


@pytest.mark.parametrize("side", [1, 2, 5, 40, 400])
@pytest.mark.parametrize("mode", ["blur", "mosaic"])
def test_what_remains_of_a_face_does_not_depend_on_its_size(side: int, mode: str) -> None:
    pixels = noise(500, 500)
    hidden = hide_faces(pixels, pixels, np.array([[20, 20, 20 + side, 20 + side, 0.9]], dtype=np.float32), mode)
    edge = 20 + side // 10  # the corners of the box lie outside the ellipse
    middle = hidden[edge : 40 + side - edge, edge : 40 + side - edge].reshape(-1, 3)
    if mode == "mosaic":
        assert len(np.unique(middle, axis=0)) <= 64
    elif side == 400:
        assert middle.std() < 0.2 * pixels.std()


def find_faces(pixels: Pixels, network: Network) -> Boxes:
    search = Search(pixels, 960)
    return search.faces([output[0] for output in network(search.tensor[None])])


def test_the_engines_agree_about_faces(make_runtime: Callable[[str], Runtime]) -> None:
    path = make_runtime("torch").models_dir / "centerface.onnx"
    for pixels in (ASTRONAUT, ASTRONAUT[:300, 100:340]):
        found = [
            find_faces(pixels, load_network(path, make_runtime(engine), fixed_shape=None))
            for engine in ("torch", "onnxruntime")
        ]
        assert found[0].shape == found[1].shape == (1, 5)
        assert np.abs(found[0] - found[1]).max() < 0.05


def test_background_removal_agrees_between_the_engines(
    client: httpx.Client, make_runtime: Callable[[str], Runtime]
) -> None:
    response = client.post("/v1/remove-background", content=png(ASTRONAUT))
    assert response.headers["x-model"] == "u2netp@309c8469 torch"
    assert response.headers["content-type"] == "image/png"
    cut = array(response.content)
    assert np.array_equal(cut[:, :, :3], ASTRONAUT)
    assert cut[300, 250, 3] > 230  # the suit
    assert cut[20, 20, 3] < 20  # the flag behind
    other = load_u2netp(make_runtime("onnxruntime")).run(Job(Picture(ASTRONAUT))).picture
    assert other is not None
    assert other.alpha is not None
    assert np.abs(cut[:, :, 3].astype(int) - other.alpha).max() <= 2


def test_i13_erasing_changes_masked_pixels_only_and_keeps_alpha(client: httpx.Client) -> None:
    alpha = noise(512, 512, 1)
    files = {"image": png(np.dstack([ASTRONAUT, alpha])), "mask": png(FACE_MASK)}
    response = client.post("/v1/erase", files=files)
    assert response.headers["x-model"] == f"opencv-telea@{cv2.__version__} opencv"
    erased = array(response.content)
    outside = FACE_MASK == 0
    assert np.array_equal(erased[outside], np.dstack([ASTRONAUT, alpha])[outside])
    assert np.array_equal(erased[:, :, 3:], alpha)
    assert np.any(erased[~outside][:, :3] != ASTRONAUT[~outside], axis=1).mean() > 0.9


def test_i13_an_empty_mask_changes_nothing_and_a_full_one_is_refused(client: httpx.Client) -> None:
    nothing = client.post("/v1/erase", files={"file": png(ASTRONAUT), "mask": png(np.zeros_like(FACE_MASK))})
    assert np.array_equal(array(nothing.content), ASTRONAUT)
    as_jpeg = client.post("/v1/erase", files={"file": jpeg(ASTRONAUT), "mask": png(np.zeros_like(FACE_MASK))})
    assert as_jpeg.content == jpeg(ASTRONAUT)
    assert as_jpeg.headers["x-model"].startswith("opencv-telea@")
    everything = client.post("/v1/erase", files={"file": png(ASTRONAUT), "mask": png(np.full_like(FACE_MASK, 255))})
    assert (everything.status_code, everything.json()["code"]) == (422, "mask_covers_everything")
    missing = client.post("/v1/erase", files={"file": png(ASTRONAUT)})
    assert (missing.status_code, missing.json()["field"]) == (422, "mask")


def test_a_jpeg_without_a_face_comes_back_as_it_was(client: httpx.Client) -> None:
    cat = jpeg(SAMPLES.chelsea())
    response = client.post("/v1/face-blur", content=cat)
    assert response.headers["x-faces"] == "0"
    assert response.content == cat
    other = client.post("/v1/face-blur", content=cat, headers={"Accept": "image/png"})
    assert np.array_equal(array(other.content), array(cat))


def test_restored_pictures_are_four_times_as_large_and_look_the_same(client: httpx.Client) -> None:
    small = cv2.resize(ASTRONAUT, (96, 64), interpolation=cv2.INTER_AREA)
    for model in ("small", "x4plus"):
        response = client.post(f"/v1/restore?model={model}", content=jpeg(small))
        restored = load(response.content)
        assert (restored.size, restored.format) == ((384, 256), "JPEG")
        back = cv2.resize(np.asarray(restored), (96, 64), interpolation=cv2.INTER_AREA)
        assert np.abs(back.astype(int) - small).mean() < 12


def test_the_same_input_gives_the_same_output(client: httpx.Client) -> None:
    small = png(cv2.resize(ASTRONAUT, (64, 64), interpolation=cv2.INTER_AREA))
    for path in ("classify", "remove-background", "face-blur", "restore"):
        answers = {client.post(f"/v1/{path}", content=small).content for _ in range(3)}
        assert len(answers) == 1


def test_lama_is_padded_and_fills_the_mask_only() -> None:
    def network(image: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        assert image.shape[-2] % 8 == image.shape[-1] % 8 == 0
        return image * (1 - mask) + 0.5 * mask

    pixels, mask = noise(21, 13), np.zeros((13, 21), dtype=np.bool_)
    mask[3:9, 4:20] = True
    job = Job(Picture(pixels), mask)
    result = erase(job, lambda rgb, m: fill_lama(rgb, m, network, torch.device("cpu"))).picture
    assert result is not None
    assert np.array_equal(result.rgb[~mask], pixels[~mask])
    assert np.all(result.rgb[mask] == 128)


def test_a_face_session_takes_a_picture_of_any_size(make_runtime: Callable[[str], Runtime]) -> None:
    model = load_centerface(make_runtime("torch"))
    large = cv2.resize(ASTRONAUT, (2000, 2000), interpolation=cv2.INTER_CUBIC)
    assert model.run(Job(Picture(large), options={"mode": "blur"})).headers["X-Faces"] == "1"
