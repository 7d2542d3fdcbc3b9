"""What each function takes and gives beyond the plain case: options, and models known by their file."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch

from onprem_backend.catalog import SPECS
from onprem_backend.cutout import ISNET, U2NET, Variant, load_variant
from onprem_backend.face_restore import with_noise
from onprem_backend.images import Picture
from onprem_backend.ncnn import load_ncnn_weights
from onprem_backend.options import check_options
from onprem_backend.problems import Problem
from onprem_backend.refinement import refine_alpha
from onprem_backend.runtime import Runtime
from onprem_backend.sessions import Job
from onprem_backend.settings import Settings
from onprem_backend.upscale import load_x4plus, load_x4plus_pth
from tests.onprem_backend.pictures import SAMPLES, array, jpeg, noise, png
from tests.onprem_backend.processes import running_app
from tests.onprem_backend.weight_files import pin, write_state

ASTRONAUT = SAMPLES.astronaut()


def specs(*names: str) -> list[Any]:
    return [spec for spec in SPECS if spec.name in names]


@pytest.mark.parametrize(
    ("feature", "query"),
    [
        ("classify", {"k": "0"}),
        ("classify", {"k": "1001"}),
        ("classify", {"k": "3.5"}),
        ("classify", {"k": "٣"}),
        ("remove-background", {"background": "white"}),
        ("remove-background", {"background": "#ffffff"}),
        ("remove-background", {"model": "other"}),
        ("restore", {"seed": "-1"}),
        ("face-blur", {"output": "xml"}),
    ],
)
def test_an_option_outside_its_range_is_refused_by_name(feature: str, query: dict[str, str]) -> None:
    with pytest.raises(Problem) as caught:
        check_options(feature, query)
    assert (caught.value.code, caught.value.extra["option"]) == ("unknown_option", *query)


@pytest.mark.parametrize("k", [1, 3, 1000])
def test_classify_names_as_many_labels_as_asked_for(client: httpx.Client, k: int) -> None:
    predictions = client.post(f"/v1/classify?k={k}", content=png(SAMPLES.coffee())).json()["predictions"]
    assert len(predictions) == k
    assert predictions[0]["label"] == "espresso"
    if k == 1000:
        assert sum(p["prob"] for p in predictions) == pytest.approx(1.0, abs=1e-3)


def test_resnet18_is_preferred_once_its_file_is_there(tmp_path: Path, models_dir: Path) -> None:
    import torchvision

    torch.manual_seed(3)
    network = torchvision.models.resnet18(weights=None).eval()
    write_state(tmp_path, "resnet18", network.state_dict())
    lite = "efficientnet-lite0-57934424.pth"
    (tmp_path / lite).symlink_to((models_dir / lite).resolve())
    pixels = np.ascontiguousarray(ASTRONAUT[:256, :256])
    settings = Settings(models_dir=tmp_path, device="cpu")
    both = specs("resnet18", "efficientnet-lite0")
    with running_app(settings, both, manifest=pin(tmp_path, "resnet18")) as address:
        answer = httpx.post(f"{address}/v1/classify", content=png(pixels))
        other = httpx.post(f"{address}/v1/classify?model=efficientnet-lite0", content=png(pixels))
    assert answer.headers["x-model"].startswith("resnet18@")
    assert other.headers["x-model"].startswith("efficientnet-lite0@")
    with torch.inference_mode():
        centre = torch.from_numpy(pixels[16:240, 16:240].copy()).permute(2, 0, 1)[None].float() / 255
        mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        expected = network((centre - mean) / std)[0].softmax(0)
    assert answer.json()["predictions"][0]["prob"] == pytest.approx(float(expected.max()), abs=1e-5)


def test_only_a_state_dict_is_loaded_whatever_the_hash(tmp_path: Path) -> None:
    class Malicious:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "executed",))

    torch.save(Malicious(), tmp_path / "resnet18-f37072fd.pth")
    settings = Settings(models_dir=tmp_path, device="cpu")
    with running_app(settings, specs("resnet18"), manifest=pin(tmp_path, "resnet18")) as address:
        (model,) = httpx.get(f"{address}/v1/models").json()["models"]
    assert model["state"] == "unusable"
    assert "weights_only" in model["reason"].lower() or "weights only" in model["reason"].lower()
    assert not (tmp_path / "executed").exists()


def write_brightness_onnx(path: Path) -> None:
    """Write a network of the family's form whose saliency is how red a pixel is."""
    import onnx

    weights = onnx.numpy_helper.from_array(np.array([[[[1.0]], [[0.0]], [[0.0]]]], dtype=np.float32), "w")
    node = onnx.helper.make_node("Conv", ["in", "w"], ["out"])
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, channels, None, None])
        for name, channels in (("in", 3), ("out", 1))
    ]
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], [weights])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), str(path))


@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
@pytest.mark.parametrize("variant", [U2NET, ISNET])
def test_the_larger_networks_of_the_family_run_from_their_own_files(
    tmp_path: Path, make_runtime: Callable[[str], Runtime], variant: Variant, engine: str
) -> None:
    write_brightness_onnx(tmp_path / variant.file)
    model = load_variant(replace(make_runtime(engine), models_dir=tmp_path), variant)
    pixels = np.zeros((80, 120, 3), dtype=np.uint8)
    pixels[20:60, 30:90, 0] = 255
    job = Job(Picture(pixels))
    assert model.prepare(job).tensor.shape == (3, variant.side_px, variant.side_px)
    cut = model.run(job).picture
    assert cut is not None
    assert cut.alpha is not None
    assert cut.alpha.shape == (80, 120)
    assert cut.alpha[40, 60] == 255
    assert cut.alpha[5, 5] == 0


