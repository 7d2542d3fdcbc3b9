"""Background removal: two pictures with alpha, judged by their masks and by what a viewer sees on any ground.

Alpha measures as in Rhemann et al., CVPR 2009: SAD and MAD of all pixels, MSE, Grad and Conn of the unknown band (see
``matting``; shown, not judged, and left out beyond ``_EDGE_PIXELS``, where they would take longer than all the rest);
IoU at alpha > .5; colour composited on a checkerboard, on black and on white, the worst of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from scipy.ndimage import label

from compare.kernels.image import Pictures, decode_to_compare
from compare.kernels.matting import edge_scores
from compare.kernels.pixels import Picture, Pixels
from compare.kernels.probes import diagnose
from compare.kernels.scores import error_map, psnr_db, tile_means
from compare.measurement import Critical, Diagnosis, Judgement, Number, OutputClass
from compare.phrases import say
from compare.policy import ImageBands

_SQUARE = 8
_EDGE_PIXELS = 4_000_000


def judge_cutout(
    baseline: bytes, candidate: bytes, bands: ImageBands, request_orientation: int | None = None
) -> Judgement:
    """Compare two encoded cut-outs. A cut-out without alpha is broken: nothing was cut out."""
    pictures = decode_to_compare(baseline, candidate, bands, request_orientation)
    if isinstance(pictures, Judgement):
        return pictures
    if pictures.baseline.has_alpha != pictures.candidate.has_alpha:
        found = diagnose(pictures.baseline, pictures.candidate, request_orientation)
        critical = Critical.BROKEN_SCHEMA if pictures.baseline.has_alpha else None
        return Judgement(OutputClass.BROKEN, diagnoses=found, critical=critical)
    return _compare_masks(pictures, bands)


def _compare_masks(pictures: Pictures, bands: ImageBands) -> Judgement:
    a, b = pictures.baseline.alpha, pictures.candidate.alpha
    apart = np.abs(a.astype(np.int16) - b)
    solid_a, solid_b = a > 127, b > 127
    union = int((solid_a | solid_b).sum())
    iou = int((solid_a & solid_b).sum()) / union if union else 1.0
    mad = float(apart.mean()) / 255
    psnr, tile = _worst_ground(pictures.baseline, pictures.candidate)
    numbers: dict[str, Number] = {
        "iou": round(iou, 5),
        "alpha_mad": round(mad, 6),
        "alpha_sad": round(float(apart.sum()) / 255, 2),
        "components_baseline": int(label(solid_a)[1]),
        "components_candidate": int(label(solid_b)[1]),
        "psnr_db": round(psnr, 2) if math.isfinite(psnr) else None,
        "tile_mae": round(tile, 2),
    }
    if a.size <= _EDGE_PIXELS:
        edge = edge_scores(a, b)
        numbers |= {
            "edge_mse": round(edge.mse, 6),
            "edge_grad": round(edge.grad, 3),
            "edge_conn": round(edge.conn, 3),
            "edge_pixels": edge.band_pixels,
        }
    mask_fits = iou >= bands.cutout_iou and mad <= bands.cutout_alpha_mad
    if mask_fits and psnr >= bands.cutout_psnr_db and tile <= bands.cutout_tile_mae:
        return Judgement(OutputClass.EQUIVALENT, numbers)
    found = diagnose(pictures.baseline, pictures.candidate, pictures.request_orientation)
    if not mask_fits:
        words = say("the cut-out has another outline: IoU {iou:.3f}, mean alpha error {mad:.4f}", iou=iou, mad=mad)
        found = (*found, Diagnosis("mask", words))
    colour = Diagnosis("colour", say("colours differ by {levels:.0f} levels", levels=tile))
    return Judgement(OutputClass.DIFFERENT, numbers, found or (colour,))


def _worst_ground(old: Picture, new: Picture) -> tuple[float, float]:
    """Return the lowest PSNR and the highest tile error over the three grounds."""
    scores = [
        (psnr_db(a, b), float(tile_means(error_map(a, b))[0].max()))
        for a, b in zip(_on_grounds(old), _on_grounds(new), strict=True)
    ]
    return min(psnr for psnr, _ in scores), max(tile for _, tile in scores)


def _on_grounds(picture: Picture) -> Iterator[Pixels]:
    height, width = picture.pixels.shape[:2]
    board = ((np.arange(height)[:, None] // _SQUARE + np.arange(width) // _SQUARE) % 2).astype(np.float32) * 255
    share = picture.alpha[..., None].astype(np.float32) / 255
    for ground in (board[..., None], np.float32(0), np.float32(255)):
        yield (picture.rgb * share + ground * (1 - share)).round().astype(np.uint8)
