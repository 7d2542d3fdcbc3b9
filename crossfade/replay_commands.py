"""`crossfade replay` and `crossfade pair`: send recorded requests again, take one pair out."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from crossfade.usage import DEFAULT_CONFIG, ConfigOption, faults_as_usage, who

pair_app = typer.Typer(no_args_is_help=True, help="Take one pair out of the store.")


def replay(
    route: Annotated[str, typer.Option(help="The route whose recorded requests are sent.")],
    to: Annotated[str, typer.Option(help="The backend of the config that they are sent to.")],
    since: Annotated[str, typer.Option(help="From then on: 2h or 7d (ago), 2026-05-04 or 2026-05-04T12:30 (UTC).")],
    config: ConfigOption = DEFAULT_CONFIG,
    until: Annotated[str | None, typer.Option(help="Before that time, written the same way.")] = None,
    speed: Annotated[
        str, typer.Option(help="1x keeps the recorded gaps, 10x makes them ten times shorter, 50/s is a rate, or max.")
    ] = "1x",
    loop: Annotated[int, typer.Option(help="Send everything so many times over.", min=1, max=10_000)] = 1,
    concurrency: Annotated[int, typer.Option(help="Requests under way at most.", min=1, max=1000)] = 32,
    limit: Annotated[int | None, typer.Option(help="Send at most so many in each loop.", min=1)] = None,
    max_seconds: Annotated[float | None, typer.Option(help="Stop sending after so long.", min=0)] = None,
    name: Annotated[
        str | None, typer.Option(help="What the run is called; the time if left out.", metavar="NAME")
    ] = None,
) -> None:
    """Send recorded requests to a backend and keep its answers beside the recorded ones.

    Open loop: each request is sent when it is due, however slow the answers are. The run is stored as `ROUTE~NAME`;
    `crossfade compare --route ROUTE~NAME` judges it against the recorded answers. Recorded credentials are never sent:
    the backend gets its own from the config. **Ctrl-C** stops the sending and keeps what was answered.

    Exit code: 0, 1 answers failed or could not be stored, 2 usage, 130 stopped early.
    """
    with faults_as_usage():
        from crossfade.moments import parse_moment
        from crossfade.replay.command import Asked
        from crossfade.replay.command import replay as run
        from crossfade.replay.recorded import Chosen
        from crossfade.replay.run import Plan
        from crossfade.replay.speed import parse_speed

        now = datetime.now(UTC)
        end = None if until is None else parse_moment(until, now)
        name = name or f"{now:%Y%m%d-%H%M%S}"
        if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
            raise ValueError("--name may have letters, digits, dashes and underscores")
        plan = Plan(name, route, parse_speed(speed), loop, concurrency, max_seconds)
        asked = Asked(plan, Chosen(route, parse_moment(since, now), end, limit), to, who())
        code = run(config, os.environ, asked, now)
    raise typer.Exit(code)


@pair_app.command("export")
def pair_export(
    exchange_id: Annotated[str, typer.Argument(metavar="ID", help="The pair's id, as the dashboard shows it.")],
    config: ConfigOption = DEFAULT_CONFIG,
    out: Annotated[
        Path | None, typer.Option(help="A folder, or a file that ends in .zip; pair-ID if left out.")
    ] = None,
    curl: Annotated[bool, typer.Option("--curl", help="Print the request as a curl command as well.")] = False,
) -> None:
    """Write a pair as a case of its own: the request, both answers, what was measured, and a README.

    It holds the bodies in plain: keep it as private as the people in it would. The audit gets a line.
    """
    with faults_as_usage():
        from crossfade.pair_export import export_pair

        export_pair(config, exchange_id, out, curl=curl, who=who(), now=datetime.now(UTC))
