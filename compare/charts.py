"""Drawings as inline SVG: a gate's interval against its margin, both sides' latencies. Numbers in, markup out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from markupsafe import Markup

from compare.gates import GateResult, State, Unit
from compare.phrases import Phrase, joined, say
from compare.reasons import amount
from compare.stats import Histogram, ecdf_band

_WIDTH, _PAD = 300.0, 10.0
_TONES = {State.PASS: "good", State.FAIL: "bad", State.OPEN: "wait", State.NODATA: "noise"}
_ECDF_WIDTH, _ECDF_HEIGHT, _LEFT, _BOTTOM = 640.0, 220.0, 46.0, 26.0
_POINTS = 200
BAND_FROM = 100


def gate_bar(gate: GateResult) -> Phrase:
    """Draw the interval as a bar and the margin as a line; an end that is not known runs to the edge."""
    if gate.margin is None or gate.state is State.NODATA:
        return say(Markup('<span class="soft">{words}</span>'), words=say("no data"))
    scale = _scale(gate)
    low = scale(gate.low) if gate.low is not None else _PAD
    high = scale(gate.high) if gate.high is not None else _WIDTH - _PAD
    at = scale(gate.margin)
    ends = {"low": amount(gate.low, gate.unit), "high": amount(gate.high, gate.unit)}
    words = say("{low} to {high}, allowed {allowed}", allowed=amount(gate.margin, gate.unit), **ends)
    anchor = "end" if at > _WIDTH * 0.75 else "start"
    shift = -5 if anchor == "end" else 5
    point = "" if gate.estimate is None else _dot(scale(gate.estimate))
    return say(Markup(
        '<svg class="bar" viewBox="0 0 {w:.0f} 26" role="img" aria-label="{words}">'
        '<line x1="{pad}" y1="16" x2="{end}" y2="16" stroke="var(--line)" stroke-width="2"/>'
        '<rect x="{x:.1f}" y="11" width="{bar:.1f}" height="10" rx="3" fill="var(--{tone})"/>{point}'
        '<line x1="{at:.1f}" y1="3" x2="{at:.1f}" y2="25" stroke="var(--ink)" stroke-width="2"/>'
        '<text x="{label:.1f}" y="9" font-size="10" text-anchor="{anchor}" fill="var(--soft)">{margin}</text></svg>'
    ),
        w=_WIDTH, words=words, pad=_PAD, end=_WIDTH - _PAD, x=low, bar=max(3.0, high - low), tone=_tone(gate),
        point=Markup(point), at=at, label=at + shift, anchor=anchor, margin=amount(gate.margin, gate.unit),  # noqa: S704
    )  # fmt: skip


def _tone(gate: GateResult) -> str:
    """Return the colour; what nobody waits for stays grey."""
    return "noise" if gate.state is State.OPEN and not gate.required else _TONES[gate.state]


def _dot(x: float) -> str:
    return f'<circle cx="{x:.1f}" cy="16" r="2.5" fill="var(--ink)"/>'


class _Scale:
    """Map a gate's numbers to the drawing so that interval and margin both fit; ratios on a log axis."""

    def __init__(self, values: Sequence[float], *, log: bool) -> None:
        self._log = log
        placed = [self._place(v) for v in values]
        self._low, self._high = min(placed), max(placed)

    def _place(self, value: float) -> float:
        return math.log(max(value, 1e-3)) if self._log else value

    def __call__(self, value: float) -> float:
        width = (self._high - self._low) or 1.0
        share = (self._place(value) - self._low) / width
        return _PAD + min(1.0, max(0.0, share)) * (_WIDTH - 2 * _PAD)


def _scale(gate: GateResult) -> _Scale:
    known = [v for v in (gate.low, gate.high, gate.estimate, gate.margin) if v is not None]
    if gate.unit is Unit.RATIO:
        known = [v for v in known if v > 0] + [0.5, 2.0]
    elif gate.unit is Unit.SHARE:
        known = [*known, 0.0, 2 * (gate.margin or 0.0) if gate.id != "P0" else 1.0]
    return _Scale(known, log=gate.unit is Unit.RATIO)


