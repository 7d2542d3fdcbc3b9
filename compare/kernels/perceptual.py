"""SSIMULACRA2, for routes that ask for it: how much of a difference people see (Sneyers 2022, the scale of libjxl).

100 is the same, 90 visually lossless, 80 not noticeable side by side, 70 perceptible, below 0 another picture. The
measure depends on which side is called the original, so both are and the lower score counts. Needs the extra
``perceptual`` and about a second for 512 x 512 pixels.
"""

from __future__ import annotations

import io

from PIL import Image

from compare.kernels.pixels import Pixels

LEAST_SIDE = 256
"""All six scales need it; the score of a smaller picture is on another scale."""
MOST_PIXELS = 4 * 1024 * 1024
"""More take seconds, and gigabytes of memory."""


def can_score(pixels: Pixels) -> bool:
    """Whether a picture of this shape, ``(H, W, C)``, can be judged."""
    height, width = (int(side) for side in pixels.shape[:2])
    return min(height, width) >= LEAST_SIDE and height * width <= MOST_PIXELS


def ssimulacra2(a: Pixels, b: Pixels) -> float:
    """Return the lower score of the two orders, at most 100. Transparency is shown on mid grey. Symmetric."""
    from ssimulacra2 import compute_ssimulacra2  # in an extra: most routes do not need it

    one, other = _encoded(a), _encoded(b)
    return float(min(compute_ssimulacra2(io.BytesIO(x), io.BytesIO(y)) for x, y in ((one, other), (other, one))))


def _encoded(pixels: Pixels) -> bytes:
    image = Image.fromarray(pixels)
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, (128, 128, 128, 255)), image).convert("RGB")
    buffer = io.BytesIO()
    image.save(buffer, "BMP")
    return buffer.getvalue()
