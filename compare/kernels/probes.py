"""Say in a sentence what a mismatch looks like. Runs on mismatches only, on pictures reduced to a few hundred pixels.

A probe undoes one suspected change on the candidate; it speaks when that explains most of the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from compare.kernels.pixels import Picture
from compare.kernels.scores import channel_mean
from compare.measurement import Diagnosis
from compare.phrases import Phrase, mark, say

Sample = NDArray[np.floating[Any]]
_SIDE = 256
_EXPLAINED = 0.4
_LEAST_ERROR = 0.75

# Array operations that show a stored picture the way its EXIF orientation says (EXIF 2.3, tag 0x0112).
_UPRIGHT: dict[int, Callable[[Sample], Sample]] = {
    2: lambda x: x[:, ::-1],
    3: lambda x: x[::-1, ::-1],
    4: lambda x: x[::-1],
    5: lambda x: x.transpose(1, 0, 2),
    6: lambda x: x.transpose(1, 0, 2)[:, ::-1],
    7: lambda x: x.transpose(1, 0, 2)[::-1, ::-1],
    8: lambda x: x.transpose(1, 0, 2)[::-1],
}
_TURNED = {
    2: ("mirrored", mark("the candidate's picture is mirrored left to right")),
    3: ("rotated", mark("the candidate's picture is turned by 180 degrees")),
    4: ("mirrored", mark("the candidate's picture is mirrored top to bottom")),
    5: ("mirrored", mark("the candidate's picture is mirrored along its diagonal")),
    6: ("rotated", mark("the candidate's picture is turned by 90 degrees to the left")),
    7: ("mirrored", mark("the candidate's picture is mirrored along its other diagonal")),
    8: ("rotated", mark("the candidate's picture is turned by 90 degrees to the right")),
}


def diagnose(baseline: Picture, candidate: Picture, request_orientation: int | None) -> tuple[Diagnosis, ...]:
    """Return what may have happened between two pictures that do not match, the most telling first."""
    found = [*_orientation(baseline, candidate, request_orientation), *_alpha(baseline, candidate)]
    if baseline.size != candidate.size:
        return (*found, *_sizes(baseline, candidate))
    a, b = _sample(baseline), _sample(candidate)
    if not any(d.code in ("orientation_ignored", "rotated", "mirrored") for d in found):
        found += [*_colours(a, b), *_shift(baseline, candidate)] or [*_levels(a, b)]
    return (*found, *(_encoding(baseline, candidate) if not found else ()))


def _sample(picture: Picture) -> Sample:
    """Reduce to at most 256 pixels a side, transparency shown on mid grey."""
    width, height = picture.size
    scale = min(1.0, _SIDE / max(width, height))
    image = Image.fromarray(picture.pixels)
    if scale < 1:
        image = image.resize((max(1, round(width * scale)), max(1, round(height * scale))), Image.Resampling.BOX)
    pixels = np.asarray(image).astype(np.float32)
    if pixels.shape[2] == 3:
        return pixels
    alpha = pixels[..., 3:] / 255
    flattened: Sample = pixels[..., :3] * alpha + 128 * (1 - alpha)
    return flattened


def _distance(a: Sample, b: Sample) -> float:
    return float(np.abs(a - b).mean())


def _explains(a: Sample, before: Sample, after: Sample) -> bool:
    error = _distance(a, before)
    return error > _LEAST_ERROR and _distance(a, after) <= _EXPLAINED * error


def _orientation(baseline: Picture, candidate: Picture, orientation: int | None) -> Iterator[Diagnosis]:
    tag = orientation or 1
    swapped_sides = baseline.size == candidate.size[::-1] and baseline.size[0] != baseline.size[1]
    if swapped_sides and tag >= 5:
        yield orientation_ignored(tag)
        return
    turned = _turned(_sample(baseline), _sample(candidate))
    if turned is None:
        return
    code, source = _TURNED[turned]
    if turned == tag:
        yield orientation_ignored(tag)
    yield Diagnosis(code, say(source))


def orientation_ignored(tag: int) -> Diagnosis:
    """Return the diagnosis for a candidate that took the stored pixels for the upright picture."""
    source = mark("the candidate seems to ignore the EXIF orientation tag: the request's picture carries {tag}")
    return Diagnosis("orientation_ignored", say(source, tag=tag))


def _turned(a: Sample, b: Sample) -> int | None:
    """Return the orientation whose correction brings the candidate closest to the baseline, if one does."""
    mean = a.mean(axis=(0, 1), keepdims=True)
    error = _distance(a, b) if a.shape == b.shape else _distance(a, np.broadcast_to(mean, a.shape))
    fits = {o: _distance(a, turn(b)) for o, turn in _UPRIGHT.items() if turn(b).shape == a.shape}
    best = min(fits, key=lambda o: fits[o], default=None)
    return best if best is not None and error > _LEAST_ERROR and fits[best] <= _EXPLAINED * error else None


def _alpha(baseline: Picture, candidate: Picture) -> Iterator[Diagnosis]:
    if baseline.has_alpha and not candidate.has_alpha:
        yield Diagnosis("alpha_missing", say("the candidate's picture has no alpha channel"))
    elif candidate.has_alpha and not baseline.has_alpha:
        yield Diagnosis("alpha_added", say("only the candidate's picture has an alpha channel"))
    elif baseline.has_alpha and baseline.size == candidate.size:
        share = baseline.alpha[..., None].astype(np.float32) / 255
        straight, other = baseline.rgb.astype(np.float32), candidate.rgb.astype(np.float32)
        if (
            _explains(straight * share, straight, other)
            and _distance(straight * share, other) < _distance(straight, other) / 2
        ):
            yield Diagnosis("premultiplied", say("the candidate's colours seem to be multiplied by alpha already"))


def _sizes(baseline: Picture, candidate: Picture) -> Iterator[Diagnosis]:
    (w0, h0), (w1, h1) = baseline.size, candidate.size
    sizes = {"old": f"{w0} x {h0}", "new": f"{w1} x {h1}"}
    words = say("different size: the baseline's picture is {old}, the candidate's {new}", **sizes)
    if abs(w1 / w0 - h1 / h0) <= 0.02:
        words = say("{sizes}, {times:.3g} times the size", sizes=words, times=w1 / w0)
    yield Diagnosis("size", words)


def _colours(a: Sample, b: Sample) -> Iterator[Diagnosis]:
    if _explains(a, b, b[..., ::-1]):
        yield Diagnosis("red_blue_swapped", say("red and blue are swapped in the candidate's picture"))
    elif _explains(a, b, 255 - b):
        yield Diagnosis("inverted", say("the candidate's picture is inverted"))


def _shift(baseline: Picture, candidate: Picture) -> Iterator[Diagnosis]:
    """Find a whole-pixel shift by phase correlation of the middle, at full resolution."""
    a, b = _middle(baseline), _middle(candidate)
    if min(a.shape) < 16:
        return
    spectrum = np.fft.rfft2(a - a.mean()) * np.conj(np.fft.rfft2(b - b.mean()))
    peak = np.fft.irfft2(spectrum / np.maximum(np.abs(spectrum), 1e-9), s=a.shape)
    y, x = np.unravel_index(int(peak.argmax()), peak.shape)
    dy, dx = (int(n) if n <= length // 2 else int(n) - length for n, length in zip((y, x), a.shape, strict=True))
    if (dy, dx) == (0, 0) or abs(dy) > a.shape[0] // 4 or abs(dx) > a.shape[1] // 4:
        return
    edge = (slice(abs(dy), a.shape[0] - abs(dy)), slice(abs(dx), a.shape[1] - abs(dx)))
    if _explains(a[edge], b[edge], np.roll(b, (dy, dx), (0, 1))[edge]):
        yield Diagnosis("shifted", say("the candidate's picture is shifted by ({x}, {y}) pixels", x=-dx, y=-dy))


def _middle(picture: Picture) -> Sample:
    side = 512
    width, height = picture.size
    left, top = max(0, (width - side) // 2), max(0, (height - side) // 2)
    middle = picture.rgb[top : top + side, left : left + side].astype(np.float32)
    return channel_mean(middle)


def _levels(a: Sample, b: Sample) -> Iterator[Diagnosis]:
    """Fit candidate = gain x baseline + offset, then a gamma; report the first that explains the difference."""
    x, y = a.ravel().astype(np.float64), b.ravel().astype(np.float64)
    spread = float(x.var())
    if spread < 1:
        return
    gain = float(np.cov(x, y, bias=True)[0, 1] / spread)
    offset = float(y.mean() - gain * x.mean())
    if gain > 0.1 and _explains(a, b, (b - offset) / gain):
        source = mark("the candidate's levels are {gain:.2f} times the baseline's plus {offset:+.0f}")
        yield Diagnosis("levels", say(source, gain=gain, offset=offset))
        return
    usable = (x > 8) & (x < 247) & (y > 8) & (y < 247)
    if usable.sum() < 100:
        return
    gamma = float((np.log(y[usable] / 255) / np.log(x[usable] / 255)).mean())
    if gamma > 0.1 and _explains(a, b, 255 * np.clip(b / 255, 0, 1) ** np.float32(1 / gamma)):
        words = say("the candidate's picture has a gamma of {gamma:.2f} against the baseline's", gamma=gamma)
        yield Diagnosis("gamma", words)


def _encoding(baseline: Picture, candidate: Picture) -> Iterator[Diagnosis]:
    if baseline.format != candidate.format:
        formats = {"old": baseline.format, "new": candidate.format}
        yield Diagnosis("reencoding", say("the baseline sends {old}, the candidate {new}", **formats))
        return
    sides = [(p.quality, p.subsampling) for p in (baseline, candidate)]
    if baseline.quality is not None and sides[0] != sides[1]:
        old, new = (_jpeg(*side) for side in sides)
        source = mark(
            "re-encoding: the baseline sends {old}, the candidate {new}; "
            "a band from the route's own control pairs fits better"
        )
        yield Diagnosis("reencoding", say(source, old=old, new=new))


def _jpeg(quality: int | None, colour: str | None) -> Phrase:
    if colour:
        return say("JPEG quality {quality} with {colour} colour", quality=quality, colour=colour)
    return say("JPEG quality {quality} with other colour", quality=quality)