def ecdf(baseline: Histogram, candidate: Histogram, objective_s: float | None = None) -> Phrase:
    """Draw the share of requests answered within a time, both sides, on a log axis; failures never arrive.

    From ``BAND_FROM`` requests on a light band shows where the whole curve lies, at alpha 5 %, however often one looks.
    """
    finite = [value for side in (baseline, candidate) for value in curve(side)[0] if value > 0]
    if not finite:
        return say(Markup('<p class="soft">{words}</p>'), words=say("no latency was measured"))
    low, high = min(finite) / 1.1, max(finite) * 1.1

    def x(value: float) -> float:
        return _LEFT + (math.log(value) - math.log(low)) / (math.log(high) - math.log(low)) * (_ECDF_WIDTH - _LEFT - 10)

    def y(share: float) -> float:
        return 10 + (1 - share) * (_ECDF_HEIGHT - 10 - _BOTTOM)

    parts = [_tick(x(at), text) for at, text in _ticks(low, high)]
    parts += [_level(y(share), f"{100 * share:.0f} %") for share in (0, 0.5, 0.95)]
    if objective_s is not None and low < objective_s < high:
        parts.append(
            f'<line x1="{x(objective_s):.1f}" y1="10" x2="{x(objective_s):.1f}" y2="{_ECDF_HEIGHT - _BOTTOM}" '
            'stroke="var(--ink)" stroke-dasharray="4 3"/>'
        )
    for side, tone in ((baseline, "baseline"), (candidate, "candidate")):
        steps = _steps(side, low)
        parts += _band([(x(v), s) for v, s in steps], ecdf_band(side.total, BAND_FROM), y, tone)
        points = " ".join(f"{x(v):.1f},{y(s):.1f}" for v, s in steps)
        parts.append(f'<polyline points="{points}" fill="none" stroke="var(--{tone})" stroke-width="2.5"/>')
    return _drawing(say("share of requests answered within a time, both sides"), parts)


def _drawing(label: Phrase, parts: Sequence[str | Phrase]) -> Phrase:
    """Return a drawing of parts that are numbers in markup, or phrases."""
    head = Markup('<svg viewBox="0 0 {w:.0f} {h:.0f}" role="img" aria-label="{label}">{parts}</svg>')
    drawn = joined("", (part if isinstance(part, Phrase) else Markup(part) for part in parts))  # noqa: S704 - numbers
    return say(head, w=_ECDF_WIDTH, h=_ECDF_HEIGHT, label=label, parts=drawn)


def _band(steps: Sequence[tuple[float, float]], width: float, y: Callable[[float], float], tone: str) -> list[str]:
    """Return the band of ``width`` around a curve of (x, share), nothing where it says nothing."""
    if width >= 1:
        return []
    upper = [f"{at:.1f},{y(min(1.0, share + width)):.1f}" for at, share in steps]
    lower = [f"{at:.1f},{y(max(0.0, share - width)):.1f}" for at, share in reversed(steps)]
    return [f'<polygon points="{" ".join([*upper, *lower])}" fill="var(--{tone})" fill-opacity="0.13"/>']


def curve(side: Histogram) -> tuple[list[float], list[float]]:
    """Return (seconds, share answered by then) at a few hundred corners of a side's step function, its ends among
    them. Every drawing of the distribution is made of these."""
    values, shares = side.steps()
    picked = np.unique(np.linspace(0, values.size - 1, min(values.size, _POINTS)).round().astype(int))
    return ([], []) if not values.size else (values[picked].tolist(), shares[picked].tolist())


def _steps(side: Histogram, low: float) -> list[tuple[float, float]]:
    """Return the corners of a curve as a line that goes up in steps, from a share of 0."""
    points = [(low, 0.0)]
    for value, share in zip(*curve(side), strict=True):
        at = max(value, low)
        points += [(at, points[-1][1]), (at, share)]
    return points


_BINS = 40


def ratio_bins(ratios: Histogram) -> list[tuple[float, float, int]]:
    """Return the paired ratios in bins of equal width on a log axis: (from, to, pairs).

    What is more than 20-fold either way is counted in the outermost bins, failures of one side included.
    """
    values, counts = ratios.masses()
    if not ratios.total:
        return []
    known = np.clip(values[values > 0], 0.05, 20.0)
    low, high = (min(known.min(), 0.8), max(known.max(), 1.25)) if known.size else (0.8, 1.25)
    edges = np.geomspace(low, high * (1 + 1e-9), _BINS + 1)
    found, _ = np.histogram(np.clip(values, low, high), bins=edges, weights=counts)
    found[-1] += ratios.total - counts.sum()  # an infinite ratio: the candidate alone failed
    return [(float(a), float(b), round(float(n))) for a, b, n in zip(edges, edges[1:], found, strict=False)]


