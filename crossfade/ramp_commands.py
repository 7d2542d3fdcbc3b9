"""`crossfade ramp`: the way across, from the command line. The page uses the same ``compare.ramps.Ramps``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from crossfade.usage import DEFAULT_CONFIG, ConfigOption, faults_as_usage, who

if TYPE_CHECKING:
    from compare.ramp import Ramp
    from compare.ramps import Ramps

ramp_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="""Move a route to its candidate step by step, and back by itself when something is wrong.

    A ramp goes on only when the verdict on the live traffic of its present step is *promote*, after a minimum stay. It
    comes back at once when the candidate fails, damages outputs or is rejected, and one step when it is merely worse.
    `crossfade ramp run` is what watches and moves: keep one running. See `ramp` and `shadow.both_ways` in the config.
    """,
)
RouteArgument = Annotated[str, typer.Argument(help="The route's name.")]
ConfigMapOption = Annotated[
    str | None,
    typer.Option(
        "--configmap",
        metavar="NAME[/KEY]",
        envvar="CROSSFADE_CONFIGMAP",
        help="In Kubernetes: the ConfigMap that holds the config file; its toggle is patched instead of the file's.",
    ),
]


@ramp_app.command()
def start(
    route: RouteArgument,
    config: ConfigOption = DEFAULT_CONFIG,
    configmap: ConfigMapOption = None,
    force: Annotated[
        str | None,
        typer.Option(metavar="WHY", help="Begin although the verdict is old; why is kept with the ramp's moves."),
    ] = None,
) -> None:
    """Begin, or go on after a pause.

    Needs `shadow.both_ways`, and a promote under today's policy: of the present builds, and with pairs that are not
    older than `ramp.verdict_max_age_s`.
    """
    with faults_as_usage():
        if force is not None and not force.strip():
            raise ValueError("--force: say why, in a few words")
        ramps = _ramps(config, configmap)
        _tell(ramps.start(route, who(), force))
        driver = ramps.state(route).driver
    if driver is None:
        typer.echo("Nothing moves yet, as no driver runs: crossfade ramp run", err=True)


@ramp_app.command()
def pause(route: RouteArgument, config: ConfigOption = DEFAULT_CONFIG, configmap: ConfigMapOption = None) -> None:
    """Stay at the present step. It is still watched, and still comes back when something is wrong."""
    with faults_as_usage():
        _tell(_ramps(config, configmap).pause(route, who()))


@ramp_app.command()
def abort(route: RouteArgument, config: ConfigOption = DEFAULT_CONFIG, configmap: ConfigMapOption = None) -> None:
    """Bring all traffic back to the baseline now. Needs no driver, and no store that answers."""
    with faults_as_usage():
        from crossfade.ramp_run import abort_now

        try:
            ramp, noted = abort_now(config, configmap, route, who())
        except OSError as error:
            raise ValueError(f"the toggle cannot be written: {error}") from error
        _tell(ramp)
    if noted:
        typer.echo(f"The store does not answer. This move is noted in {noted} and recorded once it does.", err=True)


@ramp_app.command()
def status(
    route: Annotated[str | None, typer.Argument(help="The route's name; all of them if left out.")] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    configmap: ConfigMapOption = None,
) -> None:
    """Say where the ramp is, what it waits for, and who or what made each move."""
    with faults_as_usage():
        from rich.console import Console

        from crossfade.ramp_view import render_state

        ramps = _ramps(config, configmap)
        states = [ramps.state(name) for name in ([route] if route else ramps.routes())]
    console = Console()
    for state in states:
        console.print(render_state(state))


@ramp_app.command()
def run(
    config: ConfigOption = DEFAULT_CONFIG,
    configmap: ConfigMapOption = None,
    gateway: Annotated[
        list[str] | None,
        typer.Option(help="Address of a gateway, to read its counts; may be repeated. Left out: gateway.listen."),
    ] = None,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1, max=60)] = 2.0,
) -> None:
    """Watch and move every ramp until a signal ends it. Several may run: one drives, the others stand by.

    Ending it leaves the traffic as it is, unwatched; start it again soon, or abort.
    """
    with faults_as_usage():
        from crossfade.ramp_run import run_driver

        run_driver(config, configmap, gateway or [], interval, typer.echo)


def _tell(ramp: Ramp) -> None:
    from crossfade.ramping import describe

    typer.echo(describe(ramp))


def _ramps(config: ConfigOption, configmap: str | None) -> Ramps:
    from crossfade.ramp_run import open_ramps

    return open_ramps(config, configmap)
