"""Two pictures: the same, the same to the eye, different, or broken."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from compare.kernels.depth import same_values, stretched
from compare.kernels.perceptual import can_score, ssimulacra2
from compare.kernels.pixels import LOSSLESS_FORMATS, Picture, Pixels, Undecodable, decode, decode_frames
from compare.kernels.probes import diagnose
from compare.kernels.scores import Scores, score
from compare.measurement import Critical, Diagnosis, Judgement, Number, OutputClass
from compare.phrases import mark, plain, say
from compare.policy import ImageBands

BandName = Literal["lossless", "lossy", "restore"]
_FRAMES_COMPARED = 64
_SAME_TIME_MS = 10.0
"""What a GIF, which counts in hundredths of a second, may round a duration by."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """Both sides decoded, and the orientation that the request's picture carried (``None`` when not known)."""

    baseline: Picture
    candidate: Picture
    request_orientation: int | None = None


def decode_to_compare(
    baseline: bytes, candidate: bytes, bands: ImageBands, request_orientation: int | None
) -> Pictures | Judgement:
    """Return two pictures of one size that are not equal, or the judgement that is clear without looking closer."""
    pictures = _decode_both(baseline, candidate, bands, request_orientation)
    return pictures if isinstance(pictures, Judgement) else _sizes_or_equality(pictures) or pictures


def _decode_both(
    baseline: bytes, candidate: bytes, bands: ImageBands, request_orientation: int | None
) -> Pictures | Judgement:
    """Return both pictures, or the judgement on what is none. A picture beyond the cap cannot be judged."""
    old, new = decode(baseline, bands.max_pixels), decode(candidate, bands.max_pixels)
    if isinstance(old, Picture) and isinstance(new, Picture):
        return Pictures(*stretched(old, new), request_orientation)
    if baseline == candidate:
        return Judgement(OutputClass.IDENTICAL, note=say("equal bytes that are no picture we can decode"))
    for name, side in (("baseline", old), ("candidate", new)):
        if isinstance(side, Undecodable) and side.too_large:
            words = say("the {side}'s picture is too large to compare: {why}", side=plain(name), why=side.why)
            return Judgement(None, note=words)
    if isinstance(new, Undecodable) and isinstance(old, Undecodable):
        return Judgement(None, note=say("neither answer is a picture: {old}; {new}", old=old.why, new=new.why))
    if isinstance(new, Undecodable):
        words = say("the {side}'s answer is no usable picture: {why}", side=plain("candidate"), why=new.why)
        found = Diagnosis("undecodable", words)
        return Judgement(OutputClass.BROKEN, diagnoses=(found,), critical=Critical.UNDECODABLE)
    why = old.why if isinstance(old, Undecodable) else ""
    words = say("the {side}'s answer is no usable picture: {why}", side=plain("baseline"), why=why)
    return Judgement(OutputClass.BROKEN, diagnoses=(Diagnosis("baseline_undecodable", words),))


def judge_image(
    baseline: bytes,
    candidate: bytes,
    bands: ImageBands,
    *,
    restore: bool = False,
    request_orientation: int | None = None,
) -> Judgement:
    """Compare two encoded pictures."""
    pictures = _decode_both(baseline, candidate, bands, request_orientation)
    if isinstance(pictures, Judgement):
        return pictures
    band: BandName | None = "restore" if restore else None
    first = compare_pictures(pictures, bands, band)
    frames = pictures.baseline.frames, pictures.candidate.frames
    if first.output_class is None or first.output_class.mismatch or frames == (1, 1):
        return first
    if frames[0] != frames[1]:
        words = Diagnosis("frames", say("{n} frames where the baseline has {old}", n=frames[1], old=frames[0]))
        return Judgement(OutputClass.DIFFERENT, first.numbers, (words,))
    found = _compare_frames(baseline, candidate, bands, band, first)
    if found.output_class is None or found.output_class.mismatch:
        return found
    return _compare_pace(baseline, candidate, bands, found)


def _compare_pace(baseline: bytes, candidate: bytes, bands: ImageBands, so_far: Judgement) -> Judgement:
    """Compare how long the frames of two animations are shown."""
    sides = (islice(decode_frames(side, bands.max_pixels), _FRAMES_COMPARED) for side in (baseline, candidate))
    pairs = zip(*sides, strict=False)
    times = [(a.lasts_ms, b.lasts_ms) for a, b in pairs if isinstance(a, Picture) and isinstance(b, Picture)]
    if all(abs(a - b) <= _SAME_TIME_MS for a, b in times):
        return so_far
    old, new = (sum(side) for side in zip(*times, strict=True))
    words = say("the frames are shown for {new:g} ms where the baseline's are for {old:g}", new=new, old=old)
    return Judgement(OutputClass.DIFFERENT, so_far.numbers, (Diagnosis("pace", words),))


