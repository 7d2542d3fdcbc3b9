"""Colours for what is transparent, before a picture is enlarged."""

from __future__ import annotations

import cv2
import numpy as np

from onprem_backend.images import BACKGROUND, Picture, Pixels


def spread_colours(picture: Picture) -> Pixels:
    """Return ``rgb`` where each fully transparent pixel has the colour of the nearest one that is not: any other would
    be mixed into the edge as the picture grows, and show there as a fringe. Takes nine more bytes per pixel."""
    alpha = picture.alpha
    if alpha is None or alpha.min() > 0:
        return picture.rgb
    if alpha.max() == 0:
        return np.full_like(picture.rgb, BACKGROUND)
    hidden = (alpha == 0).astype(np.uint8)
    _, nearest = cv2.distanceTransformWithLabels(
        hidden, cv2.DIST_L2, cv2.DIST_MASK_5, labelType=cv2.DIST_LABEL_PIXEL
    )  # each pixel's label is that of the nearest pixel of value 0
    seen = hidden == 0
    colours = np.empty((int(nearest.max()) + 1, 3), dtype=np.uint8)
    colours[nearest[seen]] = picture.rgb[seen]
    return colours[nearest]
