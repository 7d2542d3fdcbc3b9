"""Which models serve which feature, and what each can do. Loaders are named, not imported."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from onprem_backend.runtime import Runtime
    from onprem_backend.sessions import Model


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model. ``weights`` are names in the manifest, the first one gives the model its version; ``loader`` is
    ``module:function``. ``engine`` is ``onnx`` when the engine may be chosen, else what it always runs on. ``scale``
    is how much wider and higher its result is; ``adds_alpha`` says that its result has transparency unless a background
    is asked for. ``half`` says that it may compute in less than single precision, ``frugal`` that it can do the same
    work with less memory at a time. ``cpu_batch`` and ``cuda_batch`` are how many pictures share a run where that
    pays. ``when`` are the options it is meant for."""

    name: str
    feature: str
    weights: tuple[str, ...]
    loader: str
    engine: str = "torch"
    scale: int = 1
    adds_alpha: bool = False
    half: bool = False
    frugal: bool = False
    cpu_batch: int = 1
    cuda_batch: int = 1
    when: tuple[tuple[str, str], ...] = ()

    def serves(self, feature: str, options: Mapping[str, str]) -> bool:
        """Say whether this model is one for a request with these options."""
        return self.feature == feature and all(options.get(name) in (value, "auto") for name, value in self.when)

    def load(self, runtime: Runtime) -> Model:
        """Load the weights. Blocking; imports what the model needs."""
        module, _, function = self.loader.partition(":")
        loader = getattr(importlib.import_module(module), function)
        return cast("Callable[[Runtime], Model]", loader)(runtime)


_HERE = "onprem_backend"
_QUALITY, _FACE = ("mode", "quality"), ("mode", "face")
_X4PLUS = (_QUALITY, ("model", "x4plus"))


def _classifier(name: str, loader: str, cpu_batch: int) -> ModelSpec:
    when = (("model", name),)
    loader = f"{_HERE}.labels:{loader}"
    return ModelSpec(name, "classify", (name,), loader, half=True, cpu_batch=cpu_batch, cuda_batch=32, when=when)


def _cutout(name: str, choice: str, cuda_batch: int) -> ModelSpec:
    when = (("model", choice),)
    loader = f"{_HERE}.cutout:load_{choice}"
    return ModelSpec(
        name,
        "remove-background",
        (name,),
        loader,
        engine="onnx",
        adds_alpha=True,
        half=True,
        cuda_batch=cuda_batch,
        when=when,
    )


def _upscaler(name: str, loader: str, *when: tuple[str, str]) -> ModelSpec:
    loader = f"{_HERE}.upscale:{loader}"
    return ModelSpec(name, "restore", (name,), loader, scale=4, half=True, frugal=True, when=when)


def _face_restorer(name: str, loader: str, version: str) -> ModelSpec:
    files = (name, "retinaface", "parsenet")
    loader = f"{_HERE}.face_restore:{loader}"
    return ModelSpec(name, "restore", files, loader, scale=2, when=(_FACE, ("version", version)))


SPECS = (
    _classifier("resnet18", "load_resnet18", cpu_batch=8),
    _classifier("efficientnet-lite0", "load_efficientnet", cpu_batch=1),
    _cutout("isnet-general-use", "isnet", cuda_batch=2),
    _cutout("u2net", "u2net", cuda_batch=8),
    _cutout("u2netp", "u2netp", cuda_batch=8),
    ModelSpec(
        "centerface",
        "face-blur",
        ("centerface",),
        f"{_HERE}.faces:load_centerface",
        engine="onnx",
        half=True,
        cuda_batch=8,
    ),
    _upscaler("realesr-animevideov3-x4", "load_small", _QUALITY, ("model", "small")),
    _upscaler("realesrgan-x4plus-pth", "load_x4plus_pth", *_X4PLUS),
    _upscaler("realesrgan-x4plus", "load_x4plus", *_X4PLUS),
    _face_restorer("gfpgan", "load_gfpgan", "1.4"),
    _face_restorer("gfpgan-v1.3", "load_gfpgan_v1_3", "1.3"),
    ModelSpec("big-lama", "erase", ("big-lama",), f"{_HERE}.inpaint:load_lama"),
    ModelSpec("opencv-telea", "erase", (), f"{_HERE}.inpaint:load_telea", engine="opencv"),
)
"""All models; of those that serve a request the first that is ready is taken."""
