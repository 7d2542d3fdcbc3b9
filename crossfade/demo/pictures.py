"""Real pictures for the demo: variants of the photographs that scikit-image ships, made anew from a seed.

Every picture of a route is different. One in four carries an EXIF orientation (6 or 8) on a non-square picture, and
every route sees CMYK, RGBA and 16-bit inputs, because those are what real uploads break servers with.
"""

from __future__ import annotations

import io
import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from PIL import Image, ImageDraw
from skimage import data

ORIENTATION_TAG = 0x0112
UNTURN = {6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
"""What a camera did to the upright picture before it wrote the tag (EXIF 2.3 section 4.6.4)."""
FACE_BOX = (140, 0, 320, 240)
"""Where the astronaut's head is, in pixels (left, top, right, bottom) of the 512 x 512 photograph."""


@dataclass(frozen=True, slots=True)
class Upload:
    """One request's body: ``name`` tells a person what the picture is."""

    name: str
    body: bytes
    content_type: str


@cache
def _photograph(name: str) -> Image.Image:
    load: Callable[[], Any] = getattr(data, "stereo_motorcycle" if name == "motorcycle" else name)
    pixels = load()[0] if name == "motorcycle" else load()
    return Image.fromarray(pixels).convert("RGB")


def uploads(route: str, count: int, seed: int = 7) -> Iterator[Upload]:
    """Yield ``count`` different uploads for ``route``, the same ones for the same seed."""
    draw = random.Random(f"{route}/{seed}")  # noqa: S311 - pictures, not secrets
    for index in range(count):
        yield _MAKERS[route](index, draw)


def _small(index: int, draw: random.Random) -> Upload:
    names = ("astronaut", "coffee", "chelsea", "rocket", "motorcycle")
    return _encode(*_crop(names[index % 5], draw, sides=(160, 320)), index, draw)


def _faces(index: int, draw: random.Random) -> Upload:
    if index % 5 == 4:
        return _encode(*_crop(("chelsea", "coffee")[index % 2], draw, sides=(200, 320)), index, draw)
    left, _, right, bottom = FACE_BOX
    box = (left - draw.randint(0, 120), 0, right + draw.randint(0, 180), bottom + draw.randint(0, 240))
    width = draw.randint(260, 420)
    picture = _photograph("astronaut").crop(box)
    picture = picture.resize((width, round(width * picture.height / picture.width)), Image.Resampling.LANCZOS)
    return _encode("astronaut", _not_square(picture), index, draw)


def _tiny(index: int, draw: random.Random) -> Upload:
    names = ("astronaut", "coffee", "chelsea", "rocket", "motorcycle")
    return _encode(*_crop(names[index % 5], draw, sides=(56, 88)), index, draw)


def _with_mask(index: int, draw: random.Random) -> Upload:
    upload = _small(index, draw)
    with Image.open(io.BytesIO(upload.body)) as picture:
        turned = picture.getexif().get(ORIENTATION_TAG, 1) >= 5
        size = picture.size[::-1] if turned else picture.size
    mask = Image.new("L", size, 0)
    x, y = draw.randint(10, size[0] // 2), draw.randint(10, size[1] // 2)
    ImageDraw.Draw(mask).ellipse((x, y, x + size[0] // 4, y + size[1] // 5), fill=255)
    fields = {"file": (upload.body, upload.content_type), "mask": (_save(mask, "PNG"), "image/png")}
    body, content_type = _multipart(fields, uuid.UUID(int=draw.getrandbits(128)).hex)
    return Upload(upload.name, body, content_type)


_MAKERS: dict[str, Callable[[int, random.Random], Upload]] = {
    "classify": _small,
    "remove-background": _small,
    "face-blur": _faces,
    "restore": _tiny,
    "erase": _with_mask,
}


def _crop(name: str, draw: random.Random, sides: tuple[int, int]) -> tuple[str, Image.Image]:
    whole = _photograph(name)
    share = draw.uniform(0.6, 0.95)
    width, height = round(whole.width * share), round(whole.height * share * draw.uniform(0.7, 1.0))
    left, top = draw.randint(0, whole.width - width), draw.randint(0, whole.height - height)
    picture = whole.crop((left, top, left + width, top + height))
    long_side = draw.randint(*sides)
    scale = long_side / max(picture.size)
    size = (max(16, round(picture.width * scale)), max(16, round(picture.height * scale)))
    return name, _not_square(picture.resize(size, Image.Resampling.LANCZOS))


def _not_square(picture: Image.Image) -> Image.Image:
    width, height = picture.size
    return picture if abs(width - height) > 8 else picture.crop((0, 0, width, height - 12))


def _encode(name: str, picture: Image.Image, index: int, draw: random.Random) -> Upload:
    """Choose how picture number ``index`` is stored; twenty numbers go once through every form."""
    form = index % 20
    quality = draw.randint(86, 95)
    if form in {2, 6, 12}:
        return _turned(name, picture, 6, quality)
    if form in {4, 16}:
        return _turned(name, picture, 8, quality)
    if form == 9:
        return Upload(f"{name}, CMYK", _save(picture.convert("CMYK"), "JPEG", quality=quality), "image/jpeg")
    if form == 13:
        shaded = picture.copy()
        shaded.putalpha(Image.linear_gradient("L").resize(picture.size))
        return Upload(f"{name}, RGBA", _save(shaded, "PNG"), "image/png")
    if form == 18:
        deep = picture.convert("L").convert("I").point(lambda level: level * 257).convert("I;16")
        return Upload(f"{name}, 16 bit", _save(deep, "PNG"), "image/png")
    if form in {7, 15}:
        return Upload(f"{name}, PNG", _save(picture, "PNG"), "image/png")
    return Upload(name, _save(picture, "JPEG", quality=quality), "image/jpeg")


def _turned(name: str, picture: Image.Image, orientation: int, quality: int) -> Upload:
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    stored = picture.transpose(UNTURN[orientation])
    body = _save(stored, "JPEG", quality=quality, exif=exif)
    return Upload(f"{name}, orientation {orientation}", body, "image/jpeg")


def _save(picture: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


def _multipart(fields: dict[str, tuple[bytes, str]], boundary: str) -> tuple[bytes, str]:
    """Return an RFC 7578 form and its Content-Type."""
    parts = []
    for name, (content, content_type) in fields.items():
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n'
        parts.append(f"{head}Content-Type: {content_type}\r\n\r\n".encode() + content + b"\r\n")
    parts.append(f"--{boundary}--\r\n".encode())
    return b"".join(parts), f"multipart/form-data; boundary={boundary}"
