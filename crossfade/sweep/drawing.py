"""A drawing of lines, dots and words that becomes SVG or PNG: the same shapes in both."""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from PIL import Image, ImageDraw, ImageFont

Point = tuple[float, float]
INK, SOFT, GRID, PAPER = "#1a2330", "#5a6778", "#dde3ea", "#ffffff"
_OVERSAMPLE = 2
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


@dataclass(frozen=True, slots=True)
class Line:
    """A polyline; ``dash`` draws it in strokes of that length."""

    points: tuple[Point, ...]
    colour: str
    width: float = 1.0
    dash: float = 0.0


@dataclass(frozen=True, slots=True)
class Dot:
    """A filled circle with a white rim."""

    at: Point
    colour: str
    radius: float = 4.0


@dataclass(frozen=True, slots=True)
class Words:
    """Text whose baseline starts, ends or has its middle at a point."""

    at: Point
    text: str
    size: int = 12
    colour: str = SOFT
    anchor: str = "start"


@dataclass(slots=True)
class Drawing:
    """Shapes on white, in pixels from the top left; later ones lie on top."""

    width: int
    height: int
    shapes: list[Line | Dot | Words] = field(default_factory=list)

    def svg(self, label: str) -> str:
        """Return a self-contained SVG element; ``label`` is what a screen reader says."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(label)}" font-family="system-ui, sans-serif">'
            f'<rect width="{self.width}" height="{self.height}" fill="{PAPER}"/>'
        )
        return "\n".join([head, *map(_svg, self.shapes), "</svg>"])

    def png(self) -> bytes:
        """Return the drawing as a PNG of its own size, drawn larger and reduced for smooth lines."""
        scale = _OVERSAMPLE
        image = Image.new("RGB", (self.width * scale, self.height * scale), PAPER)
        pen = ImageDraw.Draw(image)
        for shape in self.shapes:
            _paint(pen, shape, scale)
        buffer = io.BytesIO()
        reduced = image.resize((self.width, self.height), Image.Resampling.LANCZOS)
        reduced.quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
        return buffer.getvalue()


def stack(drawings: Sequence[Drawing]) -> Drawing:
    """Return one drawing with all of them below each other; at least one."""
    whole = Drawing(max(d.width for d in drawings), sum(d.height for d in drawings))
    down = 0.0
    for drawing in drawings:
        whole.shapes += [_moved(shape, down) for shape in drawing.shapes]
        down += drawing.height
    return whole


def _moved(shape: Line | Dot | Words, down: float) -> Line | Dot | Words:
    match shape:
        case Line():
            return Line(tuple((x, y + down) for x, y in shape.points), shape.colour, shape.width, shape.dash)
        case Dot():
            return Dot((shape.at[0], shape.at[1] + down), shape.colour, shape.radius)
        case Words():
            return Words((shape.at[0], shape.at[1] + down), shape.text, shape.size, shape.colour, shape.anchor)


def _svg(shape: Line | Dot | Words) -> str:
    match shape:
        case Line():
            points = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)
            dash = f' stroke-dasharray="{shape.dash:g}"' if shape.dash else ""
            return (
                f'<polyline points="{points}" fill="none" stroke="{shape.colour}" stroke-width="{shape.width:g}" '
                f'stroke-linejoin="round"{dash}/>'
            )
        case Dot():
            x, y = shape.at
            return (
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{shape.radius:g}" fill="{shape.colour}" stroke="{PAPER}" '
                'stroke-width="1.5"/>'
            )
        case Words():
            x, y = shape.at
            return (
                f'<text x="{x:.1f}" y="{y:.1f}" font-size="{shape.size}" fill="{shape.colour}" '
                f'text-anchor="{shape.anchor}">{escape(shape.text)}</text>'
            )


def _paint(pen: ImageDraw.ImageDraw, shape: Line | Dot | Words, scale: int) -> None:
    match shape:
        case Line():
            points = [(x * scale, y * scale) for x, y in shape.points]
            width = max(1, round(shape.width * scale))
            for stroke in _strokes(points, shape.dash * scale) if shape.dash else [points]:
                pen.line(stroke, fill=shape.colour, width=width, joint="curve")
        case Dot():
            x, y = (value * scale for value in shape.at)
            for radius, colour in ((shape.radius + 1, PAPER), (shape.radius, shape.colour)):
                reach = radius * scale
                pen.ellipse((x - reach, y - reach, x + reach, y + reach), fill=colour)
        case Words():
            at = (shape.at[0] * scale, shape.at[1] * scale)
            font = ImageFont.load_default(shape.size * scale)
            pen.text(at, shape.text, fill=shape.colour, font=font, anchor=_ANCHORS[shape.anchor])


def _strokes(points: Sequence[Point], dash: float) -> list[list[Point]]:
    """Cut a polyline into strokes of length ``dash`` with gaps as long between them."""
    strokes: list[list[Point]] = []
    walked = 0.0
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
        at = 0.0
        while at < length - 1e-9:
            end = min(length, at + dash - walked % dash)
            if int(walked // dash + 1e-9) % 2 == 0:
                strokes.append([(x0 + (x1 - x0) * s / length, y0 + (y1 - y0) * s / length) for s in (at, end)])
            walked += end - at
            at = end
    return strokes
