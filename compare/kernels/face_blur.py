"""Face blur: what did each side change against the *input*? A region that only the baseline changed is a face left
visible.

Regions are found in the pixels, not in anything a backend says about itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation, find_objects, label, laplace, uniform_filter
from scipy.optimize import linear_sum_assignment

from compare.kernels.image import Pictures, compare_pictures, decode_to_compare
from compare.kernels.pixels import Picture, Pixels, decode
from compare.kernels.scores import error_map
from compare.measurement import Critical, Diagnosis, Judgement, Number, OutputClass
from compare.phrases import mark, say
from compare.policy import ImageBands

Mask = NDArray[np.bool_]
_SMOOTHING = 9
_CHANGED_LEVELS = 6.0
_LEAST_AREA = 64
_WHOLE_PICTURE = 0.6
_COVERED = 0.5
_MUCH_WEAKER = 4.0


@dataclass(frozen=True, slots=True)
class Region:
    """A changed area by its bounding box: left, top, width, height in pixels."""

    x: int
    y: int
    width: int
    height: int

    @property
    def slices(self) -> tuple[slice, slice]:
        """Rows and columns."""
        return slice(self.y, self.y + self.height), slice(self.x, self.x + self.width)

    @property
    def inner(self) -> tuple[slice, slice]:
        """Rows and columns of the middle half: what is hidden, without the edge of what hides it."""
        y, x, height, width = self.y, self.x, self.height, self.width
        return slice(y + height // 4, y + height - height // 4), slice(x + width // 4, x + width - width // 4)

    def iou(self, other: Region) -> float:
        """Return intersection over union of the boxes."""
        wide = min(self.x + self.width, other.x + other.width) - max(self.x, other.x)
        high = min(self.y + self.height, other.y + other.height) - max(self.y, other.y)
        shared = max(0, wide) * max(0, high)
        return shared / (self.width * self.height + other.width * other.height - shared)

    def __str__(self) -> str:
        return f"{self.width} x {self.height} at ({self.x}, {self.y})"


def judge_face_blur(
    source: bytes | None, baseline: bytes, candidate: bytes, bands: ImageBands, request_orientation: int | None = None
) -> Judgement:
    """Compare two answers to the picture ``source``; without it only the pictures are compared, and the note says
    so."""
    pictures = decode_to_compare(baseline, candidate, bands, request_orientation)
    if isinstance(pictures, Judgement):
        return pictures
    original = decode(source, bands.max_pixels) if source else None
    if not isinstance(original, Picture) or original.size != pictures.baseline.size:
        return replace(compare_pictures(pictures, bands), note=say("no input to find faces with"))
    return _compare_regions(original, pictures, bands)


def _compare_regions(original: Picture, pictures: Pictures, bands: ImageBands) -> Judgement:
    plain = compare_pictures(pictures, bands)
    old, new = (changed(original.rgb, side.rgb) for side in (pictures.baseline, pictures.candidate))
    if new.mean() > _WHOLE_PICTURE:
        # The candidate changed everything (rotated, recoloured): no face stands out, and the picture itself tells the
        # story. What the baseline changed does not count: in a close-up that may be one face that fills the picture.
        return plain
    expected, actual = regions(old), regions(new)
    pairs = match(expected, actual, bands.face_iou)
    missed = [r for i, r in enumerate(expected) if i not in pairs and new[r.slices][old[r.slices]].mean() < _COVERED]
    extra = [
        r for j, r in enumerate(actual) if j not in pairs.values() and old[r.slices][new[r.slices]].mean() < _COVERED
    ]
    strength = _strength([r for r in expected if r not in missed], pictures)
    numbers: dict[str, Number] = {
        **plain.numbers, "regions_baseline": len(expected), "regions_candidate": len(actual),
        "missed": len(missed), "extra": len(extra), "detail_ratio": strength,
    }  # fmt: skip
    if missed:
        source = mark(
            "a face was not blurred: the baseline changed a region of {region} that the candidate left as it was"
        )
        words = Diagnosis("missed_face", say(source, region=str(missed[0])))
        return Judgement(OutputClass.DIFFERENT, numbers, (words, *plain.diagnoses), Critical.MISSED_FACE)
    return Judgement(plain.output_class, numbers, (*_minor(extra, strength), *plain.diagnoses))


def _minor(extra: list[Region], strength: float | None) -> list[Diagnosis]:
    found = []
    if extra:
        found.append(
            Diagnosis("extra_region", say("only the candidate changed a region of {region}", region=str(extra[0])))
        )
    if strength is not None and strength > _MUCH_WEAKER:
        words = say("the candidate leaves {times:.1f} times as much detail in the blurred faces", times=strength)
        found.append(Diagnosis("weaker_blur", words))
    return found


def changed(original: Pixels, result: Pixels) -> Mask:
    """Return where a result differs from the input by more than re-encoding does, ``(H, W)``."""
    smooth: Mask = uniform_filter(error_map(original, result), _SMOOTHING) > _CHANGED_LEVELS
    return smooth


def regions(mask: Mask) -> list[Region]:
    """Return the connected changed areas. Smooth skin hardly changes under a blur, so fragments nearby belong
    together."""
    reach = max(2, min(mask.shape) // 60)
    labels, _ = label(binary_dilation(mask, iterations=reach))
    found = []
    for number, (rows, columns) in enumerate(find_objects(labels), 1):
        inside = mask[rows, columns] & (labels[rows, columns] == number)
        if inside.sum() < max(_LEAST_AREA, mask.size // 5000):
            continue
        ys, xs = np.nonzero(inside)
        left, top = columns.start + int(xs.min()), rows.start + int(ys.min())
        found.append(Region(left, top, int(np.ptp(xs)) + 1, int(np.ptp(ys)) + 1))
    return found


def match(expected: list[Region], actual: list[Region], least_iou: float) -> dict[int, int]:
    """Return the best assignment of regions, Hungarian on 1 - IoU, of pairs that overlap enough."""
    if not expected or not actual:
        return {}
    overlap = np.array([[a.iou(b) for b in actual] for a in expected])
    rows, columns = linear_sum_assignment(1 - overlap)
    return {int(i): int(j) for i, j in zip(rows, columns, strict=True) if overlap[i, j] >= least_iou}


def _strength(areas: list[Region], pictures: Pictures) -> float | None:
    """Return how much detail (variance of the Laplacian) the candidate left inside the regions per unit of the
    baseline's."""
    if not areas:
        return None
    old, new = (
        float(np.mean([laplace(side.rgb[r.inner].astype(np.float32).mean(axis=-1)).var() for r in areas]))
        for side in (pictures.baseline, pictures.candidate)
    )
    return round((new + 1) / (old + 1), 2)
