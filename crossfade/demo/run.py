"""The main job, end to end: start everything, send real pictures, compare, print the table, keep the dashboard up."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from compare.phrases import mark
from crossfade.comparison import Outputs, judge
from crossfade.config.loading import load_config
from crossfade.demo import standin
from crossfade.demo.faults import Fault
from crossfade.demo.processes import Processes, ProcessFailed, Spec, child_environment, free_port
from crossfade.demo.traffic import Sent, send_all, wait_drained
from crossfade.model_files import missing_models

FULL = {"classify": 850, "remove-background": 64, "face-blur": 64, "restore": 64, "erase": 64}
QUICK = dict.fromkeys(FULL, 20)
SLOW_PAIRS = 300
"""Slowness rejects by the 95th percentile, which no fewer than 234 pairs can judge when five routes are judged."""
MAX_CONCURRENT, MAX_CONCURRENT_SLOW = 4, 24
"""Shadow calls at once. A candidate that only waits (the slow fault) takes more without using more of a core."""
MARKER = ".crossfade-demo"
DRAIN_TIMEOUT_S = 120.0
NOTICE = mark(
    "The baseline of this run is a stand-in for a cloud: another process of the same model server on this machine."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. ``folder`` belongs to the demo: what an earlier run left there is deleted."""

    folder: Path
    models: Path
    counts: Mapping[str, int]
    once: bool
    fault: Fault | None
    dashboard_port: int


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the four processes listen on loopback."""

    gateway: int
    cloud: int
    onprem: int
    dashboard: int

    def url(self, port: int) -> str:
        return f"http://127.0.0.1:{port}"


def picture_counts(quick: bool, fault: Fault | None) -> Mapping[str, int]:
    """Return how many pictures each route gets."""
    counts = dict(QUICK if quick else FULL)
    if fault and fault.name == "slow" and not quick:
        counts[fault.route] = SLOW_PAIRS
    return counts


def run_demo(plan: Plan) -> int:
    """Run the main job. Returns 0 when every step worked, whatever the verdicts, else 1 after naming what did not."""
    console = Console()
    missing = missing_models(plan.models)
    if missing:
        console.print(
            f"Missing in {plan.models}: {', '.join(missing)}. Run: crossfade models fetch --models {plan.models}"
        )
        return 1
    ports = Ports(free_port(8080), free_port(9001), free_port(9002), free_port(plan.dashboard_port))
    config = _prepare(plan, ports)
    environ = child_environment({standin.KEY_VARIABLE: secrets.token_urlsafe(24)})
    problems: list[str] = []
    with Processes(plan.folder / "logs", environ) as processes:
        try:
            _start(processes, plan, ports, config, console)
            problems += _work(plan, ports, config, console)
        except ProcessFailed as failure:
            problems.append(str(failure))
        problems += processes.failures()
        _say(problems, console)
        if not plan.once and not problems:
            _stay(ports.url(ports.dashboard), console)
    return 1 if problems else 0


def _prepare(plan: Plan, ports: Ports) -> Path:
    """Empty the demo's folder of an earlier run and write its config. Returns the config's path."""
    folder, slow = plan.folder, plan.fault is not None and plan.fault.name == "slow"
    marker = folder / MARKER
    if folder.is_dir() and any(folder.iterdir()) and not marker.exists():
        raise ValueError(f"{folder} holds files of someone else; name an empty folder for the demo with --folder")
    folder.mkdir(parents=True, exist_ok=True)
    marker.write_text("This folder belongs to crossfade demo: each run deletes what the last one left.\n")
    for left in (*folder.glob("crossfade.db*"), folder / "audit.jsonl", folder / "report.html", folder / "report.json"):
        left.unlink(missing_ok=True)
    for name in ("bodies", "logs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    text = files("crossfade.demo").joinpath("demo.yaml").read_text(encoding="utf-8")
    values = {
        "GATEWAY_PORT": ports.gateway,
        "CLOUD_PORT": ports.cloud,
        "ONPREM_PORT": ports.onprem,
        "MAX_CONCURRENT": MAX_CONCURRENT_SLOW if slow else MAX_CONCURRENT,
    }
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    config = folder / "crossfade.yaml"
    config.write_text(text, encoding="utf-8")
    return config


def _start(processes: Processes, plan: Plan, ports: Ports, config: Path, console: Console) -> None:
    models = ["--models", str(plan.models)]
    cloud, onprem, gateway, dashboard = map(ports.url, (ports.cloud, ports.onprem, ports.gateway, ports.dashboard))
    specs = [
        Spec("cloud", "crossfade.demo.standin", ["--port", str(ports.cloud), *models], f"{cloud}/v2/health/ready"),
        _onprem(plan, ports.onprem, models, f"{onprem}/v2/health/ready"),
        Spec("gateway", "crossfade.cli", ["gateway", "--config", str(config)], f"{gateway}/-/ready"),
        Spec(
            "dashboard",
            "crossfade.cli",
            ["dashboard", "--config", str(config), "--port", str(ports.dashboard), "--notice", NOTICE],
            f"{dashboard}/-/live",
        ),
    ]
    with console.status("Starting the cloud stand-in, the on-prem server, the gateway and the dashboard …"):
        for spec in specs:
            processes.start(spec)
        processes.wait_ready()
    console.print(f"cloud stand-in  {cloud}   [dim]stands in for a metered cloud endpoint; it is not one[/dim]")
    wrong = f"   [bold red]wrong on purpose: {plan.fault.route}:{plan.fault.name}[/bold red]" if plan.fault else ""
    console.print(f"on-prem server  {onprem}{wrong}")
    console.print(f"gateway         {gateway}   [dim]{config}[/dim]")
    console.print(f"dashboard       {dashboard}")


def _onprem(plan: Plan, port: int, models: list[str], health: str) -> Spec:
    where = ["--port", str(port), *models]
    if plan.fault is None:
        return Spec("onprem", "crossfade.cli", ["onprem", *where], health)
    fault = f"{plan.fault.route}:{plan.fault.name}"
    return Spec("onprem", "crossfade.demo.candidate", [*where, "--fault", fault], health)


def _work(plan: Plan, ports: Ports, config: Path, console: Console) -> list[str]:
    """Send the traffic and judge it. Returns a sentence for each thing that did not work."""
    began = time.monotonic()
    sent = _send(plan, ports.url(ports.gateway), console)
    problems = sent.problems()
    with console.status("Waiting for the last shadow answers …"):
        if not asyncio.run(wait_drained(ports.url(ports.gateway), DRAIN_TIMEOUT_S)):
            problems.append(f"the mirror still had work after {DRAIN_TIMEOUT_S:g} s")
    console.print(f"traffic took {time.monotonic() - began:.0f} s; comparing")
    report = plan.folder / "report.html"
    outputs = Outputs(html=report, json=plan.folder / "report.json")
    judged = judge(load_config(config, secrets=False), (), outputs, console, notice=NOTICE)
    for result in judged:
        compared, wanted = result.verdict.coverage.compared, plan.counts[result.policy.route]
        if compared < wanted:
            problems.append(f"{result.policy.route}: {compared} of {wanted} requests were compared")
        if result.faults:
            problems.append(f"{result.policy.route}: {result.faults} pairs could not be measured")
    console.print(f"report          {report}")
    return problems


def _send(plan: Plan, gateway: str, console: Console) -> Sent:
    columns = (
        TextColumn("{task.description:18}"),
        BarColumn(),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bars = {route: progress.add_task(route, total=count) for route, count in plan.counts.items()}
        return asyncio.run(send_all(gateway, plan.counts, lambda route: progress.advance(bars[route])))


def _say(problems: list[str], console: Console) -> None:
    for problem in problems:
        console.print(f"[red]did not work:[/red] {problem}", highlight=False)


def _stay(dashboard: str, console: Console) -> None:
    console.print(f"\nLook at every pair: [bold]{dashboard}[/bold]   Ctrl-C ends the demo.")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        console.print("ending")