def test_models_are_chosen_by_option_and_file() -> None:
    def first(feature: str, **options: str) -> list[str]:
        return [spec.name for spec in SPECS if spec.serves(feature, check_options(feature, options))]

    assert first("remove-background") == ["isnet-general-use", "u2net", "u2netp"]
    assert first("remove-background", model="isnet") == ["isnet-general-use"]
    assert first("restore", mode="face") == ["gfpgan", "gfpgan-v1.3"]
    assert first("restore", mode="face", version="1.3") == ["gfpgan-v1.3"]
    assert first("restore", model="x4plus") == ["realesrgan-x4plus-pth", "realesrgan-x4plus"]
    assert first("restore") == ["realesr-animevideov3-x4"]


def test_a_background_colour_replaces_transparency(client: httpx.Client) -> None:
    cut = array(client.post("/v1/remove-background", content=jpeg(ASTRONAUT)).content)
    response = client.post("/v1/remove-background?background=00ff80", content=png(ASTRONAUT))
    flat = array(response.content)
    assert flat.shape[2] == 3
    alpha = cut[:, :, 3:].astype(float) / 255
    expected = ASTRONAUT * alpha + np.array([0, 255, 128]) * (1 - alpha)
    assert np.abs(flat - expected).mean() < 1.5
    assert tuple(flat[5, 5]) == (0, 255, 128)
    as_jpeg = client.post("/v1/remove-background?background=ffffff", content=jpeg(ASTRONAUT))
    assert as_jpeg.headers["content-type"] == "image/jpeg"


def test_refined_alpha_follows_the_pictures_own_edge() -> None:
    truth = np.zeros((200, 200), dtype=np.uint8)
    rows, columns = np.mgrid[:200, :200]
    truth[(rows - 100) ** 2 + (columns - 100) ** 2 < 60**2] = 255
    rgb = np.where(truth[:, :, None] > 0, (220, 180, 160), (20, 40, 60)).astype(np.uint8)
    import cv2

    soft = np.asarray(cv2.GaussianBlur(np.roll(truth, 1, axis=1), (9, 9), 2.0), dtype=np.uint8)
    refined = refine_alpha(soft, rgb)
    assert np.abs(refined.astype(int) - truth).mean() < 0.5 * np.abs(soft.astype(int) - truth).mean()
    assert np.all(refined[90:110, 90:110] == 255)
    assert np.all(refined[:20, :20] == 0)
    assert np.array_equal(refine_alpha(truth, rgb), truth)


def test_refinement_is_an_option_and_changes_edges_only(client: httpx.Client) -> None:
    plain, refined = (
        array(client.post(f"/v1/remove-background?refine={value}", content=png(ASTRONAUT)).content) for value in "01"
    )
    changed = plain[:, :, 3] != refined[:, :, 3]
    assert 0 < changed.mean() < 0.5
    assert np.array_equal(plain[:, :, :3], refined[:, :, :3])


def test_faces_come_as_json_when_asked_for(client: httpx.Client) -> None:
    response = client.post("/v1/face-blur?output=boxes", content=png(ASTRONAUT))
    assert response.headers["content-type"] == "application/json"
    found = response.json()
    assert (found["width"], found["height"], len(found["faces"])) == (512, 512, 1)
    x1, y1, x2, y2 = found["faces"][0]["box"]
    assert x1 < 205 < 245 < x2
    assert y1 < 100 < 160 < y2
    assert found["faces"][0]["score"] > 0.8
    assert response.headers["x-faces"] == "1"


def test_x4plus_is_the_same_network_from_either_file(tmp_path: Path, make_runtime: Callable[[str], Runtime]) -> None:
    runtime = make_runtime("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        original = importlib.import_module("basicsr.archs.rrdbnet_arch").RRDBNet(3, 3, 4, 64, 23, 32)
    load_ncnn_weights(runtime.models_dir / "realesrgan-x4plus.bin", original)
    write_state(tmp_path, "realesrgan-x4plus-pth", {"params_ema": original.state_dict()})
    job = Job(Picture(noise(24, 16)))
    ncnn = load_x4plus(runtime)()(job).picture
    pth = load_x4plus_pth(replace(runtime, models_dir=tmp_path))()(job).picture
    assert ncnn is not None
    assert pth is not None
    assert pth.rgb.shape == (64, 96, 3)
    assert np.abs(ncnn.rgb.astype(int) - pth.rgb).max() <= 1


def test_noise_is_drawn_from_the_seed_and_leaves_the_shared_network_alone() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arch = importlib.import_module("gfpgan.archs.gfpganv1_clean_arch")
    torch.manual_seed(1)
    network = arch.GFPGANv1Clean(32, 16, 1, None, False, 2, True, True, 0.0625, True).eval()
    for name, parameter in network.named_parameters():
        if name.endswith("stylegan_decoder.style_conv1.weight"):
            parameter.data.fill_(0.5)
    face = torch.rand(1, 3, 32, 32)

    def run(module: torch.nn.Module) -> torch.Tensor:
        with torch.inference_mode():
            return module(face, return_rgb=False, randomize_noise=False)[0]  # type: ignore[no-any-return]

    before = run(network)
    one, again, other = (run(with_noise(network, seed)) for seed in (7, 7, 8))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(before, run(network))