def _compare_frames(
    baseline: bytes, candidate: bytes, bands: ImageBands, band: BandName | None, first: Judgement
) -> Judgement:
    """Compare the further frames of two animations, up to ``_FRAMES_COMPARED``; the first mismatch decides."""
    worst, count = first, 1
    sides = (islice(decode_frames(side, bands.max_pixels), 1, _FRAMES_COMPARED + 1) for side in (baseline, candidate))
    for old, new in zip(*sides, strict=False):
        if count == _FRAMES_COMPARED:
            note = say("only the first {n} frames were compared", n=count)
            return Judgement(worst.output_class, {**worst.numbers, "frames_compared": count}, note=note)
        count += 1
        if not (isinstance(old, Picture) and isinstance(new, Picture)):
            return _damaged_frame(old, new, count, worst)
        found = compare_pictures(Pictures(*stretched(old, new)), bands, band)
        if found.output_class is not None and found.output_class.mismatch:
            numbers = {**found.numbers, "frame": count}
            note = say("frame {n} differs", n=count)
            return Judgement(found.output_class, numbers, found.diagnoses, found.critical, note)
        worst = found if found.output_class is OutputClass.EQUIVALENT else worst
    return Judgement(worst.output_class, {**worst.numbers, "frames_compared": count}, note=worst.note)


def _damaged_frame(old: Picture | Undecodable, new: Picture | Undecodable, number: int, so_far: Judgement) -> Judgement:
    if isinstance(old, Undecodable) and isinstance(new, Undecodable):
        note = say("frame {n} is damaged on both sides: only those before it were compared", n=number)
        return Judgement(so_far.output_class, {**so_far.numbers, "frames_compared": number - 1}, note=note)
    side = "candidate" if isinstance(new, Undecodable) else "baseline"
    words = Diagnosis(
        "undecodable" if side == "candidate" else "baseline_undecodable",
        say("frame {n} of the {side}'s answer is damaged", n=number, side=plain(side)),
    )
    critical = Critical.UNDECODABLE if side == "candidate" else None
    return Judgement(OutputClass.BROKEN, so_far.numbers, (words,), critical)


def compare_pictures(pictures: Pictures, bands: ImageBands, band: BandName | None = None) -> Judgement:
    """Compare two decoded pictures; without a ``band`` it follows from the formats."""
    early = _sizes_or_equality(pictures)
    if early is not None:
        return early
    a, b = same_channels(pictures.baseline, pictures.candidate)
    name = band or natural_band(pictures)
    scores = score(_as_seen(a), _as_seen(b), structure=name != "lossless")  # that band looks at levels alone
    alpha_differs = pictures.baseline.has_alpha != pictures.candidate.has_alpha
    fits = within(scores, bands, name) and not (alpha_differs and bool((a[..., 3] != b[..., 3]).any()))
    numbers = describe(scores, name)
    seen, note = _ask_people(a, b, bands, name, numbers)
    if fits and not seen:
        return Judgement(OutputClass.EQUIVALENT, numbers, note=note)
    return Judgement(OutputClass.DIFFERENT, numbers, (*seen, *_explain(pictures, scores)), note=note)


def _ask_people(
    a: Pixels, b: Pixels, bands: ImageBands, name: BandName, numbers: dict[str, Number]
) -> tuple[tuple[Diagnosis, ...], str]:
    """Put the SSIMULACRA2 score among the numbers where the band has a limit for it; say when it is below, or that
    this picture cannot be scored and is judged by its tiles alone."""
    limit = {"lossy": bands.lossy_ssimulacra2, "restore": bands.restore_ssimulacra2}.get(name)
    if limit is None:
        return (), ""
    if not can_score(a):
        return (), say("too small or too large for SSIMULACRA2: judged by its tiles alone")
    found = ssimulacra2(a, b)
    numbers["ssimulacra2"] = round(found, 1)
    if found >= limit:
        return (), ""
    words = say(
        "people would see the difference: SSIMULACRA2 {found:.0f}, at least {limit:.0f} asked", found=found, limit=limit
    )
    return (Diagnosis("perceptible", words),), ""


