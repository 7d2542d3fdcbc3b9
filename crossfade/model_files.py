"""The model files on the command line: a table of what is there, and fetching with progress bars."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from onprem_backend.fetch import fetch
from onprem_backend.manifest import models

STATES = {"installed": "[green]✓ genuine[/green]", "mismatch": "[red]✕ sha256 differs[/red]", "missing": "- missing"}


def missing_models(folder: Path) -> list[str]:
    """Return the names of the files that a plain fetch brings and that are not in ``folder``, or not genuine."""
    return [status.entry.name for status in models(folder) if status.entry.by_default and status.state != "installed"]


def print_models(folder: Path) -> None:
    """Print one line for each model file in the manifest."""
    table = Table("model", "size", "licence", "state", "file", title=f"Model files in {folder}")
    for status in models(folder):
        entry = status.entry
        size = f"{entry.size_bytes / 1e6:.1f} MB" if entry.size_bytes else "unknown"
        table.add_row(entry.name, size, entry.licence, STATES[status.state], entry.file)
    console = Console()
    console.print(table)
    console.print("Fetch what a plain fetch brings: crossfade models fetch   One by name: crossfade models fetch NAME")


def fetch_models(folder: Path, names: list[str] | None) -> int:
    """Fetch model files with a bar each. Returns 0 when all are there and genuine, else 1."""
    console = Console()
    columns = (TextColumn("{task.description:28}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bars: dict[str, TaskID] = {}

        def advance(name: str, done_bytes: int, total_bytes: int) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=total_bytes or None)
            progress.update(bars[name], completed=done_bytes, total=total_bytes or None)

        results = fetch(folder, names, advance)
    for result in results:
        console.print(f"{result.name:28} {result.state}{f': {result.error}' if result.error else ''}", highlight=False)
    return 1 if any(result.state == "failed" for result in results) else 0
