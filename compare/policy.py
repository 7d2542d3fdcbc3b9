"""What a route is judged by: a frozen value with two keys.

``measurement_key`` changes with whatever changes a *measurement* (the sides, the kernel, its tolerances and caps):
measurements under different keys are never pooled. ``policy_hash`` changes with whatever a *verdict* promises (those,
and alpha, margins, objective, least coverage): a verdict judges all measurements of its key, and a reject sticks under
the same hash only. Neither changes with what is the traffic's and the neighbours': how much is mirrored, how many
routes are judged together, which deadline the mean latency is cut at for display.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Literal

from shadow.keeping import Bodies

GATES = ("G1", "G2", "G3", "G4", "G5", "G6", "G7")


class Kind(StrEnum):
    """Which kernel compares the outputs of a route; ``AUTO`` goes by content type."""

    AUTO = "auto"
    IMAGE = "image"
    CUTOUT = "cutout"
    FACE_BLUR = "face_blur"
    ERASE = "erase"
    RESTORE = "restore"
    CLASSIFICATION = "classification"
    EMBEDDING = "embedding"
    TAGS = "tags"
    BOXES = "boxes"
    JSON = "json"
    TEXT = "text"
    EVENTS = "events"
    CHAT = "chat"
    BYTES = "bytes"


class RuleName(StrEnum):
    """How one JSON path is compared. ``exact`` is what happens without a rule: order counts, numbers are exact.

    ``ordered`` is ``exact`` for a list, and says of the same items in another order that it is the order.
    """

    EXACT = "exact"
    ORDERED = "ordered"
    TOLERANCE = "tolerance"
    IGNORE = "ignore"
    SET = "set"
    RANKING = "ranking"
    EMBEDDING = "embedding"
    TAGS = "tags"
    BOXES = "boxes"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """From when on two values are alike: a cosine, a share of common tags, boxes that meet and their F1, the chrF of
    two texts."""

    min_cosine: float = 0.999
    min_jaccard: float = 0.8
    min_iou: float = 0.5
    min_f1: float = 0.95
    box_format: Literal["xyxy", "xywh"] = "xyxy"
    min_similarity: float = 0.8


@dataclass(frozen=True, slots=True)
class JsonRule(Likeness):
    """A rule for one typed path such as ``items[*].score``; it also governs everything below that path.

    ``tolerance``: ``|a - b| <= abs_tol + rel_tol max(|a|, |b|)``. ``ranking``: a list of objects with ``label`` and
    ``score`` keys; scores within ``abs_tol`` of each other are ties. ``embedding``: cosine at least ``min_cosine``.
    ``tags``: the share of common strings at least ``min_jaccard``. ``boxes``: matched at ``min_iou``, F1 at least
    ``min_f1``. ``text``: chrF at least ``min_similarity``.
    """

    path: str
    rule: RuleName = RuleName.EXACT
    abs_tol: float = 0.0
    rel_tol: float = 0.0
    label: str = "label"
    score: str = "prob"


@dataclass(frozen=True, slots=True)
class ImageBands:
    """What still counts as the same picture. Decibels of PSNR, levels (0 to 255) of tile error, SSIM of the lowest
    tile.

    Lossy pictures are judged by the lowest 32 x 32 tile of the SSIM map, which is blind to a cast over flat areas and
    to very small damage: the signed colour bias of a tile and the worst 8 x 8 patch see those. SSIMULACRA2 is asked
    only where a route sets a limit; docs/comparison.md says why.
    """

    lossless_psnr_db: float = 45.0
    lossless_tile_mae: float = 2.0
    lossless_patch_mae: float = 8.0
    lossy_tile_ssim: float = 0.90
    lossy_tile_bias: float = 6.0
    lossy_patch_mae: float = 32.0
    lossy_ssimulacra2: float | None = None
    restore_tile_ssim: float = 0.85
    restore_ssimulacra2: float | None = None
    erase_inside_ssim: float = 0.50
    cutout_iou: float = 0.99
    cutout_alpha_mad: float = 0.005
    cutout_psnr_db: float = 40.0
    cutout_tile_mae: float = 4.0
    face_iou: float = 0.5
    max_pixels: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Margins:
    """What is allowed: a ratio, or a share of the pairs (``None`` for the objective: 5 % at p95, 1 % at p99)."""

    median_ratio: float = 1.10
    slo_misses: float | None = None
    tail_ratio: float = 1.25
    errors: float = 0.01
    outputs: float = 0.02
    critical: float = 0.005


@dataclass(frozen=True, slots=True)
class TunedFor:
    """At how many pairs each interval is tightest; ``None`` for a rate means 3 / margin."""

    rate: float | None = None
    p50: float = 200.0
    p95: float = 1000.0
    p99: float = 5000.0


@dataclass(frozen=True, slots=True)
class Policy(Likeness):
    """Everything a verdict depends on besides the record itself.

    ``routes`` is how many routes are judged together: a reject is made at ``alpha / (routes x gates)``. ``deadline_s``
    is the T of the mean gate. ``mirror_percent`` is for the report. ``random_outputs`` says that the model never gives
    the same bytes twice, so equal bytes are suspicious. ``value_path`` is where in a JSON answer the ranking, the
    embedding, the tags or the boxes are; empty for the kind's usual place. ``min_similarity`` is the least chrF of two
    texts. ``bodies`` is what the store keeps of the route: with ``mismatches`` the bodies of matches are deleted as
    soon as they are judged, but for ``kept_matches_percent``; with ``hashes`` the kind is ``bytes``.
    """

    route: str
    baseline: str
    candidate: str
    kind: Kind = Kind.AUTO
    alpha: float = 0.05
    latency_slo_s: float | None = None
    slo_percentile: int = 95
    deadline_s: float = 30.0
    margins: Margins = Margins()
    tuned_for: TunedFor = TunedFor()
    min_pairs: int = 60
    min_span_s: float = 86_400.0
    min_coverage: float = 0.98
    mirror_percent: float = 100.0
    routes: int = 1
    random_outputs: bool = False
    image: ImageBands = ImageBands()
    json_rules: tuple[JsonRule, ...] = ()
    top_k: int = 5
    score_tolerance: float = 0.01
    max_json_bytes: int = 8 * 1024 * 1024
    max_json_depth: int = 200
    max_body_bytes: int = 64 * 1024 * 1024
    value_path: str = ""
    bodies: Bodies = Bodies.ALL
    kept_matches_percent: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what no verdict could be drawn from."""
        if self.baseline == self.candidate:
            raise ValueError(f"route {self.route}: baseline and candidate are both {self.baseline!r}")
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"route {self.route}: alpha is {self.alpha}, must be between 0 and 0.5")
        if self.slo_percentile not in (95, 99):
            raise ValueError(f"route {self.route}: slo_percentile is {self.slo_percentile}, must be 95 or 99")

    @property
    def slo_margin(self) -> float:
        """The share of requests that may miss the latency objective."""
        return self.margins.slo_misses if self.margins.slo_misses is not None else 1 - self.slo_percentile / 100

    @property
    def reject_alpha(self) -> float:
        """The error a single gate may spend on rejecting, so that all routes together stay within ``alpha``."""
        return self.alpha / (max(1, self.routes) * len(GATES))

    def rate_t_opt(self, margin: float) -> float:
        """Return at how many trials the interval of a rate with this margin is tightest."""
        return self.tuned_for.rate if self.tuned_for.rate is not None else 3 / margin


_UNPROMISED = frozenset({"mirror_percent", "routes", "deadline_s", "bodies", "kept_matches_percent"})
_MEASURED_BY = (
    "route", "baseline", "candidate", "kind", "image", "json_rules", "top_k", "score_tolerance", "max_json_bytes",
    "max_json_depth", "max_body_bytes", "value_path", "min_cosine", "min_jaccard", "min_iou", "min_f1", "box_format",
    "min_similarity",
)  # fmt: skip


def policy_hash(policy: Policy) -> str:
    """Return 12 hex digits that change with anything that a verdict promises."""
    return digest({name: value for name, value in asdict(policy).items() if name not in _UNPROMISED})


def measurement_key(policy: Policy) -> str:
    """Return 12 hex digits that change with anything that changes a measurement."""
    everything = asdict(policy)
    return digest({name: everything[name] for name in _MEASURED_BY})


def digest(values: Mapping[str, object]) -> str:
    """Return 12 hex digits of the values."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]
