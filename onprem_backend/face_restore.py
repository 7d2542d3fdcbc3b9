"""Faces restored with the gfpgan package (Wang et al., 2021).

GFPGANer, its FaceRestoreHelper and its RetinaFace detector keep the picture they work on in attributes, so one
instance that two threads use mixes their pictures without an error. A session therefore is a shallow copy of all
three: the weights are shared, the attributes are its own.
"""

from __future__ import annotations

import copy
import importlib
import warnings
from typing import Any

import numpy as np
import torch

from onprem_backend.edges import spread_colours
from onprem_backend.images import Picture
from onprem_backend.problems import Problem
from onprem_backend.runtime import Interruptible, Runtime, check_finite
from onprem_backend.sessions import Job, MakeSession, Result

UPSCALE = 2
_FACE_SIDE_PX = 512


class _NetworkFailed(Exception):
    """The network raised ``cause``. Not a RuntimeError: GFPGANer catches those and returns the face unrestored."""

    def __init__(self, cause: RuntimeError) -> None:
        super().__init__(str(cause))
        self.cause = cause


def load_gfpgan(runtime: Runtime) -> MakeSession:
    """Load GFPGAN v1.4."""
    return load_version(runtime, "GFPGANv1.4.pth")


def load_gfpgan_v1_3(runtime: Runtime) -> MakeSession:
    """Load GFPGAN v1.3: the same network, weights that change a face less."""
    return load_version(runtime, "GFPGANv1.3.pth")


def load_version(runtime: Runtime, file: str) -> MakeSession:
    """Load a GFPGAN, the detector and the parser from the models folder, whose files have been checked already.

    FaceRestoreHelper looks for its two files under the root it is given and would download what is missing there. On
    CUDA the network is run once, since a warm-up picture without a face would not reach it.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # facexlib and basicsr were written for older versions of all they use
        network, helper = _build(runtime, file)
    if runtime.device.type == "cuda":
        with torch.inference_mode():
            network(torch.zeros(1, 3, _FACE_SIDE_PX, _FACE_SIDE_PX, device=runtime.device), return_rgb=False)
    return face_sessions(network, helper, runtime.device)


def _build(runtime: Runtime, file: str) -> tuple[torch.nn.Module, Any]:
    """Return the network with its weights, and a FaceRestoreHelper."""
    arch = importlib.import_module("gfpgan.archs.gfpganv1_clean_arch")
    helpers = importlib.import_module("facexlib.utils.face_restoration_helper")
    network = arch.GFPGANv1Clean(
        out_size=_FACE_SIDE_PX,
        num_style_feat=512,
        channel_multiplier=2,
        decoder_load_path=None,
        fix_decoder=False,
        num_mlp=8,
        input_is_latent=True,
        different_w=True,
        narrow=1,
        sft_half=True,
    )
    weights = torch.load(runtime.models_dir / file, map_location="cpu", weights_only=True)
    network.load_state_dict(weights["params_ema" if "params_ema" in weights else "params"], strict=True)
    helper = helpers.FaceRestoreHelper(
        UPSCALE,
        face_size=_FACE_SIDE_PX,
        crop_ratio=(1, 1),
        det_model="retinaface_resnet50",
        save_ext="png",
        use_parse=True,
        device=runtime.device,
        model_rootpath=str(runtime.models_dir),
    )
    return network.eval().to(runtime.device), helper


def face_sessions(network: torch.nn.Module, helper: Any, device: torch.device) -> MakeSession:
    """Return a maker of sessions over shared weights. ``helper`` is a FaceRestoreHelper; it is copied, never used
    itself."""
    restorer_type = importlib.import_module("gfpgan.utils").GFPGANer
    interruptible = Interruptible(network)

    def make() -> FaceSession:
        own_helper = copy.copy(helper)
        own_helper.face_det = copy.copy(helper.face_det)
        own_helper.clean_all()
        # Its constructor builds another network and looks for weights under the working directory.
        restorer = object.__new__(restorer_type)
        restorer.upscale = UPSCALE
        restorer.bg_upsampler = None
        restorer.device = device
        restorer.face_helper = own_helper
        return FaceSession(restorer, network, interruptible)

    return make


class _Deterministic:
    """The network with noise that is known, and with failures that GFPGANer cannot swallow. ``seed`` is ``None`` for
    the noise that was stored with the weights."""

    def __init__(self, network: torch.nn.Module, seed: int | None = None) -> None:
        self._network = network if seed is None else with_noise(network, seed)

    def __call__(self, batch: torch.Tensor, *, return_rgb: bool, weight: float) -> Any:
        try:
            restored = self._network(batch, return_rgb=return_rgb, weight=weight, randomize_noise=False)
        except RuntimeError as error:
            raise _NetworkFailed(error) from error
        check_finite(restored[0])
        return restored


def with_noise(network: torch.nn.Module, seed: int) -> torch.nn.Module:
    """Return a shallow copy of a GFPGANv1Clean whose stored noise is drawn anew from ``seed``; all weights are shared.
    The same seed gives the same noise on every device."""
    generator = torch.Generator().manual_seed(seed)
    decoder: Any = _copy_module(network.get_submodule("stylegan_decoder"))
    noises = torch.nn.Module()
    for name, stored in decoder.noises.named_buffers():
        drawn = torch.randn(stored.shape, generator=generator)
        noises.register_buffer(name, drawn.to(stored.device, stored.dtype))
    decoder.noises = noises
    copied = _copy_module(network)
    copied.add_module("stylegan_decoder", decoder)
    return copied


def _copy_module(module: torch.nn.Module) -> torch.nn.Module:
    """Return a module with the same parts, whose parts can be replaced without touching the original's."""
    copied = copy.copy(module)
    copied._modules = dict(module._modules)
    return copied


class FaceSession:
    """One GFPGANer with state of its own."""

    def __init__(self, restorer: Any, network: torch.nn.Module, interruptible: Interruptible) -> None:
        self.restorer = restorer
        self._network = network
        self._interruptible = interruptible

    def __call__(self, job: Job) -> Result:
        """Return the picture at twice its size with every face restored.

        The option ``seed`` draws the network's noise from it. Raises ``Problem("no_face_found")`` when there is none,
        ``Stopped``, and what the network raises.
        """
        picture = job.picture
        bgr = np.ascontiguousarray(spread_colours(picture)[:, :, ::-1])
        helper = self.restorer.face_helper
        seed = job.options.get("seed")
        self.restorer.gfpgan = _Deterministic(self._network, int(seed) if seed else None)
        try:
            with self._interruptible.until(job.stop):
                _, faces, restored = self.restorer.enhance(
                    bgr, has_aligned=False, only_center_face=False, paste_back=True
                )
        except _NetworkFailed as error:
            raise error.cause from None
        finally:
            helper.clean_all()
            helper.input_img = None  # clean_all keeps it, and it is a customer's picture
        if not faces:
            raise Problem("no_face_found", "there is no face in this picture, so nothing was restored")
        rgb = np.ascontiguousarray(restored[:, :, ::-1])
        alpha = picture.alpha
        if alpha is not None:
            alpha = alpha.repeat(UPSCALE, axis=0).repeat(UPSCALE, axis=1)
        return Result(Picture(rgb, alpha, picture.format, picture.frames), headers={"X-Faces": str(len(faces))})
