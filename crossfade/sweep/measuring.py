"""Run the load of a sweep, a mixed load and a soak on a bench, and keep what was measured as it comes.

Whatever is in ``Findings`` stays valid when a run is cancelled: a row is added when it is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from crossfade.sweep.bench import Bench, Site
from crossfade.sweep.contention import Contention
from crossfade.sweep.figures import Capacity, Cell, capacity, cell
from crossfade.sweep.load import Outcome, Send, send_closed, send_open
from crossfade.sweep.meter import Meter
from crossfade.sweep.plan import SweepPlan, poisson_arrivals, steady_arrivals
from crossfade.sweep.usage import STRANGERS

WARM_ROUNDS = 2
WARM_TIMEOUT_S = 120.0
MEMORY_PERIOD_S = 1.0
QUIET_S = 1.0
ATTEMPTS = 3


class LoadFailed(RuntimeError):
    """The server did not answer a single request well; the message says how it answered."""


class Progress(Protocol):
    """Shows what is being measured."""

    def stage(self, text: str, seconds: float) -> None:
        """Say that ``text`` is measured now, which takes about ``seconds``; what came before is over."""
        ...


@dataclass(slots=True)
class Findings:
    """What a sweep of one function has measured until now."""

    function: str
    capacities: list[Capacity] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)


@dataclass(slots=True)
class SoakRecord:
    """A soak's requests and the server's memory: pairs of (seconds from the start, bytes)."""

    function: str
    pool: int
    rate: float
    timeout_s: float
    outcomes: list[Outcome] = field(default_factory=list)
    memory: list[tuple[float, int]] = field(default_factory=list)


async def sweep(plan: SweepPlan, bench: Bench, found: Findings, progress: Progress) -> None:
    """Measure every pool size at every rate; rows go to ``found``. Raises ``LoadFailed``, and what the bench raises."""
    for pool in plan.pools:
        progress.stage(f"{plan.function}: starting pool {pool}", 0)
        async with bench.serve([plan.function], pool) as site:
            await warm_up(site.send(plan.function), pool, plan.function)
            progress.stage(f"{plan.function}: pool {pool}, full", plan.capacity_s)
            await wait_quiet(site.meter, plan.patience_s)
            found.capacities.append(await measure_capacity(site, plan.function, pool, plan.capacity_s, plan.timeout_s))
            for rate in plan.rates:
                await settle(site.send(plan.function), pool, plan.timeout_s)
                await wait_quiet(site.meter, plan.patience_s)
                progress.stage(f"{plan.function}: pool {pool}, {rate:g}/s", plan.duration_s)
                due = poisson_arrivals(rate, plan.duration_s, f"{plan.seed}/{plan.function}/{rate:g}")
                found.cells.append(await _measure_rate(site, plan, pool, rate, due))


async def _measure_rate(site: Site, plan: SweepPlan, pool: int, rate: float, due: Sequence[float]) -> Cell:
    outcomes: list[Outcome] = []
    site.meter.start()
    try:
        await send_open(site.send(plan.function), due, plan.timeout_s, outcomes.append)
    finally:
        usage = site.meter.stop()
    return cell(plan.function, pool, rate, outcomes, plan.duration_s, usage)


async def measure_capacity(site: Site, function: str, pool: int, duration_s: float, timeout_s: float) -> Capacity:
    """Keep a pool full, two callers per session, and return what it did at most.

    Strangers that take cores spoil this figure, so a disturbed measurement is repeated, ``ATTEMPTS`` in all, and the
    least disturbed one counts.
    """
    attempts: list[Capacity] = []
    while len(attempts) < ATTEMPTS and all(one.usage.disturbed for one in attempts):
        outcomes: list[Outcome] = []
        site.meter.start()
        try:
            await send_closed(site.send(function), 2 * pool, duration_s, timeout_s, outcomes.append)
        finally:
            usage = site.meter.stop()
        attempts.append(capacity(pool, outcomes, duration_s, usage))
    return min(attempts, key=lambda one: one.usage.strangers_cpu)


async def wait_quiet(meter: Meter, patience_s: float) -> None:
    """Wait until strangers leave the machine alone for a second, at most ``patience_s``."""
    clock = asyncio.get_running_loop().time
    give_up_at = clock() + patience_s
    while clock() < give_up_at:
        meter.start()
        try:
            await asyncio.sleep(QUIET_S)
        finally:
            usage = meter.stop()
        if usage.strangers_cpu <= STRANGERS:
            return


async def warm_up(send: Send, pool: int, function: str) -> None:
    """Fill every session a few times. Raises ``LoadFailed`` when an answer is not a 200 or does not come."""
    try:
        async with asyncio.timeout(WARM_TIMEOUT_S):
            for _ in range(WARM_ROUNDS):
                for status in await asyncio.gather(*(send(index) for index in range(pool))):
                    if status != 200:
                        raise LoadFailed(f"{function}: the server answered {status} to a single request; see its log")
    except TimeoutError:
        raise LoadFailed(f"{function}: no answer to a single request within {WARM_TIMEOUT_S:g} s") from None
    except ConnectionError as error:
        raise LoadFailed(f"{function}: the connection broke at a single request: {error}") from error


async def settle(send: Send, pool: int, timeout_s: float) -> None:
    """Wait until what an earlier load left in the queue is done: a request for each session is answered, or time out.

    Queues are first come, first served, so these are answered last.
    """
    ignored: list[Outcome] = []
    await send_open(send, [0.0] * pool, timeout_s, ignored.append)


async def mix(
    rates: Mapping[str, float], plan: SweepPlan, bench: Bench, found: list[Contention], progress: Progress
) -> None:
    """Measure each function alone, then all at once, at ``rates`` by function and the plan's first pool size.

    The server runs all of the functions in every step, so that only the load differs.
    """
    pool, functions = plan.pools[0], sorted(rates)
    due = {name: poisson_arrivals(rates[name], plan.duration_s, f"{plan.seed}/{name}/mixed") for name in functions}
    progress.stage("mixed: starting", 0)
    async with bench.serve(functions, pool) as site:
        for name in functions:
            await warm_up(site.send(name), pool, name)
        alone: dict[str, Cell] = {}
        for name in functions:
            progress.stage(f"mixed: {name} alone, {rates[name]:.3g}/s", plan.duration_s)
            alone |= await _measure_together(site, plan, rates, {name: due[name]})
        for name in functions:
            await settle(site.send(name), pool, plan.timeout_s)
        progress.stage("mixed: all at once", plan.duration_s)
        together = await _measure_together(site, plan, rates, due)
        found.extend(Contention(alone[name], together[name]) for name in functions)


async def _measure_together(
    site: Site, plan: SweepPlan, rates: Mapping[str, float], due: Mapping[str, Sequence[float]]
) -> dict[str, Cell]:
    outcomes: dict[str, list[Outcome]] = {name: [] for name in due}
    site.meter.start()
    try:
        async with asyncio.TaskGroup() as loads:
            for name, times in due.items():
                load = send_open(site.send(name), times, plan.timeout_s, outcomes[name].append)
                loads.create_task(load, name=f"sweep-load-{name}")
    finally:
        usage = site.meter.stop()
    return {
        name: cell(name, plan.pools[0], rates[name], kept, plan.duration_s, usage) for name, kept in outcomes.items()
    }


async def soak(record: SoakRecord, count: int, site: Site, progress: Progress) -> None:
    """Send ``count`` requests at the record's steady rate and note the memory every second."""
    progress.stage(f"soak: {record.function}, {record.rate:.3g}/s", count / record.rate)
    watching = asyncio.create_task(_watch_memory(record, site), name="sweep-memory")
    try:
        due = steady_arrivals(record.rate, count)
        await send_open(site.send(record.function), due, record.timeout_s, record.outcomes.append)
    finally:
        watching.cancel()
        await asyncio.wait([watching])


async def _watch_memory(record: SoakRecord, site: Site) -> None:
    clock = asyncio.get_running_loop().time
    start = clock()
    while True:
        record.memory.append((clock() - start, site.meter.memory_bytes()))
        await asyncio.sleep(MEMORY_PERIOD_S)
