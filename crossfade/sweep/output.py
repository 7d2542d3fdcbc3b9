"""What a sweep leaves behind: tables on the terminal, JSON with every number, a page and a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from rich.console import Console
from rich.table import Table

from crossfade.sweep.advice import Advice, advise
from crossfade.sweep.chart import draw_sweep
from crossfade.sweep.contention import Contention
from crossfade.sweep.drawing import stack
from crossfade.sweep.drift import SoakResult
from crossfade.sweep.measuring import Findings
from crossfade.sweep.words import (
    capacity_table,
    cell_table,
    conclusions,
    contention_sentences,
    soak_sentences,
)


@dataclass(frozen=True, slots=True)
class Files:
    """Where to write; ``None`` writes nothing."""

    json: Path | None = None
    html: Path | None = None
    png: Path | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was measured, how, and what follows. ``complete`` is False when it was stopped early."""

    command: dict[str, Any]
    machine: str
    began_at: datetime
    complete: bool
    found: Sequence[tuple[Findings, Advice | None]] = ()
    contention: Sequence[Contention] = field(default=())
    soak: SoakResult | None = None


def conclude(found: Sequence[Findings], seed: int) -> list[tuple[Findings, Advice | None]]:
    """Return each function's findings with what follows from them."""
    return [(one, advise(one.capacities, one.cells, seed)) for one in found]


def print_report(report: Report, console: Console) -> None:
    """Print tables and conclusions."""
    if not report.complete:
        console.print("[bold]Stopped early[/bold]: this is what was measured until then.")
    console.print(report.machine, highlight=False)
    for found, advice in report.found:
        _print_table(console, f"{found.function}: kept full", *capacity_table(found.capacities))
        _print_table(console, f"{found.function}: open-loop", *cell_table(found.cells))
        for sentence in _conclusions(advice):
            console.print(sentence, highlight=False)
    for sentence in _other_sentences(report):
        console.print(sentence, highlight=False)


def write_files(report: Report, files: Files) -> list[Path]:
    """Write what was asked for and return the paths. A picture needs a sweep."""
    written = []
    if files.json:
        files.json.write_text(json.dumps(_document(report), indent=2, allow_nan=False) + "\n", encoding="utf-8")
        written.append(files.json)
    if files.html:
        files.html.write_text(render_page(report), encoding="utf-8")
        written.append(files.html)
    if files.png and report.found:
        files.png.write_bytes(stack([draw_sweep(found, advice) for found, advice in report.found]).png())
        written.append(files.png)
    return written


def render_page(report: Report) -> str:
    """Return one self-contained HTML page: no script, no request to any host."""
    environment = Environment(
        loader=PackageLoader("crossfade.sweep", ""), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    sections = [
        {
            "function": found.function,
            "svg": Markup(draw_sweep(found, advice).svg(f"sweep of {found.function}")),  # noqa: S704 - escaped there
            "conclusions": _conclusions(advice),
            "tables": {"Kept full": capacity_table(found.capacities), "Open-loop": cell_table(found.cells)},
        }
        for found, advice in report.found
    ]
    return environment.get_template("page.html").render(
        report=report,
        sections=sections,
        sentences=_other_sentences(report),
    )


def _conclusions(advice: Advice | None) -> list[str]:
    return conclusions(advice) if advice else ["Nothing was answered: no conclusion."]


def _other_sentences(report: Report) -> list[str]:
    return contention_sentences(report.contention) + (soak_sentences(report.soak) if report.soak else [])


def _document(report: Report) -> dict[str, Any]:
    sweeps = [
        {
            "function": found.function,
            "capacities": [asdict(row) for row in found.capacities],
            "cells": [{**asdict(row), "success": row.success} for row in found.cells],
            "advice": None if advice is None else {**asdict(advice), "sentences": conclusions(advice)},
        }
        for found, advice in report.found
    ]
    return {
        "command": report.command,
        "machine": report.machine,
        "began_at": report.began_at.isoformat(),
        "complete": report.complete,
        "sweeps": sweeps,
        "mixed": [{**asdict(row), "slowdown": row.slowdown} for row in report.contention],
        "soak": None if report.soak is None else asdict(report.soak),
    }


def _print_table(console: Console, title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    if rows:
        console.print(table)
