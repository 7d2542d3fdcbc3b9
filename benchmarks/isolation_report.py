"""The tables of ``benchmarks/isolation.py``, and whether what is promised held."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.isolation_load import Run
from benchmarks.isolation_peers import BEHAVIOURS

PERCENTS = (50, 99)
ABOVE_BUDGET_MIB = 100.0
BACK_WITHIN_MIB = 32.0
"""What an allocator may keep of what was freed."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """One gateway with one shadow: its memory, and what became of the requests that reached its mirror."""

    before_mib: float
    peak_mib: float
    after_mib: float
    account: Mapping[str, object]

    def count(self, key: str) -> int:
        """Return a number of the account."""
        number = self.account[key]
        assert isinstance(number, int)
        return number

    @property
    def skipped(self) -> Mapping[str, int]:
        """The skips of the account, by reason."""
        skipped = self.account["skipped"]
        assert isinstance(skipped, Mapping)
        return skipped

    def fits(self, budget_mib: float) -> bool:
        """Whether memory stayed within its bound and came back."""
        bounded = self.peak_mib <= self.before_mib + budget_mib + ABOVE_BUDGET_MIB
        return bounded and self.after_mib <= self.before_mib + BACK_WITHIN_MIB


@dataclass(slots=True)
class Results:
    """All that was measured. ``runs`` by shadow, size and who: ``on``, ``off`` or a peer; ``gateways`` by shadow, one
    for each round; ``copies`` by size and who: how many bodies a fast shadow got whole; ``grown_mib`` by shadow and
    peer."""

    runs: dict[tuple[str, str, str], list[Run]] = field(default_factory=dict)
    gateways: dict[str, list[Gateway]] = field(default_factory=dict)
    copies: Counter[tuple[str, str]] = field(default_factory=Counter)
    grown_mib: dict[tuple[str, str], float] = field(default_factory=dict)

    def sent(self, behaviour: str, size: str, who: str) -> int:
        """Return how many requests were sent."""
        return sum(run.sent for run in self.runs[behaviour, size, who])


def latency_table(results: Results, sizes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the lines of the table of on against off, and what missed the aim: the medians of the runs, and of *off*
    also the lowest and the highest."""
    lines = ["| shadow | body | off p50 / p99 ms | on p50 / p99 ms | errors | within |", "|---" * 6 + "|"]
    missed: list[str] = []
    for size in sizes:
        off = [run for key, runs in results.runs.items() if key[1:] == (size, "off") for run in runs]
        best, usual, worst = [
            tuple(pick(run.percentile_ms(each) for run in off) for each in PERCENTS)
            for pick in (min, statistics.median, max)
        ]
        spread = " / ".join(
            f"{middle:.2f} ({low:.2f}-{high:.2f})" for low, middle, high in zip(best, usual, worst, strict=True)
        )
        for behaviour in BEHAVIOURS:
            on = results.runs[behaviour, size, "on"]
            middle = [statistics.median(run.percentile_ms(each) for run in on) for each in PERCENTS]
            errors = sum(run.errors for run in on)
            within = not errors and all(seen <= bound for seen, bound in zip(middle, worst, strict=True))
            seen = " / ".join(f"{each:.2f}" for each in middle)
            lines.append(f"| {behaviour} | {size} | {spread} | {seen} | {errors} | {'yes' if within else '**no**'} |")
            if not within:
                missed.append(f"{behaviour}, {size}: {seen} ms with {errors} errors against {spread}")
    failed = sum(run.errors for (_, _, who), runs in results.runs.items() if who == "off" for run in runs)
    return lines, [*missed, *([f"{failed} errors without a mirror"] if failed else [])]


def memory_table(results: Results, budget_mib: float) -> tuple[list[str], list[str]]:
    """Return the lines of the table of memory and of what was recorded, and what missed the aim. Shown is the memory of
    the gateway that grew most, and the sum of all accounts."""
    lines = ["| shadow | memory before, peak, after (MiB) | received | recorded | skipped |", "|---" * 5 + "|"]
    missed = []
    for behaviour, rounds in results.gateways.items():
        seen = max(rounds, key=lambda each: each.peak_mib - each.before_mib)
        fits = all(each.fits(budget_mib) for each in rounds)
        memory = f"{seen.before_mib:.0f}, {seen.peak_mib:.0f}, {seen.after_mib:.0f}{'' if fits else ' **too much**'}"
        received, recorded = (sum(each.count(key) for each in rounds) for key in ("received", "recorded"))
        skipped = Counter[str]()
        for each in rounds:
            skipped.update(each.skipped)
        named = ", ".join(f"{count} {reason}" for reason, count in skipped.items() if count) or "-"
        lines.append(f"| {behaviour} | {memory} | {received} | {recorded} | {named} |")
        if not fits:
            missed.append(f"memory with the shadow {behaviour}: {memory} MiB")
        missed += [
            f"the account with the shadow {behaviour}: {each.account}"
            for each in rounds
            if not each.account["balanced"] or each.account["in_flight"]
        ]
        if behaviour == "fast" and recorded != received:
            missed.append("a fast shadow did not get everything")
    return lines, missed


def peer_table(results: Results, sizes: Sequence[str], peers: Sequence[str]) -> list[str]:
    """Return the lines of the table of us beside the peers, all with their mirrors on."""
    whos = {"on": "crossfade", **{name: name for name in peers}}
    lines = [f"| mirror on: p99 ms at {', '.join(sizes)}; memory | {' | '.join(whos.values())} |"]
    lines.append("|---" * (len(whos) + 1) + "|")
    for behaviour in BEHAVIOURS:
        cells = [f"{_latencies(results, sizes, behaviour, who)}; {_grown(results, behaviour, who)}" for who in whos]
        lines.append(f"| {behaviour} | {' | '.join(cells)} |")
    copies = [_copies(results, sizes, who) for who in whos]
    return [*lines, f"| copies that a fast shadow got whole | {' | '.join(copies)} |"]


def _latencies(results: Results, sizes: Sequence[str], behaviour: str, who: str) -> str:
    cells = []
    for size in sizes:
        runs = results.runs[behaviour, size, who]
        errors, sent = sum(run.errors for run in runs), results.sent(behaviour, size, who)
        p99_ms = statistics.median(run.percentile_ms(99) for run in runs)
        failed = f"**{errors} of {sent} failed**"
        cells.append(failed if errors == sent else f"{p99_ms:.1f}" + (f" ({failed})" if errors else ""))
    return ", ".join(cells)


def _grown(results: Results, behaviour: str, who: str) -> str:
    if who != "on":
        return f"+{results.grown_mib[behaviour, who]:.0f} MiB"
    return f"+{max(each.peak_mib - each.before_mib for each in results.gateways[behaviour]):.0f} MiB"


def _copies(results: Results, sizes: Sequence[str], who: str) -> str:
    return ", ".join(f"{results.copies[size, who]} of {results.sent('fast', size, who)}" for size in sizes)
