"""`crossfade store`: what is kept, how long, and how to take it elsewhere."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crossfade.usage import DEFAULT_CONFIG, ConfigOption, faults_as_usage, who

if TYPE_CHECKING:
    from crossfade.config.model import Config

store_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Look at the store, delete bodies, export numbers.

    The store keeps every number of every exchange, and the bodies for `store.keep_bodies_days`, encrypted under a key
    of their day. Deleting a body always begins with its key, so a copy of the bytes elsewhere cannot be read any more.
    """,
)
RouteOption = Annotated[str | None, typer.Option(help="Only this route.")]
SinceOption = Annotated[str | None, typer.Option(help="From then on: 2h or 7d (ago), 2026-05-04 or 2026-05-04T12:30.")]
UntilOption = Annotated[str | None, typer.Option(help="Before that time, written the same way.")]


@store_app.command()
def stats(
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")] = False,
) -> None:
    """Show what is stored of each route, what became of the bodies, and how much disk the database takes.

    Needs no master key.
    """
    with faults_as_usage():
        from crossfade.storekeeping import show_stats

        show_stats(_load(config), as_json=as_json)


@store_app.command()
def purge(
    config: ConfigOption = DEFAULT_CONFIG,
    bodies: Annotated[
        str,
        typer.Option(metavar="expired|all", help="expired: as store.keep_bodies_days says; all: every body and key."),
    ] = "expired",
    before: Annotated[
        str | None, typer.Option(help="Bodies of all UTC days before this one, written 7d or 2026-05-04.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete bodies now: first the keys of their days, then the bytes. Numbers always stay.

    A running gateway does it every hour by itself. `--bodies all` also works when the master key is lost, and clears
    the way for a new one; restart whatever has the store open after it, as nothing more is stored until then.
    """
    with faults_as_usage():
        from crossfade.storekeeping import purge_bodies

        if bodies not in ("expired", "all") or (bodies == "all" and before is not None):
            raise ValueError("--bodies is expired or all, and all goes without --before")
        loaded = _load(config)
        if bodies == "all" and not yes:
            typer.confirm("Delete every body and every key of this store? No backup can bring them back", abort=True)
        purge_bodies(loaded, everything=bodies == "all", before=before, who=who(), now=datetime.now(UTC))


@store_app.command()
def export(
    parquet: Annotated[Path, typer.Option(help="The file to write.", dir_okay=False)],
    config: ConfigOption = DEFAULT_CONFIG,
    route: RouteOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    with_bodies: Annotated[
        bool, typer.Option("--with-bodies", help="Put the bodies in as well, decrypted; the audit gets a line.")
    ] = False,
) -> None:
    """Write every number of every exchange to a Parquet file, for pandas, DuckDB or Spark.

    One row for each exchange, with `primary_…`, `shadow_…` and `control_…` columns. Needs crossfade[parquet].
    """
    with faults_as_usage():
        from crossfade.export import Selection
        from crossfade.moments import parse_moment
        from crossfade.storekeeping import export_parquet

        now = datetime.now(UTC)
        begin, end = (None if text is None else parse_moment(text, now) for text in (since, until))
        chosen = Selection(route, begin, end, bodies=with_bodies)
        export_parquet(_load(config), chosen, parquet, who=who(), now=now)


def _load(config: Path) -> Config:
    from crossfade.config.loading import load_config

    return load_config(config, secrets=False)
