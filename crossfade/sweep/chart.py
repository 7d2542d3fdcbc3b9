"""The picture of a sweep: throughput and its law, latency, success, what it used. One panel per figure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crossfade.sweep.advice import TARGET, Advice, Knee
from crossfade.sweep.drawing import GRID, INK, SOFT, Dot, Drawing, Line, Point, Words
from crossfade.sweep.figures import Capacity, Cell
from crossfade.sweep.measuring import Findings

WIDTH, HEIGHT = 1180, 820
_PANEL_WIDTH, _PANEL_HEIGHT = 300.0, 170.0
_KNEE, _LAW, _BAD, _NOISE = "#1b7f4d", "#8a5a00", "#b3261e", "#b9c3d0"
_POOLS = ("#94b4f7", "#5b8bef", "#2f62d9", "#1d3f99", "#6b4fbb", "#b0408f", "#7a7f87", "#2b8a8a")
_MB = 1e6


@dataclass(frozen=True, slots=True)
class _Axis:
    """Maps values to pixels; ``ticks`` are (value, text)."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        place = math.log if self.log else float
        low, high = place(self.low), place(self.high)
        share = (place(max(value, self.low) if self.log else value) - low) / (high - low)
        return self.start + share * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class _Panel:
    """One plot's frame: its axes and where they cross."""

    x: _Axis
    y: _Axis

    def at(self, x: float, y: float) -> Point:
        return self.x(x), self.y(y)


def draw_sweep(found: Findings, advice: Advice | None) -> Drawing:
    """Draw what was measured; a panel stays empty where nothing was."""
    drawing = Drawing(WIDTH, HEIGHT)
    drawing.shapes.append(Words((24, 32), found.function + _verdict(advice), 18, INK))
    if found.capacities:
        knee = advice.knee if advice else None
        rows = sorted(found.capacities, key=lambda c: c.pool)
        _most(drawing, rows, advice, _place(0, 0))
        _cores(drawing, rows, knee, _place(0, 2))
        _memory(drawing, rows, knee, _place(1, 2))
        _gpu(drawing, rows, knee, _place(2, 2))
    if found.cells:
        _by_rate(drawing, found.cells)
    return drawing


def _verdict(advice: Advice | None) -> str:
    if advice is None:
        return ""
    return f": the knee is pool {advice.knee.pool}" if advice.knee.reached else ": the knee is not passed"


def _place(column: int, row: int) -> Point:
    return 66 + column * 388, 84 + row * 250


def _by_rate(drawing: Drawing, cells: Sequence[Cell]) -> None:
    """Draw everything that depends on the rate, a line for each pool."""
    top = max(c.throughput for c in cells)
    at = _place(1, 0)
    panel = _frame(drawing, at, _rate_axis(at, cells), _linear(at, max(top, 1e-3)), "good answers/s, by rate")
    _by_pool(drawing, panel, cells, lambda c: c.throughput, at)
    at = _place(2, 0)
    panel = _frame(drawing, at, _rate_axis(at, cells), _linear(at, 100, " %"), "answered within the timeout")
    ends = (panel.at(panel.x.low, 100 * TARGET), panel.at(panel.x.high, 100 * TARGET))
    drawing.shapes.append(Line(ends, _BAD, 1, 4))
    _by_pool(drawing, panel, cells, lambda c: 100 * c.success, at)
    timed = [c for c in cells if c.mean_s]
    latencies: list[tuple[str, Callable[[Cell], float]]] = [
        ("mean latency", lambda c: c.mean_s or 0.0),
        ("p50 latency", lambda c: c.p50_s or 0.0),
        ("p95 latency", lambda c: c.p95_s or 0.0),
    ]
    values = [value(c) for c in timed for _, value in latencies]
    for column, (title, value) in enumerate(latencies):
        if timed:
            at = _place(column, 1)
            panel = _frame(drawing, at, _rate_axis(at, cells), _seconds(at, min(values), max(values)), title)
            _by_pool(drawing, panel, timed, value, at)


