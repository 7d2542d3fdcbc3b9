"""The work of `crossfade replay`: build the parts from the config, run with a bar, end with a table."""

from __future__ import annotations

import asyncio
import math
import random
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from crossfade.audit import append_line
from crossfade.composition import gateway_settings, load_checked
from crossfade.config.loading import ConfigError
from crossfade.replay.recorded import Chosen, Recorded
from crossfade.replay.run import Outcome, Plan, Replay
from crossfade.store_faults import store_faults
from gateway.app import open_transport
from gateway.backend_tls import ClientContexts
from gateway.fleet import Fleet
from gateway.generation import all_servers
from gateway.mirror_servers import MirrorServers
from gateway.settings import Backend, Route, Settings
from shadow.call import Caller
from shadow.store.reader import Reader
from shadow.store.store import Store
from shadow.tee import ByteBudget

STOPPED = 130


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for on the command line."""

    plan: Plan
    chosen: Chosen
    to: str
    who: str


def replay(config: Path, environ: Mapping[str, str], asked: Asked, now: datetime) -> int:
    """Run, print the table, return the exit code: 0, 1 when answers failed or were not stored, 130 when stopped early.

    Raises ``ValueError`` for what cannot be run.
    """
    loaded = load_checked(config, environ)
    settings = gateway_settings(loaded)
    route = next((each for each in settings.routes if each.name == asked.plan.route), None)
    if route is None:
        raise ConfigError(
            f"there is no route {asked.plan.route}; there is {', '.join(r.name for r in settings.routes)}"
        )
    backend = settings.backends.get(asked.to)
    if backend is None:
        raise ConfigError(f"there is no backend {asked.to}; there is {', '.join(settings.backends)}")
    line = {"at": now.isoformat(), "event": "replayed", "who": asked.who, "route": route.name, "to": backend.name}
    append_line(Path(loaded.audit), {**line, "run": asked.plan.run_route})
    console = Console()
    with store_faults():
        outcome, recorded = asyncio.run(_run(settings, route, backend, asked, console))
    if not outcome.sent and not outcome.cut_short:
        raise ConfigError(f"nothing to send: {_left_out(recorded) or 'nothing is recorded in that time'}")
    _tell(outcome, recorded, asked, console)
    return STOPPED if outcome.stopped else int(bool(outcome.failures or outcome.not_stored))


async def _run(
    settings: Settings, route: Route, backend: Backend, asked: Asked, console: Console
) -> tuple[Outcome, Recorded]:
    async with AsyncExitStack() as stack:
        assert settings.store_url is not None
        assert settings.bodies_dir is not None
        store = Store.open(settings.store_url, settings.bodies_dir, settings.keep_bodies_days, key=settings.store_key)
        stack.push_async_callback(store.aclose)
        store.configure({asked.plan.run_route: route.keep})
        transport = open_transport(settings)
        stack.push_async_callback(transport.aclose)
        budget, rng = ByteBudget(settings.mirror.byte_budget_bytes), random.SystemRandom()
        caller = Caller(transport, budget, time.monotonic, rng)
        servers = MirrorServers(Fleet(time.monotonic, rng), time.monotonic, rng)
        servers.configure(settings.backends)
        target = servers.target(backend, all_servers(settings, ClientContexts())[backend.name])
        reader = store.reader()
        if asked.plan.run_route in reader.routes():
            raise ConfigError(f"there is a run {asked.plan.name} of {route.name} already; take another --name")
        rule = replace(route.shadow, forward_headers=frozenset())  # of a credential only its name was recorded
        bar = stack.enter_context(_bar(console))
        task = bar.add_task("", total=_expected(reader, asked))
        runner = Replay(
            asked.plan, target, rule, store, caller, budget,
            lambda outcome: bar.update(task, completed=outcome.stored + outcome.not_stored),
        )  # fmt: skip
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, runner.stop)
        loop.add_signal_handler(signal.SIGTERM, runner.stop)
        recorded = Recorded(reader, asked.chosen)
        return await runner.run(recorded), recorded


def _expected(reader: Reader, asked: Asked) -> int:
    chosen = asked.chosen
    count = reader.count_received(chosen.route, chosen.since, chosen.until)
    return asked.plan.passes * (count if chosen.limit is None else min(count, chosen.limit))


def _bar(console: Console) -> Progress:
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True)


def _tell(outcome: Outcome, recorded: Recorded, asked: Asked, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    for name in ("answers", "whole", "p50", "p95", "p99", "slowest"):
        table.add_column(name, justify="left" if name == "answers" else "right")
    for name, seconds in (("recorded", outcome.recorded_s), (asked.to, outcome.replayed_s)):
        ordered = sorted(seconds)
        table.add_row(name, str(len(ordered)), *(_ms(ordered, p) for p in (0.5, 0.95, 0.99, 1.0)))
    console.print(table)
    console.print(f"\nsent {outcome.sent:,}, stored {outcome.stored:,}", highlight=False)
    notes = [
        ("failed", ", ".join(f"{n} {kind}" for kind, n in outcome.failures.items())),
        ("not stored", f"{outcome.not_stored:,}" if outcome.not_stored else ""),
        ("left out", _left_out(recorded)),
        ("with redacted values", f"{recorded.altered:,} requests" if recorded.altered else ""),
        ("held back", _held_back(outcome, asked)),
    ]
    for name, text in notes:
        if text:
            console.print(f"{name}: {text}", highlight=False)
    console.print(f"\nCompare it: crossfade compare --route '{asked.plan.run_route}'", highlight=False, soft_wrap=True)


def _held_back(outcome: Outcome, asked: Asked) -> str:
    if not outcome.held_back or (asked.plan.speed.factor is None and asked.plan.speed.rate_per_s is None):
        return ""
    return (
        f"{outcome.held_back:,} requests waited for one of {asked.plan.concurrency} places, at most "
        f"{outcome.late_s:.2f} s: the load was lighter than asked for; raise --concurrency"
    )


def _left_out(recorded: Recorded) -> str:
    return ", ".join(f"{n:,} ({reason})" for reason, n in recorded.left_out.items())


def _ms(ordered: Sequence[float], p: float) -> str:
    """Return the nearest-rank percentile of ascending seconds, in milliseconds."""
    return f"{1e3 * ordered[max(0, math.ceil(p * len(ordered)) - 1)]:,.1f} ms" if ordered else "-"
