"""The command line. Each command imports what it needs when it runs, so that ``--help`` answers at once.

Exit codes: 0 done, 1 something failed, 2 wrong usage or config; ``compare`` adds 10 hold and 20 reject.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from crossfade.ramp_commands import ramp_app
from crossfade.replay_commands import pair_app, replay
from crossfade.shadow_commands import shadow_app
from crossfade.store_commands import store_app
from crossfade.usage import DEFAULT_CONFIG, ConfigOption, faults_as_usage, who

app = typer.Typer(
    name="crossfade",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="""Move an AI feature from a metered cloud GPU to GPUs you own, with live traffic as the proof.

    **Try it** with real pictures and no cloud:  `crossfade demo`

    **The way across**, on your own traffic:

    1. `crossfade config check`  describe your two backends and your routes in one file
    2. `crossfade gateway`  serve every request from the cloud and mirror it to your own GPUs
    3. `crossfade compare`  see with statistics whether they agree and which is faster
    4. `crossfade ramp start ROUTE`  move traffic step by step, watched, and back by itself when something is wrong
    """,
)
config_app = typer.Typer(no_args_is_help=True, help="Check, explain or show the config file.")
models_app = typer.Typer(no_args_is_help=True, help="List the model files of the on-prem server, or fetch them.")
key_app = typer.Typer(no_args_is_help=True, help="Make API keys for callers of the gateway.")
app.add_typer(config_app, name="config")
app.add_typer(key_app, name="key")
app.add_typer(models_app, name="models")
app.add_typer(shadow_app, name="shadow")
app.add_typer(ramp_app, name="ramp")
app.add_typer(store_app, name="store")
app.add_typer(pair_app, name="pair")
app.command()(replay)

ModelsOption = Annotated[
    Path, typer.Option("--models", envvar="CROSSFADE_MODELS", help="The folder of model files.", file_okay=False)
]
DEFAULT_MODELS = Path("models")


@app.command()
def demo(
    once: Annotated[
        bool, typer.Option("--once", help="End after the table instead of keeping the dashboard up.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Send 20 pictures per route instead of the full set.")] = False,
    fault: Annotated[
        str | None,
        typer.Option(
            metavar="ROUTE:FAULT", help="Make the on-prem side of one route wrong on purpose; `list` shows which."
        ),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where the run keeps its database, logs and report.")] = Path("var/demo"),
    models: ModelsOption = DEFAULT_MODELS,
    port: Annotated[int, typer.Option(help="Port of the dashboard.", min=0, max=65535)] = 8088,
) -> None:
    """Run the whole product on real pictures: a cloud stand-in, the on-prem server, the gateway, the verdicts.

    Five routes get real pictures; every request is answered by the stand-in and mirrored to the on-prem server. Then
    the comparison says promote, hold or reject for each route. Needs the model files: `crossfade models fetch`.
    """
    with faults_as_usage():
        from crossfade.demo.faults import FAULTS, parse_fault
        from crossfade.demo.run import Plan, picture_counts, run_demo

    if fault == "list":
        typer.echo("\n".join(f"{f'{route}:{name}':32} {text}" for (route, name), text in sorted(FAULTS.items())))
        return
    with faults_as_usage():
        chosen = parse_fault(fault) if fault else None
        plan = Plan(folder.resolve(), models.resolve(), picture_counts(quick, chosen), once, chosen, port)
        code = run_demo(plan)
    raise typer.Exit(code)


@app.command()
def gateway(
    config: ConfigOption = DEFAULT_CONFIG,
    workers: Annotated[
        int, typer.Option(envvar="CROSSFADE_WORKERS", help="Processes that serve the one port together.", min=1, max=64)
    ] = 1,
) -> None:
    """Serve traffic: limit, proxy to the active backend, mirror to the other, keep both answers.

    The toggle is read from the config file, also while running: save the file, or use `crossfade toggle`.
    Health is at /-/live and /-/ready, the account of every request at /-/status, metrics at /-/metrics; with several
    workers they are those of all. SIGTERM drains: exit code **0** when every request under way was finished, **1** when
    some were cut.
    """
    from crossfade.composition import ConfigFile, load_checked
    from gateway.server import serve

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line for each request otherwise
    with faults_as_usage():
        host, port = load_checked(config, os.environ).gateway.address
        code = serve(ConfigFile(config, os.environ), host, port, workers=workers)
    raise typer.Exit(code)


@app.command()
def onprem(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 9002,
    models: ModelsOption = DEFAULT_MODELS,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda:N; else ONPREM_DEVICE, else auto.")] = None,
    engine: Annotated[str | None, typer.Option(help="torch or onnxruntime; else ONPREM_ENGINE, else torch.")] = None,
) -> None:
    """Serve the picture functions from your own GPU (or CPU): classify, remove-background, face-blur, restore, erase.

    ENABLE_RESTORE, ENABLE_REMOVER, ENABLE_ERASER, ENABLE_FACEBLUR and ENABLE_CLASSIFY (0 or 1) choose which.
    Readiness is at /v2/health/ready, the models that run at /v1/models.
    """
    with faults_as_usage():
        from onprem_backend.server import serve
        from onprem_backend.settings import settings_from_environment

        settings = settings_from_environment(os.environ, models_dir=models, device=device, engine=engine)
    serve(settings, host, port)


@app.command()
def compare(
    config: ConfigOption = DEFAULT_CONFIG,
    route: Annotated[list[str] | None, typer.Option(help="Only this route; may be repeated.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every number to this file.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write the report to this file.")] = None,
    md_file: Annotated[Path | None, typer.Option("--md", help="Write the report as Markdown.")] = None,
    junit_file: Annotated[
        Path | None, typer.Option("--junit", help="Write the verdicts as JUnit XML, for a CI.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that measure; one per core if left out.", min=1)
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Look only at what came since: 24h, 90m, 7d, or an ISO 8601 time.")
    ] = None,
    static: Annotated[
        bool, typer.Option("--static", help="Leave plotly out of the HTML: 5 MB less, figures that do not zoom.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Keep up with live traffic until Ctrl-C.")] = False,
) -> None:
    """Compare what both backends answered, and say promote, hold or reject.

    With `--since` the verdict is for a look: it is printed and written, but not kept as the route's. With `--follow`
    the table is kept up to date; Ctrl-C ends it and writes the files.

    Exit code: **0** every route may be promoted, **10** at least one is on hold, **20** at least one is rejected.
    Numbers stay valid however often you look: run it as often as you like.
    """
    with faults_as_usage():
        from datetime import UTC, datetime

        from crossfade.comparison import Looking, Outputs, compare_routes
        from crossfade.moments import parse_moment

        looking = Looking(workers, parse_moment(since, datetime.now(UTC)) if since else None, follow)
        code = compare_routes(config, route or [], Outputs(html_file, json_file, md_file, junit_file, static), looking)
    raise typer.Exit(code)


@app.command()
def dashboard(
    config: ConfigOption = DEFAULT_CONFIG,
    host: Annotated[str, typer.Option(help="Address to listen on; beyond loopback a token is demanded.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 8088,
    notice: Annotated[str, typer.Option(help="A sentence that stands on every page.")] = "",
    gateway: Annotated[
        list[str] | None,
        typer.Option(help="Address of a gateway, for live numbers; may be repeated. Left out: gateway.listen."),
    ] = None,
) -> None:
    """Show verdicts, pairs and pictures in the browser, and move traffic from there.

    Beyond loopback, set CROSSFADE_DASHBOARD_TOKEN (operator: may move traffic), CROSSFADE_DASHBOARD_REVIEWER_TOKEN
    (may see bodies and label pairs) or CROSSFADE_DASHBOARD_VIEWER_TOKEN (verdicts only), or name a trusted proxy under
    `dashboard` in the config.
    """
    with faults_as_usage():
        from crossfade.dashboard import serve_dashboard

        serve_dashboard(config, host, port, os.environ, typer.echo, notice, gateway or [])


@app.command()
def toggle(
    route: Annotated[str, typer.Argument(help="The route's name.")],
    split: Annotated[list[str], typer.Argument(metavar="BACKEND[=PERCENT]…", help="Who serves it from now on.")],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Move a route's traffic: edit `active` in the config file; a running gateway takes it up within a second.

    `crossfade toggle classify onprem=5` gives 5 % to onprem and the rest to the other backend;
    `crossfade toggle classify cloud` brings everything back. Comments are kept, and the audit file gets a line.
    """
    from datetime import UTC, datetime

    from crossfade.config.toggle import write_toggle

    with faults_as_usage():
        change = write_toggle(config, route, split, who=who(), now=datetime.now(UTC))
    before, after = (
        ", ".join(f"{name} {share} %" for name, share in side.items()) for side in (change.before, change.after)
    )
    typer.echo(f"{change.route}: {before} -> {after}" if before != after else f"{change.route}: already {after}")


