"""The model server's settings: frozen, built from arguments or from the environment, checked once."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

FEATURES = ("classify", "remove-background", "face-blur", "restore", "erase")
ENGINES = ("torch", "onnxruntime")
PRECISIONS = ("fp32", "fp16", "bf16")

SWITCHES = {
    "ENABLE_CLASSIFY": "classify",
    "ENABLE_REMOVER": "remove-background",
    "ENABLE_FACEBLUR": "face-blur",
    "ENABLE_RESTORE": "restore",
    "ENABLE_ERASER": "erase",
}
_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]{1,3})?")
_SHORTEST_S = 0.001
_LEAST: Mapping[str, float] = {
    **dict.fromkeys(("threads", "pool_size", "codec_threads", "max_waiting", "max_album_pictures"), 1),
    **dict.fromkeys(("max_body_bytes", "max_buffered_bytes", "max_album_bytes"), 1),
    **dict.fromkeys(("max_pixels", "max_output_pixels", "max_frames", "detect_side_px"), 1),
    **dict.fromkeys(("wait_s", "inference_timeout_s", "body_timeout_s"), _SHORTEST_S),
    "batch_delay_s": 0,
}
_PREFIX = "ONPREM_"
_SERVICE = re.compile(r"ONPREM(_\w+)?_(SERVICE_HOST|SERVICE_PORT\w*|PORT(_\d+_\w+)?)|ONPREM_PORT(_\d+_\w+)?")
"""What Kubernetes sets beside a Service whose name begins with onprem."""
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything the server needs.

    ``device`` is ``auto`` (CUDA where there is one, else the CPU, said in the log), ``cpu``, ``cuda`` or ``cuda:N``;
    asking for CUDA where there is none is an error unless ``allow_cpu_fallback``, and never silent. ``engine`` runs
    the ONNX models; the others stay on torch. ``precision`` is for the models that lose nothing by it (GFPGAN, LaMa
    and onnxruntime stay at fp32); ``compile`` is a backend of ``torch.compile`` (``inductor`` needs a C++ compiler, on
    CUDA Triton; empty: none), for the networks that are not traced.

    ``pool_size`` sessions per model run at the same time, ``pool_sizes`` overrides it by feature; each computes with
    ``threads`` threads. ``max_batches`` overrides by feature how many pictures share a run, and a batch waits at most
    ``batch_delay_s`` for its next one. Per model at most ``pool_size * batch + 1`` decoded pictures and
    ``max_waiting`` waiting requests exist, and uploads of all requests together hold at most ``max_buffered_bytes``:
    this is the memory budget. Without ``admin_token`` nobody can load or unload models.
    """

    models_dir: Path = Path("models")
    engine: str = "torch"
    device: str = "auto"
    allow_cpu_fallback: bool = False
    precision: str = "fp32"
    channels_last: bool = True
    compile: str = ""
    features: frozenset[str] = frozenset(FEATURES)
    server_name: str = "crossfade-onprem"
    threads: int = 1
    pool_size: int = 2
    pool_sizes: Mapping[str, int] = field(default_factory=dict)
    max_batches: Mapping[str, int] = field(default_factory=dict)
    batch_delay_s: float = 0.005
    codec_threads: int = 2
    max_waiting: int = 64
    wait_s: float = 20.0
    inference_timeout_s: float = 120.0
    body_timeout_s: float = 30.0
    max_body_bytes: int = 32 * 1024 * 1024
    max_buffered_bytes: int = 256 * 1024 * 1024
    max_album_bytes: int = 128 * 1024 * 1024
    max_album_pictures: int = 200
    max_pixels: int = 50_000_000
    max_output_pixels: int = 64_000_000
    max_frames: int = 1000
    detect_side_px: int = 960
    admin_token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not _DEVICE.fullmatch(self.device):
            raise ValueError(f"device must be auto, cpu, cuda or cuda:N, not {self.device!r}")
        if self.engine not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, not {self.engine!r}")
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}, not {self.precision!r}")
        if self.precision == "fp16" and self.device == "cpu":
            raise ValueError("fp16 is far slower than fp32 on a CPU; use fp32 or bf16 there")
        unknown = (self.features | set(self.pool_sizes) | set(self.max_batches)) - set(FEATURES)
        if unknown:
            raise ValueError(f"unknown feature {min(unknown)!r}; known are {', '.join(FEATURES)}")
        for name in ("pool_sizes", "max_batches"):
            if min(getattr(self, name).values(), default=1) < 1:
                raise ValueError(f"{name} must be at least 1")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= least):
                raise ValueError(f"{name} must be at least {least}, not {value}")

    def pool_size_for(self, feature: str) -> int:
        """Return how many sessions a model of ``feature`` has."""
        return self.pool_sizes.get(feature, self.pool_size)

    def max_batch_for(self, feature: str, usual: int) -> int:
        """Return how many pictures may share a run of a model of ``feature``; ``usual`` is where that pays."""
        return self.max_batches.get(feature, usual)


