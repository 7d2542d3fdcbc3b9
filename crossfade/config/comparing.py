"""What the config says of the comparison of a route's outputs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from crossfade.config.section import Section

Kind = Literal[
    "image", "cutout", "face_blur", "erase", "restore", "classification", "embedding", "tags", "boxes", "json", "text",
    "events", "chat", "bytes",
]  # fmt: skip
RuleName = Literal[
    "exact", "ordered", "tolerance", "ignore", "set", "ranking", "embedding", "tags", "boxes", "text"
]  # fmt: skip
JsonPath = Annotated[str, Field(pattern=r"^[^\s]+$", max_length=200)]
Share = Annotated[float, Field(gt=0, le=1)]
Levels = Annotated[float, Field(ge=0, le=255)]
Perceived = Annotated[float, Field(gt=0, le=100)] | None
_PERCEIVED = "left out: not asked (needs crossfade[perceptual], about a second a picture)"


class ComparisonConfig(Section):
    """Where the comparison measures."""

    engine: Literal["local", "ray"] = Field(
        "local", description="local: processes of this machine, each within a time and a memory; ray: a Ray cluster"
    )
    folder: str | None = Field(
        None, description="for ray on several machines: a folder that all share, for the batch under way"
    )


class JsonRuleConfig(Section):
    """How one path of a JSON answer is compared; the rule governs everything below the path, too."""

    path: JsonPath = Field(description="such as items[*].score")
    rule: RuleName = Field(
        description="exact; ordered (a list whose order counts); tolerance (abs_tol + rel_tol x the larger number); "
        "ignore; set (a list in any order); ranking (labels with scores); embedding (cosine); tags (common share); "
        "boxes (F1 of matched boxes); text (chrF)"
    )
    abs_tol: Annotated[float, Field(ge=0)] = Field(0.0, description="for tolerance, and the scores of a ranking")
    rel_tol: Annotated[float, Field(ge=0, le=1)] = Field(0.0, description="for tolerance")
    label: str = Field("label", description="for ranking: the key of a label")
    score: str = Field("prob", description="for ranking: the key of a score")
    min_cosine: Share = Field(0.999, description="for embedding")
    min_jaccard: Share = Field(0.8, description="for tags")
    min_iou: Share = Field(0.5, description="for boxes: from which overlap on two boxes are the same")
    min_f1: Share = Field(0.95, description="for boxes")
    box_format: Literal["xyxy", "xywh"] = Field("xyxy", description="for boxes: two corners, or a corner and a size")
    min_similarity: Share = Field(0.8, description="for text: the least chrF")


class PictureBands(Section):
    """What still counts as the same picture. ``lossless`` when both sides send PNG, BMP, TIFF or GIF; ``lossy`` else;
    ``restore`` for that kind."""

    lossless_psnr_db: Annotated[float, Field(ge=0)] = Field(45.0, description="the least PSNR, decibels")
    lossless_tile_mae: Levels = Field(2.0, description="the most mean error of a 32 x 32 tile, levels")
    lossless_patch_mae: Levels = Field(8.0, description="the most mean error of an 8 x 8 patch, levels")
    lossy_tile_ssim: Share = Field(0.90, description="the least SSIM of a tile")
    lossy_tile_bias: Levels = Field(6.0, description="the most colour cast of a tile, levels")
    lossy_patch_mae: Levels = Field(32.0, description="the most mean error of an 8 x 8 patch, levels")
    lossy_ssimulacra2: Perceived = Field(None, description=f"the least SSIMULACRA2, such as 85; {_PERCEIVED}")
    restore_tile_ssim: Share = Field(0.85, description="the least SSIM of a tile")
    restore_ssimulacra2: Perceived = Field(None, description=f"the least SSIMULACRA2, such as 80; {_PERCEIVED}")
    erase_inside_ssim: Share = Field(0.50, description="the least SSIM of a tile inside of the mask")
    cutout_iou: Share = Field(0.99, description="the least overlap of the outlines")
    cutout_alpha_mad: Share = Field(0.005, description="the most mean difference of alpha, as a share")
    cutout_psnr_db: Annotated[float, Field(ge=0)] = Field(
        40.0, description="the least PSNR on any background, decibels"
    )
    cutout_tile_mae: Levels = Field(4.0, description="the most mean error of a tile on any background, levels")
    face_iou: Share = Field(0.5, description="from which overlap on two blurred regions are the same face")


class CompareConfig(Section):
    """What a route must show before it may move. Margins are shares of requests (0.01 = 1 %) except latency_ratio."""

    kind: Kind | None = Field(None, description="left out: chosen by the content type of the answers")
    latency_slo_s: Annotated[float, Field(gt=0)] | None = Field(None, description="latency objective of the candidate")
    slo_percentile: Literal[95, 99] = Field(95, description="which share must meet the objective: 95 or 99 %")
    alpha: Annotated[float, Field(gt=0, lt=0.5)] = Field(
        0.05, description="error rate of a verdict, at all looks at once"
    )
    latency_ratio: Annotated[float, Field(gt=1)] = Field(1.10, description="most that the median pair may be slower")
    error_margin: Annotated[float, Field(gt=0, lt=1)] = Field(0.01, description="errors of the candidate alone")
    mismatch_margin: Annotated[float, Field(gt=0, lt=1)] = Field(0.02, description="different outputs above noise")
    critical_margin: Annotated[float, Field(gt=0, lt=1)] = Field(0.005, description="missed faces, wrong sizes, damage")
    min_pairs: Annotated[int, Field(ge=1)] = Field(60, description="the fewest pairs for a promote")
    min_span_s: Annotated[float, Field(ge=0)] = Field(86400.0, description="the least time that the pairs must span")
    min_coverage: Annotated[float, Field(gt=0, le=1)] = Field(0.98, description="compared share of what was sampled")
    ignore: tuple[JsonPath, ...] = Field((), description="JSON paths that are not compared, such as items[*].id")
    rules: tuple[JsonRuleConfig, ...] = Field((), description="how single JSON paths are compared")
    value_path: str = Field(
        "",
        description="where in a JSON answer the classes, embedding, tags or boxes are; left out: predictions, "
        "data[*].embedding, tags, boxes",
    )
    min_similarity: Share = Field(0.8, description="of texts and chats: the least chrF that still counts as the same")
    score_tolerance: Annotated[float, Field(ge=0)] = Field(0.01, description="how far two class scores may be apart")
    image: PictureBands = Field(PictureBands(), description="for pictures: what still counts as the same")
    random_outputs: bool = Field(False, description="the model never answers the same bytes twice")

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        paths = [*self.ignore, *(rule.path for rule in self.rules)]
        twice = next((path for path in paths if paths.count(path) > 1), None)
        if twice is not None:
            raise ValueError(f"the JSON path {twice} has two rules")
        return self