def _most(drawing: Drawing, rows: Sequence[Capacity], advice: Advice | None, at: Point) -> None:
    scaling = advice.scaling if advice else None
    top = max(max(c.slices) for c in rows)
    panel = _frame(drawing, at, _pool_axis(at, rows), _linear(at, max(top, 1e-3)), "requests/s, pool kept full")
    if scaling is not None:
        first, last = rows[0].pool, rows[-1].pool
        curve = [first + (last - first) * step / 60 for step in range(61)]
        drawing.shapes.append(Line(tuple(panel.at(n, scaling.throughput(n)) for n in curve), _LAW, 2, 6))
        drawing.shapes.append(_corner(at, "dashed: the law", _LAW))
    _knee_line(drawing, panel, advice.knee if advice else None)
    for row in rows:
        drawing.shapes += [Dot(panel.at(row.pool, part), _NOISE, 2.5) for part in row.slices]
    drawing.shapes += [Dot(panel.at(row.pool, row.per_second), _POOLS[2], 5) for row in rows]


def _cores(drawing: Drawing, rows: Sequence[Capacity], knee: Knee | None, at: Point) -> None:
    cores = rows[0].usage.cores
    panel = _frame(drawing, at, _pool_axis(at, rows), _linear(at, cores), f"cpu, of {cores:g} cores, pool kept full")
    _knee_line(drawing, panel, knee)
    _line(drawing, [panel.at(c.pool, min(cores, c.usage.machine_cpu)) for c in rows], _NOISE)
    _line(drawing, [panel.at(c.pool, c.usage.cpu) for c in rows], _POOLS[2])
    drawing.shapes.append(_corner(at, "grey: all processes", SOFT))


def _memory(drawing: Drawing, rows: Sequence[Capacity], knee: Knee | None, at: Point) -> None:
    values = [c.usage.memory_bytes / _MB for c in rows]
    panel = _frame(drawing, at, _pool_axis(at, rows), _linear(at, max(values)), "memory in MB, pool kept full")
    _knee_line(drawing, panel, knee)
    _line(drawing, [panel.at(c.pool, value) for c, value in zip(rows, values, strict=True)], _POOLS[2])


def _gpu(drawing: Drawing, rows: Sequence[Capacity], knee: Knee | None, at: Point) -> None:
    known = [(c.pool, c.usage.gpu) for c in rows if c.usage.gpu is not None]
    title = "gpu busy, and its memory, pool kept full" if known else "no GPU"
    if not known:
        drawing.shapes.append(Words((at[0], at[1] - 10), title, 13, SOFT))
        return
    panel = _frame(drawing, at, _pool_axis(at, rows), _linear(at, 100, " %"), title)
    _knee_line(drawing, panel, knee)
    _line(drawing, [panel.at(pool, 100 * gpu.memory_bytes / gpu.total_bytes) for pool, gpu in known], _LAW)
    _line(drawing, [panel.at(pool, 100 * gpu.busy) for pool, gpu in known if gpu.busy is not None], _POOLS[2])


def _line(drawing: Drawing, points: Sequence[Point], colour: str) -> None:
    drawing.shapes += [Line(tuple(points), colour, 2), *(Dot(point, colour) for point in points)]


def _by_pool(drawing: Drawing, panel: _Panel, cells: Sequence[Cell], value: Callable[[Cell], float], at: Point) -> None:
    right = at[0] + _PANEL_WIDTH
    pools = sorted({c.pool for c in cells})
    for pool in pools:
        colour = _POOLS[pools.index(pool) % len(_POOLS)]
        rows = sorted((c for c in cells if c.pool == pool), key=lambda c: c.rate)
        points = tuple(panel.at(c.rate, value(c)) for c in rows)
        _line(drawing, points, colour)
    for pool in reversed(pools):
        text = str(pool)
        drawing.shapes.append(Words((right, at[1] - 10), text, 12, _POOLS[pools.index(pool) % len(_POOLS)], "end"))
        right -= 8 + 7 * len(text)
    drawing.shapes.append(Words((right - 2, at[1] - 10), "pool", 12, SOFT, "end"))