def settings_from_environment(environ: Mapping[str, str], **overrides: Any) -> Settings:
    """Build settings from environment variables, then apply ``overrides`` (``None`` means: not given).

    ``ENABLE_CLASSIFY``, ``ENABLE_REMOVER``, ``ENABLE_FACEBLUR``, ``ENABLE_RESTORE`` and ``ENABLE_ERASER`` (default
    on) switch features; ``CROSSFADE_MODELS`` is the models folder and ``ONPREM_<FIELD>`` sets any other scalar field.
    Raises ``ValueError`` that names the variable.
    """
    values: dict[str, Any] = {"features": frozenset(f for n, f in SWITCHES.items() if _flag(environ, n))}
    for variable, (name, parse) in VARIABLES.items():
        if variable in environ:
            try:
                values[name] = parse(environ[variable])
            except ValueError as error:
                raise ValueError(f"{variable}={environ[variable]!r}: {error}") from error
    values.update({name: value for name, value in overrides.items() if value is not None})
    return Settings(**values)


def _flag(environ: Mapping[str, str], name: str) -> bool:
    try:
        return _boolean(environ.get(name, "1"))
    except ValueError as error:
        raise ValueError(f"{name}={environ[name]!r}: {error}") from None


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE | _FALSE:
        return word in _TRUE
    raise ValueError(f"expected one of {', '.join(sorted(_TRUE | _FALSE))}")


def _sizes(text: str) -> dict[str, int]:
    """Parse ``feature=size,feature=size``."""
    pairs = (item.partition("=") for item in text.split(",") if item.strip())
    return {name.strip(): int(size) for name, _, size in pairs}


VARIABLES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "CROSSFADE_MODELS": ("models_dir", Path),
    "ONPREM_ENGINE": ("engine", str),
    "ONPREM_DEVICE": ("device", str),
    "ONPREM_ALLOW_CPU_FALLBACK": ("allow_cpu_fallback", _boolean),
    "ONPREM_PRECISION": ("precision", str),
    "ONPREM_CHANNELS_LAST": ("channels_last", _boolean),
    "ONPREM_COMPILE": ("compile", str),
    "ONPREM_SERVER_NAME": ("server_name", str),
    "ONPREM_THREADS": ("threads", int),
    "ONPREM_POOL_SIZE": ("pool_size", int),
    "ONPREM_POOL_SIZES": ("pool_sizes", _sizes),
    "ONPREM_MAX_BATCHES": ("max_batches", _sizes),
    "ONPREM_BATCH_DELAY_S": ("batch_delay_s", float),
    "ONPREM_CODEC_THREADS": ("codec_threads", int),
    "ONPREM_MAX_WAITING": ("max_waiting", int),
    "ONPREM_WAIT_S": ("wait_s", float),
    "ONPREM_INFERENCE_TIMEOUT_S": ("inference_timeout_s", float),
    "ONPREM_BODY_TIMEOUT_S": ("body_timeout_s", float),
    "ONPREM_MAX_BODY_BYTES": ("max_body_bytes", int),
    "ONPREM_MAX_BUFFERED_BYTES": ("max_buffered_bytes", int),
    "ONPREM_MAX_ALBUM_BYTES": ("max_album_bytes", int),
    "ONPREM_MAX_ALBUM_PICTURES": ("max_album_pictures", int),
    "ONPREM_MAX_PIXELS": ("max_pixels", int),
    "ONPREM_MAX_OUTPUT_PIXELS": ("max_output_pixels", int),
    "ONPREM_MAX_FRAMES": ("max_frames", int),
    "ONPREM_DETECT_SIDE_PX": ("detect_side_px", int),
    "ONPREM_ADMIN_TOKEN": ("admin_token", str),
}


def unknown_variables(names: Iterable[str]) -> dict[str, str]:
    """Return the variables that look like settings and are none, each with the nearest one that is, or nothing."""
    unknown = [n for n in names if n.startswith(_PREFIX) and n not in VARIABLES and not _SERVICE.fullmatch(n)]
    return {name: next(iter(get_close_matches(name, VARIABLES, 1)), "") for name in sorted(unknown)}
