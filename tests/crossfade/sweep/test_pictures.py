"""The drawing in both forms, the page and the tables."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from crossfade.sweep.advice import Advice, advise
from crossfade.sweep.chart import HEIGHT, WIDTH, draw_sweep
from crossfade.sweep.drawing import Dot, Drawing, Line, Words, stack
from crossfade.sweep.measuring import Findings
from crossfade.sweep.output import Report, print_report, render_page
from crossfade.sweep.progress import StageBar
from crossfade.sweep.usage import GpuUsage
from tests.crossfade.sweep.measured import GB, capacities, cells, usage

GPU = GpuUsage("a card", 0.9, 4 * GB, 24 * GB)


def found(*, gpu: GpuUsage | None = None) -> tuple[Findings, Advice | None]:
    used = {pool: usage(min(pool, 4), gpu=gpu) for pool in range(1, 7)}
    most = capacities({1: 5, 2: 10, 3: 15, 4: 20, 5: 20.1, 6: 20.2}, used)
    rows = [row for pool in range(1, 7) for row in cells(pool, {5: (50, 50), 10: (100, 100), 20: (120, 200)})]
    findings = Findings("restore", most, rows)
    return findings, advise(most, rows, seed=1)


def report(*, gpu: GpuUsage | None = None) -> Report:
    return Report(
        {"seed": 1}, "4 cores, 16 GB", datetime(2026, 1, 2, tzinfo=UTC), complete=True, found=[found(gpu=gpu)]
    )


def pixels(drawing: Drawing) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    with Image.open(io.BytesIO(drawing.png())) as image:
        return np.asarray(image.convert("RGB"))


def test_a_shape_is_in_the_same_place_in_png_and_svg() -> None:
    drawing = Drawing(100, 60, [Line(((10, 30), (90, 30)), "#ff0000", 4), Dot((50, 10), "#0000ff", 6)])
    image = pixels(drawing)
    assert image.shape == (60, 100, 3)
    assert image[30, 50].tolist() == pytest.approx([255, 0, 0], abs=16)
    assert image[10, 50].tolist() == pytest.approx([0, 0, 255], abs=16)
    assert image[50, 50].tolist() == pytest.approx([255, 255, 255], abs=8)
    root = ElementTree.fromstring(drawing.svg("two shapes"))
    assert root.find("{*}polyline").get("points") == "10.0,30.0 90.0,30.0"  # type: ignore[union-attr]
    assert (root.find("{*}circle").get("cx"), root.find("{*}circle").get("cy")) == ("50.0", "10.0")  # type: ignore[union-attr]


def test_a_dashed_line_has_gaps() -> None:
    row = pixels(Drawing(120, 20, [Line(((0, 10), (60, 10), (120, 10)), "#000000", 2, 10)]))[10, :, 0]
    assert [bool(row[at] < 128) for at in range(5, 120, 10)] == [True, False] * 6


def test_words_cannot_break_out_of_the_svg() -> None:
    svg = Drawing(10, 10, [Words((1, 1), "<script>&")]).svg('"><script>')
    assert "<script>" not in svg
    ElementTree.fromstring(svg)


def test_stacked_drawings_lie_below_each_other() -> None:
    one = Drawing(50, 40, [Line(((0, 20), (50, 20)), "#000000", 4), Dot((5, 5), "#000000"), Words((1, 1), "x")])
    image = pixels(stack([one, one]))
    assert image.shape[:2] == (80, 50)
    assert (image[20, 25] < 30).all()
    assert (image[60, 25] < 30).all()


def test_the_plot_stays_inside_its_picture_and_small() -> None:
    findings, advice = found(gpu=GPU)
    drawing = draw_sweep(findings, advice)
    for shape in drawing.shapes:
        points = shape.points if isinstance(shape, Line) else (shape.at,)
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert len(drawing.png()) < 200_000


def test_the_plot_has_a_panel_for_each_figure_and_says_where_the_knee_is() -> None:
    findings, advice = found()
    words = " | ".join(shape.text for shape in draw_sweep(findings, advice).shapes if isinstance(shape, Words))
    figures = ("requests/s", "good answers/s", "within the timeout", "mean", "p50", "p95", "cpu", "memory", "no GPU")
    for title in (*figures, "the knee is pool 4"):
        assert title in words


@pytest.mark.parametrize(
    "findings",
    [
        Findings("restore"),
        Findings("restore", capacities({1: 0.001})),
        Findings("restore", capacities({1: 5000, 200: 9000}), cells(1, {0.01: (0, 5)})),
        Findings("restore", [], cells(1, {1000: (5, 5), 1001: (5, 5)})),
    ],
    ids=["nothing", "one slow pool", "far apart", "rates side by side"],
)
def test_whatever_was_measured_can_be_drawn(findings: Findings) -> None:
    drawing = draw_sweep(findings, advise(findings.capacities, findings.cells, 1))
    ElementTree.fromstring(drawing.svg("sweep"))
    assert drawing.png().startswith(b"\x89PNG")


def test_the_page_asks_no_host_and_runs_no_script() -> None:
    page = render_page(report(gpu=GPU))
    assert "<script" not in page
    assert re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?!data:)\w+""", page) == []
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert page.count("<svg") == 1
    assert "Run pool 4" in page


def test_tables_fit_a_terminal_of_eighty_columns() -> None:
    printed = io.StringIO()
    print_report(report(), Console(file=printed, width=80))
    text = printed.getvalue()
    assert "…" not in text
    assert "60.0 % 80 late     12 3.90 1000 MB" in text
    assert max(len(line) for line in text.splitlines()) <= 80
    with_gpu = io.StringIO()
    print_report(report(gpu=GPU), Console(file=with_gpu, width=100))
    assert "4.00 1000 MB 90 % 4000 MB" in with_gpu.getvalue()


def test_the_bar_counts_down_as_stages_pass_and_never_ends_early() -> None:
    now = [0.0]
    bar = StageBar(Console(file=io.StringIO()), 30, lambda: now[0])
    bar.stage("first", 10)
    now[0] = 4
    assert bar.done_s == 4
    now[0] = 25  # answers were late
    assert bar.done_s == 10
    bar.stage("second", 20)
    now[0] = 40
    assert bar.done_s == 25


def test_a_stage_that_was_not_planned_makes_the_whole_longer() -> None:
    now = [0.0]
    bar = StageBar(Console(file=io.StringIO()), 10, lambda: now[0])
    bar.stage("planned", 10)
    bar.stage("not planned", 100)
    now[0] = 60
    assert bar.done_s == 70