def _frame(drawing: Drawing, at: Point, x: _Axis, y: _Axis, title: str) -> _Panel:
    left, top = at
    right, bottom = left + _PANEL_WIDTH, top + _PANEL_HEIGHT
    drawing.shapes.append(Words((left, top - 10), title, 13, INK))
    for value, text in y.ticks:
        drawing.shapes.append(Line(((left, y(value)), (right, y(value))), GRID))
        drawing.shapes.append(Words((left - 6, y(value) + 4), text, 11, SOFT, "end"))
    for value, text in x.ticks:
        drawing.shapes.append(Words((x(value), bottom + 17), text, 11, SOFT, "middle"))
    drawing.shapes.append(Line(((left, bottom), (right, bottom)), SOFT))
    return _Panel(x, y)


def _knee_line(drawing: Drawing, panel: _Panel, knee: Knee | None) -> None:
    if knee is not None:
        x = panel.x(knee.pool)
        drawing.shapes.append(Line(((x, panel.y.start), (x, panel.y.end)), _KNEE, 1.5))
        drawing.shapes.append(Words((x + 5, panel.y.end + 12), "knee" if knee.reached else "best", 11, _KNEE))


def _corner(at: Point, text: str, colour: str) -> Words:
    return Words((at[0] + _PANEL_WIDTH, at[1] - 10), text, 12, colour, "end")


def _pool_axis(at: Point, rows: Sequence[Capacity]) -> _Axis:
    pools = [c.pool for c in rows]
    spare = 0.5 if len(pools) > 1 else 1
    ticks = tuple((float(pool), f"pool {pool}" if len(pools) < 6 else str(pool)) for pool in pools)
    return _Axis(min(pools) - spare, max(pools) + spare, at[0], at[0] + _PANEL_WIDTH, ticks)


def _rate_axis(at: Point, cells: Sequence[Cell]) -> _Axis:
    rates = sorted({c.rate for c in cells})
    spare = 0.06 * (rates[-1] - rates[0]) or 1.0
    axis = _Axis(rates[0] - spare, rates[-1] + spare, at[0] + 10, at[0] + _PANEL_WIDTH, ())
    ticks: list[tuple[float, str]] = []
    for rate in rates:  # a label needs room beside the one before
        if not ticks or axis(rate) - axis(ticks[-1][0]) > 34:
            ticks.append((rate, f"{rate:g}/s"))
    return _Axis(axis.low, axis.high, axis.start, axis.end, tuple(ticks))


def _linear(at: Point, top: float, unit: str = "") -> _Axis:
    step = 10.0 ** math.floor(math.log10(max(top, 1e-9)))
    step = next(s * step for s in (0.2, 0.5, 1, 2, 5) if top <= 5 * s * step + 1e-9)
    count = math.ceil(top / step - 1e-9)
    ticks = tuple((n * step, f"{n * step:g}{unit}") for n in range(count + 1))
    high = count * step if top <= count * step * 0.98 or unit else count * step * 1.05
    return _Axis(0, high * 1.02, at[1] + _PANEL_HEIGHT, at[1], ticks)


def _seconds(at: Point, low: float, high: float) -> _Axis:
    """Return a logarithmic axis whose ends are a little beyond the values."""
    low, high = low / 1.3, high * 1.3
    steps = [m * 10.0**e for e in range(-5, 5) for m in ((1, 2, 5) if high / low < 300 else (1,))]
    ticks = tuple((s, f"{1000 * s:g} ms" if s < 1 else f"{s:g} s") for s in steps if low <= s <= high)
    return _Axis(low, high, at[1] + _PANEL_HEIGHT, at[1], ticks, log=True)