@app.command()
def sweep(
    function: Annotated[str, typer.Option(help="The function to load.")] = "restore",
    pool: Annotated[str, typer.Option(help="Pool sizes, as `1..6` or `1,2,4`; a server is started for each.")] = "1..4",
    rate: Annotated[
        str | None, typer.Option(help="Requests per second, as `1,2,5,10` (which is what is used if left out).")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds within which an answer counts.")] = 30.0,
    duration: Annotated[float, typer.Option(help="Seconds that each rate is sent.")] = 20.0,
    capacity: Annotated[float, typer.Option(help="Seconds that each pool is kept full.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of pictures, arrivals and resampling.")] = 1,
    query: Annotated[str, typer.Option(help="Query of every request, as `model=x4plus`.")] = "",
    all_functions: Annotated[bool, typer.Option("--all-functions", help="Sweep every function.")] = False,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="Each function alone, then all at once: what they cost each other.")
    ] = False,
    soak: Annotated[
        int | None, typer.Option(help="Send this many requests at a steady rate and look for drift.", min=1)
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write every number to this file.")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="Write a page to this file.")] = None,
    png_file: Annotated[Path | None, typer.Option("--png", help="Write the plots to this file.")] = None,
    patience: Annotated[
        float, typer.Option(help="Seconds to wait before each load for other processes to leave the cores alone.")
    ] = 0.0,
    logs: Annotated[Path, typer.Option(help="Where the servers' logs go.")] = Path("var/sweep"),
    models: ModelsOption = DEFAULT_MODELS,
) -> None:
    """Load the on-prem server at each pool size and rate; find the knee, say what to run, and how sure that is.

    The load is open-loop (Poisson): a request is sent when it is due, and its latency counts from then. It ends by
    itself; **Ctrl-C** ends it with what was measured so far. Exit code: 0, 1 a server failed, 130 stopped early.
    """
    from rich.console import Console

    from crossfade.sweep.bench import OnpremBench
    from crossfade.sweep.output import Files
    from crossfade.sweep.run import read_options, run

    with faults_as_usage():
        options = read_options(
            function, pool, rate, all_functions=all_functions, mixed=mixed, soak=soak,
            timeout_s=timeout, duration_s=duration, capacity_s=capacity, seed=seed, query=query, patience_s=patience,
        )  # fmt: skip
    bench = OnpremBench(models.resolve(), logs.resolve(), query=query, seed=seed)
    raise typer.Exit(run(options, Files(json_file, html_file, png_file), bench, Console()))


