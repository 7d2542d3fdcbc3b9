"""The report's drawings for the mouse: plotly, its script inlined from the installed package, no request to any host.

The drawings of ``charts`` are what is read without script; with it each is replaced by the same numbers as a figure
that can be zoomed and pointed at. The page's policy names the two scripts by their hash, so nothing else may run.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache

from markupsafe import Markup
from plotly.offline import get_plotlyjs

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
