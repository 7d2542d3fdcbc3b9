"""The work of `crossfade store`: read the config, do it with a progress bar, say what was done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.filesize import decimal
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from sqlalchemy import Engine

from crossfade.audit import append_line
from crossfade.config.loading import ConfigError
from crossfade.config.model import Config
from crossfade.moments import parse_moment
from crossfade.store_faults import store_faults
from shadow.keeping import Kept
from shadow.store.adoption import delete_old_files, old_root
from shadow.store.database import open_database
from shadow.store.expiry import purge_days, purge_everything
from shadow.store.inventory import Inventory, take_inventory
from shadow.store.opening import open_objects
from shadow.store.reader import Reader

if TYPE_CHECKING:
    from crossfade.export import Selection


def show_stats(config: Config, *, as_json: bool) -> None:
    """Print what the store holds. Raises ``ValueError`` where it cannot be opened."""
    with _database(config) as engine:
        inventory = take_inventory(engine)
    if as_json:
        print(json.dumps(asdict(inventory), default=str))
    else:
        _print_inventory(inventory, Console())


def purge_bodies(config: Config, *, everything: bool, before: str | None, who: str, now: datetime) -> None:
    """Delete bodies and say how many objects. Raises ``ValueError``."""
    keep = timedelta(days=config.store.keep_bodies_days)
    day = (now - keep if before is None else parse_moment(before, now)).astimezone(UTC).date()
    with _database(config) as engine, _bar("deleting days") as progress:
        task = progress.add_task("", total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        objects = open_objects(config.store.bodies)
        deleted = (
            purge_everything(engine, objects, advance) if everything else purge_days(engine, objects, day, advance)
        )
        root = old_root(objects, config.store.bodies)
        if everything and root is not None:
            delete_old_files(root)  # of a store that version 1 wrote and nobody has opened since
    what = "all" if everything else f"before {day}"
    append_line(
        Path(config.audit),
        {"at": now.isoformat(), "event": "bodies_deleted", "who": who, "what": what, "objects": deleted},
    )
    words = "every body and every key" if everything else f"the bodies of all days before {day}"
    Console().print(f"deleted {words} ({deleted:,} objects, and what was in the rows)")
    if everything:
        Console().print("Restart the gateways and dashboards of this store: until then they store nothing more.")


def export_parquet(config: Config, selection: Selection, file: Path, *, who: str, now: datetime) -> None:
    """Write the Parquet file and say how many rows. Raises ``ValueError``."""
    from crossfade.export import export

    store = config.store
    with store_faults():
        reader = Reader.open(store.url, store.bodies, store.keep_bodies_days, key=store.key)
    try:
        with store_faults():
            routes = [] if selection.route is None else reader.routes()
        if selection.route is not None and selection.route not in routes:
            raise ConfigError(f"nothing is stored of a route {selection.route}; there is {', '.join(routes)}")
        if selection.bodies:
            line = {"at": now.isoformat(), "event": "bodies_exported", "who": who, "file": str(file)}
            append_line(Path(config.audit), {**line, "route": selection.route})
        with store_faults(), _bar("exporting") as progress:
            task = progress.add_task("", total=reader.count_received(selection.route, selection.since, selection.until))
            rows = export(reader, selection, file, lambda n: progress.advance(task, n))
    finally:
        reader.close()
    words = f"{file}: {rows:,} rows, {decimal(file.stat().st_size)}"
    Console().print(words, highlight=False, markup=False, soft_wrap=True)


def _print_inventory(inventory: Inventory, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("route", "exchanges", "from", "to", "bodies", "dropped", "expired", "hashes"):
        is_text = name in ("route", "from", "to")
        table.add_column(name, justify="left" if is_text else "right", no_wrap=name != "route")
    for route, held in inventory.routes.items():
        kept = held.bodies
        counts = [
            sum(kept.get(each, 0) for each in Kept if each.readable),
            *(kept.get(each, 0) for each in (Kept.DROPPED, Kept.EXPIRED, Kept.NONE)),
        ]
        times = [f"{at:%Y-%m-%d}" for at in (held.first_at, held.last_at)]
        table.add_row(escape(route), f"{held.exchanges:,}", *times, *(f"{n:,}" for n in counts))
    console.print(table if inventory.routes else "nothing is stored yet")
    days = inventory.key_days
    readable = f"Bodies from {days[0]} to {days[-1]} can be read" if days else "No body can be read"
    console.print(f"\nThe database takes {decimal(inventory.database_bytes)}. {readable} (times are UTC).")


@contextmanager
def _database(config: Config) -> Iterator[Engine]:
    with store_faults():
        engine = open_database(config.store.url)
        try:
            yield engine
        finally:
            engine.dispose()


def _bar(words: str) -> Progress:
    columns = (TextColumn(words), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
