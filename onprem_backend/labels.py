"""The most probable ImageNet labels of a picture, with EfficientNet-Lite0 or ResNet18."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from onprem_backend.images import Pixels
from onprem_backend.runtime import Network, Runtime
from onprem_backend.sessions import BatchModel, Job, Prepared, Result

SIDE_PX = 224
_SHORT_SIDE_PX = 256
_MEAN = np.asarray((0.485, 0.456, 0.406), dtype=np.float32)
_STD = np.asarray((0.229, 0.224, 0.225), dtype=np.float32)

Normalise = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""From ``(224, 224, 3)`` values 0..255 to what a network was trained on."""


def load_efficientnet(runtime: Runtime) -> BatchModel:
    """Load EfficientNet-Lite0 strictly."""
    from efficientnet_lite_pytorch import EfficientNet

    network = EfficientNet.from_name("efficientnet-lite0")
    return _load(network, runtime, "efficientnet-lite0-57934424.pth", normalise_lite, Image.Resampling.BICUBIC)


def load_resnet18(runtime: Runtime) -> BatchModel:
    """Load a state dict in torchvision's layout strictly. Prepared as torchvision's own weights want it, except that
    the centre is cut out before it is made small."""
    network = importlib.import_module("torchvision.models").resnet18(weights=None)
    return _load(network, runtime, "resnet18-f37072fd.pth", normalise_imagenet, Image.Resampling.BILINEAR)


def _load(
    network: torch.nn.Module, runtime: Runtime, file: str, normalise: Normalise, way: Image.Resampling
) -> BatchModel:
    names: Sequence[str] = importlib.import_module("torchvision.models._meta")._IMAGENET_CATEGORIES
    weights = torch.load(runtime.models_dir / file, map_location="cpu", weights_only=True)
    network.load_state_dict(weights, strict=True)
    return classifier(runtime.network(runtime.place(network)), names, normalise, way)


def classifier(network: Network, names: Sequence[str], normalise: Normalise, way: Image.Resampling) -> BatchModel:
    """Return a model whose answer is ``{"predictions": [{"label", "prob"}]}``, the most probable first, as many as
    the option ``k`` says. ``network`` gives logits ``(N, len(names))``."""

    def prepare(job: Job) -> Prepared:
        tensor = normalise(_centre(job.picture.flattened(), way)).transpose(2, 0, 1)
        top = int(job.options.get("k", "5"))  # only this is kept, not the picture
        return Prepared(np.ascontiguousarray(tensor), partial(_name, names=names, top=top))

    return BatchModel(network, prepare)


def _name(outputs: Sequence[NDArray[np.float32]], *, names: Sequence[str], top: int) -> Result:
    probabilities = torch.from_numpy(np.asarray(outputs[0])).softmax(0)
    values, indices = probabilities.topk(min(top, len(names)))
    predictions = [
        {"label": names[int(index)], "prob": round(float(value), 6)}
        for value, index in zip(values, indices, strict=True)
    ]
    return Result(document={"predictions": predictions})


def _centre(rgb: Pixels, way: Image.Resampling) -> NDArray[np.float32]:
    """Return ``(224, 224, 3) float32``: the centre, 224/256 of the short side."""
    height, width = rgb.shape[:2]
    side = max(1, round(min(width, height) * SIDE_PX / _SHORT_SIDE_PX))
    left, top = (width - side) // 2, (height - side) // 2
    crop = Image.fromarray(np.ascontiguousarray(rgb[top : top + side, left : left + side]))
    return np.asarray(crop.resize((SIDE_PX, SIDE_PX), way), dtype=np.float32)


def normalise_lite(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """(x - 127) / 128, as in efficientnet_lite's preprocessing."""
    return (values - 127.0) / 128.0


def normalise_imagenet(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """ImageNet's mean and deviation on 0..1, as in torchvision's presets."""
    scaled: NDArray[np.float32] = (values / 255.0 - _MEAN) / _STD
    return scaled
