"""Run a sweep from the command line: choose what to measure, show it, stop cleanly, write what was measured."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from rich.console import Console

from crossfade.demo.processes import ProcessFailed
from crossfade.sweep.bench import SWITCHES, Bench
from crossfade.sweep.contention import Contention, shared_rates
from crossfade.sweep.drift import judge_soak
from crossfade.sweep.measuring import (
    Findings,
    LoadFailed,
    Progress,
    SoakRecord,
    measure_capacity,
    mix,
    settle,
    soak,
    sweep,
    warm_up,
)
from crossfade.sweep.output import Files, Report, conclude, print_report, write_files
from crossfade.sweep.plan import MAX_REQUESTS, SweepPlan, check_load, parse_pools, parse_rates
from crossfade.sweep.progress import StageBar

FUNCTIONS = tuple(SWITCHES)
INTERRUPTED = 130
_STOPS = (KeyboardInterrupt, asyncio.CancelledError, SystemExit)
"""What a signal raises: Ctrl-C, SIGTERM between servers, SIGTERM or SIGHUP while a server runs (`Processes`)."""
SOAK_SHARE = 0.6
LoopFactory = Callable[[], asyncio.AbstractEventLoop] | None
_DEFAULT_RATES = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. ``rates`` empty means: the defaults, or chosen from what the server can do at most."""

    functions: tuple[str, ...]
    pools: tuple[int, ...]
    rates: tuple[float, ...] = ()
    timeout_s: float = 30.0
    duration_s: float = 20.0
    capacity_s: float = 10.0
    seed: int = 1
    query: str = ""
    patience_s: float = 0.0
    mixed: bool = False
    soak: int | None = None

    def __post_init__(self) -> None:
        unknown = set(self.functions) - set(FUNCTIONS)
        if unknown:
            raise ValueError(f"unknown function {min(unknown)!r}; known are {', '.join(FUNCTIONS)}")
        if self.mixed and self.soak:
            raise ValueError("a mixed load and a soak are two runs: give one of them")
        if self.soak is not None and not 1 <= self.soak <= MAX_REQUESTS:
            raise ValueError(f"a soak sends 1 to {MAX_REQUESTS} requests")
        check_load(self.rates or _DEFAULT_RATES, self.timeout_s, self.duration_s)

    def plan(self, function: str) -> SweepPlan:
        rates = self.rates or _DEFAULT_RATES
        times = (self.timeout_s, self.duration_s, self.capacity_s)
        return SweepPlan(function, self.pools, rates, *times, self.seed, self.query, self.patience_s)

    @property
    def seconds(self) -> float:
        """About how long the load takes; a soak without a rate is not known before its capacity is."""
        if self.soak is not None:
            return self.soak / self.rates[0] if self.rates else self.capacity_s
        if self.mixed:
            most = 0.0 if self.rates else len(self.functions) * self.capacity_s
            return most + (len(self.functions) + 1) * self.duration_s
        return sum(self.plan(function).seconds for function in self.functions)


@dataclass(slots=True)
class Record:
    """What was measured until now."""

    found: list[Findings] = field(default_factory=list)
    contention: list[Contention] = field(default_factory=list)
    soak: SoakRecord | None = None
    failures: list[str] = field(default_factory=list)


def read_options(
    function: str, pool: str, rate: str | None, *, all_functions: bool, mixed: bool, **rest: Any
) -> Options:
    """Turn the command line's words into options. Raises ``ValueError``."""
    functions = FUNCTIONS if all_functions or mixed else (function,)
    rates = parse_rates(rate) if rate else ()
    return Options(functions, parse_pools(pool), rates, mixed=mixed, **rest)


