"""The report's drawings for the mouse: plotly, its script inlined from the installed package, no request to any host.

The drawings of ``charts`` are what is read without script; with it each is replaced by the same numbers as a figure
that can be zoomed and pointed at. The page's policy names the two scripts by their hash, so nothing else may run.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from compare.charts import BAND_FROM, ratio_bins
from compare.stats import Histogram, ecdf_band
from compare.tally import Tally

_POINTS = 400
_SECONDS = tuple(m * 10.0**e for e in range(-4, 4) for m in (1, 1.5, 2, 3, 5, 7))
_RATIOS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0)
_DRAW = """
document.querySelectorAll('script.figure').forEach(function (source) {
  var css = getComputedStyle(document.documentElement);
  var text = source.textContent.replace(/var\\(--([a-z]+)\\)/g, function (_, name) {
    return css.getPropertyValue('--' + name).trim();
  });
  var figure = JSON.parse(text), place = document.getElementById(source.dataset.for);
  var drawing = document.createElement('div');
  drawing.style.height = '280px';
  place.replaceChildren(drawing);
  Plotly.newPlot(drawing, figure.data, figure.layout, {displaylogo: false, responsive: true,
    modeBarButtonsToRemove: ['lasso2d', 'select2d', 'autoScale2d']});
});
"""


@cache
def scripts() -> tuple[str, str]:
    """Return plotly's script and the one that draws; a closing tag in them would end them early, so there is none."""
    found = get_plotlyjs(), _DRAW
    if any("</script" in text.lower() for text in found):
        raise ValueError("plotly's script cannot be inlined")
    return found


def script_policy(*, static: bool) -> str:
    """Return the page's ``script-src``: the hashes of what may run (CSP level 2), or nothing."""
    if static:
        return "'none'"
    digests = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts())
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def script_tags(*, static: bool) -> Markup:
    """Return the scripts as tags, nothing for a static page."""
    if static:
        return Markup("")
    return Markup("").join(Markup("<script>{}</script>").format(Markup(text)) for text in scripts())  # noqa: S704


def figure_data(figure: dict[str, Any]) -> Markup:
    """Return a figure as JSON that is inert inside of a script element."""
    text = json.dumps(figure, separators=(",", ":")).replace("<", "\\u003c").replace("&", "\\u0026")
    return Markup(text)  # noqa: S704 - no character of it can end the element


def _layout(**more: Any) -> dict[str, Any]:
    axis = {"gridcolor": "var(--line)", "zeroline": False}
    layout: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font": {"color": "var(--soft)"},
        "margin": {"l": 50, "r": 10, "t": 10, "b": 40}, "hovermode": "closest", "showlegend": False,
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "var(--soft)", "activecolor": "var(--ink)"},
    }  # fmt: skip
    for name in ("xaxis", "yaxis"):
        layout[name] = {**axis, **more.pop(name, {})}
    return {**layout, **more}


def _log_axis(title: str, ticks: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic axis with the numbers in full at its ticks; plotly's own show a 2 where 0.2 is meant."""
    labels = [f"{tick:g}" for tick in ticks]
    return {"type": "log", "title": {"text": title}, "tickvals": list(ticks), "ticktext": labels}


def ecdf_figure(data: Tally, names: tuple[str, str]) -> dict[str, Any]:
    """Return the share of requests answered within a time, both sides, each with its band from a hundred on."""
    traces: list[dict[str, Any]] = []
    for side, name, tone in zip(
        (data.timed.baseline, data.timed.candidate), names, ("baseline", "candidate"), strict=True
    ):
        x, y = _thinned(side)
        width = ecdf_band(side.total, BAND_FROM)
        if width < 1:
            ends = [(min(1.0, v + width), max(0.0, v - width)) for v in y]
            band = {"x": x, "mode": "lines", "line": {"width": 0, "color": f"var(--{tone})"}, "hoverinfo": "skip"}
            traces.append({**band, "y": [high for high, _ in ends]})
            traces.append({**band, "y": [low for _, low in ends], "fill": "tonexty", "opacity": 0.3})
        hover = "%{x:.3g} s: %{y:.1%}"
        traces.append({"x": x, "y": y, "name": name, "mode": "lines", "hovertemplate": hover,
                       "line": {"shape": "hv", "color": f"var(--{tone})"}})  # fmt: skip
    return {
        "data": traces,
        "layout": _layout(xaxis=_log_axis("seconds", _SECONDS), yaxis={"tickformat": ".0%"}),
    }


def _thinned(side: Histogram) -> tuple[list[float], list[float]]:
    values, shares = side.steps()
    step = max(1, len(values) // _POINTS)
    return values[::step].tolist(), [round(share, 5) for share in shares[::step].tolist()]


def ratio_figure(data: Tally, margin: float) -> dict[str, Any]:
    """Return how many pairs have which ratio of candidate to baseline."""
    bins = ratio_bins(data.ratios)
    tones = ["var(--candidate)" if high <= margin else "var(--bad)" for _, high, _ in bins]
    bars = {
        "type": "bar", "x": [(low * high) ** 0.5 for low, high, _ in bins], "y": [n for _, _, n in bins],
        "width": [0.95 * (high - low) for low, high, _ in bins], "marker": {"color": tones},
        "customdata": [[low, high] for low, high, _ in bins],
        "hovertemplate": "%{y} pairs at %{customdata[0]:.2f} to %{customdata[1]:.2f}<extra></extra>",
    }  # fmt: skip
    lines = [
        {
            "type": "line",
            "x0": at,
            "x1": at,
            "y0": 0,
            "y1": 1,
            "yref": "paper",
            "line": {"dash": dash, "color": "var(--ink)"},
        }
        for at, dash in ((1.0, "dot"), (margin, "dash"))
    ]  # fmt: skip
    few = {"dtick": 1} if max((n for _, _, n in bins), default=0) < 6 else {}
    return {
        "data": [bars],
        "layout": _layout(
            shapes=lines,
            xaxis=_log_axis("candidate's time over baseline's, pair by pair", _RATIOS),
            yaxis={"title": {"text": "pairs"}, **few},
        ),
    }
