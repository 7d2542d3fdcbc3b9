"""``crossfade shadow``: check a mirror, or make the shadow calls of many gateways."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from crossfade.usage import DEFAULT_CONFIG, ConfigOption, faults_as_usage

shadow_app = typer.Typer(no_args_is_help=True, help="Check a mirror, or make the shadow calls of many gateways.")


@shadow_app.command("check")
def shadow_check(
    route: Annotated[str, typer.Argument(help="The route's name.")],
    config: ConfigOption = DEFAULT_CONFIG,
    gateway: Annotated[str | None, typer.Option(help="The gateway's URL; from the config if left out.")] = None,
    target: Annotated[str | None, typer.Option("--path", help="Path and query; the route's own if left out.")] = None,
    sample: Annotated[
        Path | None, typer.Option(help="File to send as the body; a small picture if left out.", dir_okay=False)
    ] = None,
    api_key: Annotated[
        str | None, typer.Option(envvar="CROSSFADE_API_KEY", help="API key, where the gateway asks for one.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait, for the answer and for the copy.", min=0.1)] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the steps as JSON.")] = False,
) -> None:
    """Send one request through the gateway and say, step by step, whether its mirror works.

    Did the client get an answer, was the copy sent, did the shadow answer, was the pair stored, can it be compared?
    It is a request like any other: both backends serve it once, and it counts in the route's numbers.
    Exit code: **0** all is well, **1** a step failed, **10** it cannot be told (say, the request was not sampled),
    **2** wrong usage.
    """
    with faults_as_usage():
        from rich.console import Console

        from crossfade.comparison import open_reader
        from crossfade.config.loading import load_config
        from crossfade.shadow_check import as_json as to_json
        from crossfade.shadow_check import check, exit_code, plan_check, show
        from crossfade.store_faults import store_faults

        loaded = load_config(config, secrets=False)
        plan, found = plan_check(
            loaded, route, gateway=gateway, target=target, sample=sample, api_key=api_key, timeout_s=timeout
        )
        reader = open_reader(loaded)
    console, steps = Console(), []
    try:
        with faults_as_usage(), store_faults():
            for step in check(plan, found, loaded, reader):
                steps.append(step)
                if not as_json:
                    show(step, console)
    finally:
        reader.close()
    if as_json:
        typer.echo(to_json(route, steps))
    raise typer.Exit(exit_code(steps))


@shadow_app.command("work")
def shadow_work(
    config: ConfigOption = DEFAULT_CONFIG,
    claim_after: Annotated[
        float | None,
        typer.Option(help="Seconds after which what another worker was given is taken over; long enough if left out."),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(help="[HOST:]PORT for /metrics and /-/status; loopback without a host.", metavar="ADDRESS"),
    ] = None,
) -> None:
    """Make the shadow calls for gateways whose `mirror.transport` is a Redis, and store both answers.

    Run as many as you like, with the gateways' config file. Nothing is lost when one dies: another takes over what it
    had, and each exchange is stored once. SIGTERM finishes what is under way.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    with faults_as_usage():
        from crossfade.shadow_work import work

        work(config, claim_after, metrics)
