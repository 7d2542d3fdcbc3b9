"""The numbers of a drawing as figures of plotly, for the mouse: the same that ``charts`` draws for everybody.

A figure is plotly's JSON. Colours in it are named as ``var(--name)``; whoever draws it puts the theme's into place.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from compare.charts import BAND_FROM, curve, ratio_bins
from compare.stats import ecdf_band
from compare.tally import Sides, Tally

Figure = dict[str, Any]
Groups = Sequence[tuple[str, Sides]]
_FAINT = "22"
"""An alpha to stand behind a colour in hexadecimal, as all of the style sheets are."""
_TONES = ("var(--baseline)", "var(--candidate)")
_RATIO_TITLES = ("candidate's time over baseline's, pair by pair", "pairs")
_SECONDS = tuple(m * 10.0**e for e in range(-4, 4) for m in (1, 1.5, 2, 3, 5, 7))
_RATIOS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)


def figure_data(figure: Figure) -> Markup:
    """Return a figure as JSON that is inert inside of a script element."""
    text = json.dumps(figure, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704 - no character of it can end the element


def _layout(**more: Any) -> Figure:
    axis = {"gridcolor": "var(--line)", "zeroline": False}
    layout: Figure = {
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font": {"color": "var(--soft)"},
        "margin": {"l": 50, "r": 10, "t": 10, "b": 40}, "hovermode": "closest", "showlegend": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "var(--soft)", "activecolor": "var(--ink)"},
    }  # fmt: skip
    for name in ("xaxis", "yaxis"):
        layout[name] = {**axis, **more.pop(name, {})}
    return {**layout, **more}


def _log_axis(title: str, ticks: Sequence[float]) -> Figure:
    """Return a logarithmic axis with the numbers in full at its ticks; plotly's own show a 2 where 0.2 is meant."""
    labels = [f"{tick:g}" for tick in ticks]
    return {"type": "log", "title": {"text": title}, "tickvals": list(ticks), "ticktext": labels}


def ecdf_figure(data: Tally, names: tuple[str, str], seconds: str = "seconds") -> Figure:
    """Return the share of requests answered within a time, both sides, each with its band from a hundred on."""
    traces: list[Figure] = []
    for side, name, tone in zip((data.timed.baseline, data.timed.candidate), names, _TONES, strict=True):
        x, y = curve(side)
        x, y = [*x[:1], *x], [0.0, *y][: len(x) + 1]  # the first step rises from nothing
        width = ecdf_band(side.total, BAND_FROM)
        if width < 1:
            ends = [(min(1.0, v + width), max(0.0, v - width)) for v in y]
            band = {"x": x, "mode": "lines", "line": {"width": 0, "shape": "hv"}, "hoverinfo": "skip"}
            traces.append({**band, "y": [high for high, _ in ends]})
            traces.append({**band, "y": [low for _, low in ends], "fill": "tonexty", "fillcolor": f"{tone}{_FAINT}"})
        hover = "%{x:.3g} s: %{y:.1%}"
        traces.append({"x": x, "y": [round(share, 5) for share in y], "name": name, "mode": "lines",
                       "hovertemplate": hover, "line": {"shape": "hv", "color": tone}})  # fmt: skip
    return {
        "data": traces,
        "layout": _layout(xaxis=_log_axis(seconds, _SECONDS), yaxis={"tickformat": ".0%"}),
    }


def ratio_figure(data: Tally, margin: float, titles: tuple[str, str] = _RATIO_TITLES) -> Figure:
    """Return how many pairs have which ratio of candidate to baseline."""
    bins = ratio_bins(data.ratios)
    tones = ["var(--candidate)" if high <= margin else "var(--bad)" for _, high, _ in bins]
    bars = {
        "type": "bar", "x": [(low * high) ** 0.5 for low, high, _ in bins], "y": [n for _, _, n in bins],
        "width": [0.95 * (high - low) for low, high, _ in bins], "marker": {"color": tones},
        "customdata": [[low, high] for low, high, _ in bins],
        "hovertemplate": "%{customdata[0]:.2f} - %{customdata[1]:.2f}: %{y:,}<extra></extra>",
    }  # fmt: skip
    upright = {"type": "line", "y0": 0, "y1": 1, "yref": "paper"}
    lines = [
        {**upright, "x0": at, "x1": at, "line": {"dash": dash, "color": "var(--ink)"}}
        for at, dash in ((1.0, "dot"), (margin, "dash"))
    ]
    few = {"dtick": 1} if max((n for _, _, n in bins), default=0) < 6 else {}
    across, up = titles
    allowed = {"x": math.log10(margin), "y": 1, "yref": "paper", "text": f"≤ {margin:.2f}", "showarrow": False,
               "xanchor": "left", "yanchor": "top", "font": {"color": "var(--ink)"}}  # fmt: skip
    return {
        "data": [bars],
        "layout": _layout(
            shapes=lines, annotations=[allowed], xaxis=_log_axis(across, _RATIOS), yaxis={"title": {"text": up}, **few}
        ),
    }


def hours_figure(hours: Groups, names: tuple[str, str], seconds: str = "seconds") -> Figure:
    """Return median (a line) and 95th percentile (dots) of both sides by hour; an hour without a value has a gap."""
    traces = []
    for side, name, tone in zip((0, 1), names, _TONES, strict=True):
        at = [hour.removesuffix(" UTC") for hour, _ in hours]
        for p, label, dash in ((0.5, "median", "solid"), (0.95, "p95", "dot")):
            traces.append({
                "x": at, "y": [_seconds(sides, side, p) for _, sides in hours], "name": f"{name} {label}",
                "mode": "lines+markers", "line": {"color": tone, "dash": dash}, "hovertemplate": "%{x}: %{y:.3g} s",
            })  # fmt: skip
    return {"data": traces, "layout": _layout(xaxis={"type": "date"}, yaxis=_from_zero(seconds))}


def sizes_figure(sizes: Groups, names: tuple[str, str], seconds: str = "seconds") -> Figure:
    """Return the median of both sides by size of the request as bars, up to the 95th percentile as whiskers."""
    traces = []
    for side, name, tone in zip((0, 1), names, _TONES, strict=True):
        ends = [(_seconds(sides, side, 0.5), _seconds(sides, side, 0.95)) for _, sides in sizes]
        above = [high - low if low is not None and high is not None else None for low, high in ends]
        traces.append({
            "type": "bar", "x": [size for size, _ in sizes], "y": [low for low, _ in ends], "name": name,
            "marker": {"color": tone}, "customdata": [high for _, high in ends],
            "error_y": {"array": above, "arrayminus": [0] * len(ends), "symmetric": False, "color": "var(--soft)",
                        "thickness": 1, "width": 3},
            "hovertemplate": "%{x}: %{y:.3g} s, p95 %{customdata:.3g} s",
        })  # fmt: skip
    return {"data": traces, "layout": _layout(barmode="group", yaxis=_from_zero(seconds))}


def _seconds(sides: Sides, side: int, p: float) -> float | None:
    return (sides.baseline, sides.candidate)[side].percentile(p).value


def _from_zero(title: str) -> Figure:
    return {"title": {"text": title}, "rangemode": "tozero"}