def ratio_histogram(ratios: Histogram, margin: float) -> Phrase:
    """Draw how many pairs have which ratio of candidate to baseline: left of 1 the candidate is faster."""
    bins = ratio_bins(ratios)
    if not bins:
        return say(Markup('<p class="soft">{words}</p>'), words=say("no pair was timed"))
    low, high, most = bins[0][0], bins[-1][1], max(n for _, _, n in bins)

    def x(value: float) -> float:
        return 10 + (math.log(value) - math.log(low)) / (math.log(high) - math.log(low)) * (_ECDF_WIDTH - 20)

    floor = _ECDF_HEIGHT - _BOTTOM
    parts: list[str | Phrase] = [
        f'<rect x="{x(a):.1f}" y="{floor - n / most * (floor - 20):.1f}" width="{max(1.0, x(b) - x(a) - 1):.1f}" '
        f'height="{n / most * (floor - 20):.1f}" fill="var(--{"candidate" if b <= margin else "bad"})"/>'
        for a, b, n in bins
        if n
    ]
    ticks = [t for t in (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20) if low <= t <= high]
    parts += [
        f'<text x="{x(t):.1f}" y="{_ECDF_HEIGHT - 8}" font-size="11" text-anchor="middle" fill="var(--soft)">'
        f"{t:g}</text>"
        for t in ticks
    ]
    # A label that has no room right of its line stands left of both lines, so that none runs through it.
    near_the_end = x(margin) > _ECDF_WIDTH - 120
    label = (x(1.0) - 4, "end") if near_the_end else (x(margin) + 4, "start")
    parts += [_upright(x(1.0), say("equal"), (x(1.0) - 4, "end"), 14)]
    parts += [_upright(x(margin), say("allowed {margin:.2f}", margin=margin), label, 28)]
    return _drawing(say("pairs by ratio of candidate latency to baseline latency"), parts)


def _upright(x: float, text: Phrase, label: tuple[float, str], y: float) -> Phrase:
    """Draw a line with a text beside it; ``label`` is where the text begins or ends."""
    at, anchor = label
    return say(
        Markup(
            '<line x1="{x:.1f}" y1="10" x2="{x:.1f}" y2="{low}" stroke="var(--ink)" stroke-dasharray="4 3"/>'
            '<text x="{at:.1f}" y="{y}" font-size="11" text-anchor="{anchor}" fill="var(--soft)">{text}</text>'
        ),
        x=x, at=at, y=y, low=_ECDF_HEIGHT - _BOTTOM, anchor=anchor, text=text,
    )  # fmt: skip


def funnel(steps: Sequence[tuple[str, int]]) -> Markup:
    """Draw the way of the requests as bars, each as long as its share of the first."""
    most = max((n for _, n in steps), default=0)
    if most == 0:
        return Markup('<p class="soft">no request came</p>')
    height = 24 * len(steps)
    parts = [Markup('<svg viewBox="0 0 440 {}" role="img" aria-label="how many requests came how far">').format(height)]
    for row, (name, n) in enumerate(steps):
        top, width = 24 * row, max(2.0, 240 * n / most)
        parts.append(
            Markup(
                '<text x="0" y="{y}" font-size="13" fill="var(--soft)">{name}</text>'
                '<rect x="120" y="{top}" width="{width:.1f}" height="16" rx="3" fill="var(--candidate)" '
                'opacity="{o:.2f}"/>'
                '<text x="{x:.1f}" y="{y}" font-size="13" fill="var(--ink)">{n}</text>'
            ).format(y=top + 15, name=name, top=top + 3, width=width, o=1 - 0.15 * row, x=126 + width, n=f"{n:,}")
        )
    return Markup("").join([*parts, Markup("</svg>")])


def _ticks(low: float, high: float) -> list[tuple[float, str]]:
    steps = [m * 10.0**e for e in range(-4, 4) for m in (1, 2, 5)]
    inside = [s for s in steps if low <= s <= high]
    return [(s, f"{1000 * s:g} ms" if s < 1 else f"{s:g} s") for s in inside]


def _tick(x: float, text: str) -> str:
    return (
        f'<line x1="{x:.1f}" y1="10" x2="{x:.1f}" y2="{_ECDF_HEIGHT - _BOTTOM}" stroke="var(--line)"/>'
        f'<text x="{x:.1f}" y="{_ECDF_HEIGHT - 8}" font-size="11" text-anchor="middle" fill="var(--soft)">{text}</text>'
    )


def _level(y: float, text: str) -> str:
    return (
        f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_ECDF_WIDTH - 10}" y2="{y:.1f}" stroke="var(--line)"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" font-size="11" text-anchor="end" fill="var(--soft)">{text}</text>'
    )