@config_app.command("check")
def config_check(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Say whether the config file can be used, and what is wrong with it line by line."""
    from crossfade.composition import load_checked

    with faults_as_usage():
        loaded = load_checked(config, os.environ)
    routes = f"{len(loaded.routes)} route" + ("s" if len(loaded.routes) != 1 else "")
    typer.echo(f"{config}: valid; {len(loaded.backends)} backends, {routes}")


@config_app.command("schema")
def config_schema() -> None:
    """Print the JSON Schema of the config file (editors check YAML against it)."""
    import json

    from crossfade.config.model import Config

    typer.echo(json.dumps(Config.model_json_schema(), indent=2))


@config_app.command("show")
def config_show(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Print the config with every default filled in and every secret hidden."""
    import json

    from ruamel.yaml import YAML

    from crossfade.config.loading import load_config

    with faults_as_usage():
        loaded = load_config(config, secrets=False)
    YAML().dump(json.loads(loaded.model_dump_json()), typer.get_text_stream("stdout"))


@key_app.command("new")
def key_new() -> None:
    """Print a new API key for a caller, and the hash that goes into the config.

    The key is shown once and kept nowhere. While one key follows another, list the hashes of both.
    """
    from gateway.keyring import new_key

    key, digest = new_key()
    typer.echo(f"key:  {key}      give this to the caller; it is sent as X-Api-Key or as Authorization: Bearer")
    typer.echo(f"hash: {digest}      put this under callers.NAME.keys")


@models_app.command("list")
def models_list(models: ModelsOption = DEFAULT_MODELS) -> None:
    """Show every model file: what it is for, its licence and size, and whether it is there and genuine."""
    from crossfade.model_files import print_models

    print_models(models)


@models_app.command("fetch")
def models_fetch(
    names: Annotated[
        list[str] | None, typer.Argument(help="Models by name; all that need no account if left out.")
    ] = None,
    models: ModelsOption = DEFAULT_MODELS,
) -> None:
    """Download model files, check their sha256, and keep them. What is already there is not fetched again."""
    from crossfade.model_files import fetch_models

    with faults_as_usage():
        raise typer.Exit(fetch_models(models, names or None))


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