def _explain(pictures: Pictures, scores: Scores) -> tuple[Diagnosis, ...]:
    found = diagnose(pictures.baseline, pictures.candidate, pictures.request_orientation)
    if found:
        return found
    x, y = scores.worst_tile
    source, levels = (
        mark("the pictures differ most around ({x}, {y}), by {levels:.0f} levels in that tile"),
        scores.tile_mae,
    )
    return (Diagnosis("local", say(source, x=x, y=y, levels=levels)),)


def _sizes_or_equality(pictures: Pictures) -> Judgement | None:
    """Return the judgement when sizes differ or all decoded values are equal, else ``None``."""
    old, new = pictures.baseline, pictures.candidate
    if old.size != new.size:
        numbers: dict[str, Number] = {
            "baseline_width": old.size[0],
            "baseline_height": old.size[1],
            "candidate_width": new.size[0],
            "candidate_height": new.size[1],
        }
        return Judgement(
            OutputClass.BROKEN, numbers, diagnose(old, new, pictures.request_orientation), Critical.WRONG_SIZE
        )
    a, b = same_channels(old, new)
    if not np.array_equal(a, b):
        return None
    shown: dict[str, Number] = {"width": old.size[0], "height": old.size[1]}
    if old.bits <= 8 >= new.bits or same_values(old, new):
        return Judgement(OutputClass.IDENTICAL, shown)
    words = say("{old} bits a sample against {new}: the same in the highest 8", old=old.bits, new=new.bits)
    if old.values is not None and new.values is not None:
        words = say("values differ by less than a level of the 255 in their range")
    return Judgement(OutputClass.EQUIVALENT, shown, note=words)


def same_channels(old: Picture, new: Picture) -> tuple[Pixels, Pixels]:
    """Return both as RGB, or as RGBA when either has alpha; colour that nobody can see on both sides is set to 0."""
    if not (old.has_alpha or new.has_alpha):
        return old.pixels, new.pixels
    a, b = (np.dstack([picture.rgb, picture.alpha]) for picture in (old, new))
    hidden = (a[..., 3] == 0) & (b[..., 3] == 0)
    a[hidden], b[hidden] = 0, 0
    return a, b


def _as_seen(pixels: Pixels) -> Pixels:
    """Return RGBA with its colours weighted by their alpha: nobody sees the colour of what is nearly clear, and a tool
    that multiplied by alpha and divided again rounded it away. RGB comes back as it is."""
    if pixels.shape[2] == 3:
        return pixels
    colour = (pixels[..., :3].astype(np.uint16) * pixels[..., 3:] + 127) // 255
    return np.dstack([colour.astype(np.uint8), pixels[..., 3:]])


def natural_band(pictures: Pictures) -> BandName:
    """Return the lossless band when both sides use a lossless format."""
    return "lossless" if {pictures.baseline.format, pictures.candidate.format} <= LOSSLESS_FORMATS else "lossy"


def within(scores: Scores, bands: ImageBands, name: BandName) -> bool:
    """Whether the numbers lie inside the band. Below the SSIM window pixel differences decide."""
    if name == "lossless":
        return (
            scores.psnr_db >= bands.lossless_psnr_db
            and scores.tile_mae <= bands.lossless_tile_mae
            and scores.patch_mae <= bands.lossless_patch_mae
        )
    if scores.tile_ssim is None:
        return scores.tile_mae <= bands.lossy_tile_bias
    least = bands.restore_tile_ssim if name == "restore" else bands.lossy_tile_ssim
    return (
        scores.tile_ssim >= least
        and scores.tile_bias <= bands.lossy_tile_bias
        and scores.patch_mae <= bands.lossy_patch_mae
    )


def describe(scores: Scores, band: str) -> dict[str, Number]:
    """Return the numbers by name, rounded to what can be told apart."""
    return {
        "band": band,
        "psnr_db": round(scores.psnr_db, 2) if math.isfinite(scores.psnr_db) else None,
        "ssim": None if scores.ssim is None else round(scores.ssim, 4),
        "tile_ssim": None if scores.tile_ssim is None else round(scores.tile_ssim, 4),
        "tile_mae": round(scores.tile_mae, 2),
        "tile_bias": round(scores.tile_bias, 2),
        "patch_mae": round(scores.patch_mae, 2),
        "worst_tile": f"{scores.worst_tile[0]}, {scores.worst_tile[1]}",
    }