def run(options: Options, files: Files, bench: Bench, console: Console, loop_factory: LoopFactory = None) -> int:
    """Measure, print and write. Returns 0, 1 when a server failed, 130 when it was stopped by Ctrl-C or SIGTERM."""
    record, began_at = Record(), datetime.now(UTC)
    bar = StageBar(console, options.seconds)
    code = _until_stopped(lambda: _shown(measure(options, bench, record, bar), bar), record.failures, loop_factory)
    for failure in record.failures:
        console.print(f"did not work: {failure}", highlight=False)
    command = {name: value for name, value in asdict(options).items() if value not in ((), "", None, False)}
    soaked = record.soak
    report = Report(
        command=command,
        machine=bench.describe(),
        began_at=began_at,
        complete=code == 0,
        found=conclude(record.found, options.seed),
        contention=record.contention,
        soak=judge_soak(soaked.function, soaked.pool, soaked.rate, soaked.outcomes, soaked.memory) if soaked else None,
    )
    print_report(report, console)
    for path in write_files(report, files):
        console.print(f"written: {path}", highlight=False, soft_wrap=True)
    return code


async def measure(options: Options, bench: Bench, record: Record, progress: Progress) -> None:
    """Run what was asked for; what is measured goes to ``record`` as it comes."""
    if options.soak is not None:
        await _soak(options, options.soak, bench, record, progress)
    elif options.mixed:
        plan = options.plan(options.functions[0])
        rates = dict.fromkeys(options.functions, options.rates[0]) if options.rates else {}
        rates = rates or await _shared_rates(options, bench, progress)
        await mix(rates, plan, bench, record.contention, progress)
    else:
        for function in options.functions:
            found = Findings(function)
            record.found.append(found)
            try:
                await sweep(options.plan(function), bench, found, progress)
            except (ProcessFailed, LoadFailed) as failure:  # the other functions can still be measured
                record.failures.append(str(failure))


async def _soak(options: Options, count: int, bench: Bench, record: Record, progress: Progress) -> None:
    """Soak the first function at the first rate, or at 60 % of what the pool can do at most."""
    function, pool = options.functions[0], options.pools[0]
    async with bench.serve([function], pool) as site:
        send = site.send(function)
        await warm_up(send, pool, function)
        rate = options.rates[0] if options.rates else None
        if rate is None:
            progress.stage(f"{function}: pool {pool}, full", options.capacity_s)
            most = await measure_capacity(site, function, pool, options.capacity_s, options.timeout_s)
            rate = SOAK_SHARE * most.per_second
            await settle(send, pool, options.timeout_s)
        if rate <= 0:
            raise LoadFailed(f"{function}: nothing was answered in {options.capacity_s:g} s; give a rate")
        record.soak = SoakRecord(function, pool, rate, options.timeout_s)
        await soak(record.soak, count, site, progress)


async def _shared_rates(options: Options, bench: Bench, progress: Progress) -> dict[str, float]:
    most: dict[str, float] = {}
    pool = options.pools[0]
    async with bench.serve(options.functions, pool) as site:
        for function in options.functions:
            await warm_up(site.send(function), pool, function)
            progress.stage(f"{function}: pool {pool}, full", options.capacity_s)
            capacity = await measure_capacity(site, function, pool, options.capacity_s, options.timeout_s)
            most[function] = capacity.per_second
    silent = [function for function, rate in most.items() if rate <= 0]
    if silent:
        raise LoadFailed(f"{silent[0]}: nothing was answered in {options.capacity_s:g} s; give a rate")
    return shared_rates(most)


async def _shown(work: Coroutine[Any, Any, None], bar: StageBar) -> None:
    """Run ``work`` under the bar; SIGTERM cancels it as Ctrl-C does."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with bar.shown():
        await work


def _until_stopped(
    work: Callable[[], Coroutine[Any, Any, None]], failures: list[str], loop_factory: LoopFactory
) -> int:
    code = INTERRUPTED
    with suppress(*_STOPS), asyncio.Runner(loop_factory=loop_factory) as runner:
        try:
            runner.run(work())
        except (ProcessFailed, LoadFailed) as failure:
            failures.append(str(failure))
        code = 0
    return 1 if code == 0 and failures else code
