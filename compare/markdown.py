"""The report as Markdown (CommonMark with tables), for a pull request or a chat: the page's numbers, without drawings.

Everything that came from traffic is escaped: it can make no link, picture, markup or table cell of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from compare.detail import WaitTable, idle_rules, plain_words, wait_tables
from compare.gates import GateResult
from compare.job import RouteResult
from compare.reasons import amount, failure_phrase, phrase
from compare.report import headline
from compare.table import SIGNS, TableRow, most_urgent_first, seconds, share, table_rows
from compare.verdict import Verdict

_SPECIAL = re.compile(r"[\\`*_\[\]|<>&~$]")


def escape(text: object) -> str:
    """Return text that Markdown shows as it is, on one line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in str(text)).split())
    plain = _SPECIAL.sub(lambda found: "\\" + found[0], line)
    return plain.replace("://", ":\\/\\/").replace("www.", "www\\.")


def render_markdown(results: Sequence[RouteResult], *, generated_at: datetime, notice: str = "") -> str:
    """Return the whole report."""
    parts = [f"# {headline(results)}", f"{generated_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"]
    if notice:
        parts.append(f"> **{escape(notice)}**")
    results = most_urgent_first(results)
    rows = table_rows(results)
    parts.append(_table(_HEADS, [_cells(row) for row in rows]))
    for result, row in zip(results, rows, strict=True):
        parts += _route(result, row)
    return "\n\n".join(parts) + "\n"


_HEADS = (
    "route", "verdict", "pairs", "baseline", "candidate", "median pair", "identical", "equivalent", "different",
    "broken", "failed", "refused by both", "compared",
)  # fmt: skip


def _cells(row: TableRow) -> tuple[object, ...]:
    return (
        row.route, f"{SIGNS[row.decision]} {row.decision.value}", row.pairs, row.baseline, row.candidate, row.ratio,
        row.identical, row.equivalent, row.different, row.broken, row.failed, row.refused, share(row.coverage),
    )  # fmt: skip


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *([escape(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _changes(verdict: Verdict) -> list[str]:
    if not verdict.changes:
        return []
    return ["What would change this:", "\n".join(f"* {escape(line)}" for line in verdict.changes)]


def _route(result: RouteResult, row: TableRow) -> list[str]:
    verdict, policy = result.verdict, result.policy
    parts = [
        f"## {SIGNS[row.decision]} {escape(row.route)}: {row.decision.value}",
        escape(verdict.reason),
        *_changes(verdict),
        escape(
            f"{verdict.pairs} pairs{f' of {row.seen}' if row.seen else ''}, {verdict.controls} control calls; "
            f"epoch {verdict.epoch.number}; policy "
            f"{verdict.policy_hash}; "
            f"baseline {verdict.baseline} ({verdict.epoch.baseline_build or 'build not named'}), "
            f"candidate {verdict.candidate} ({verdict.epoch.candidate_build or 'build not named'})"
        ),
        _table(
            ("gate", "estimate", "interval", "allowed", "n", "state", "more pairs", "note"), map(_gate, verdict.gates)
        ),
        escape(plain_words(verdict, policy) + "."),
        _latency(verdict),
        *(_waits(table, verdict) for table in wait_tables(result.tally)),
    ]
    said = [(phrase(d, policy), d.pairs, d.noise) for d in verdict.diagnoses]
    said += [(failure_phrase(d, policy), d.pairs, d.noise) for d in verdict.failures]
    if said:
        parts.append(_table(("what differs", "pairs", "control calls"), said))
    idle = idle_rules(result.tally)
    if idle:
        parts.append(f"JSON rules that matched nothing: {escape(', '.join(idle))}.")
    if verdict.paths:
        paths = [(p.path, f"{p.pairs} of {p.of}", f"{p.noise} of {p.controls}") for p in verdict.paths]
        parts.append(_table(("JSON path", "pairs", "control calls"), paths))
    if verdict.refused:
        refused = ", ".join(f"{n} with {status}" for status, n in verdict.refused.items())
        parts.append(f"Refused by both sides, evidence for nobody: {escape(refused)}.")
    accounts = [*verdict.coverage.equations(), *filter(None, [verdict.coverage.beside()])]
    return [*parts, "\n".join(f"* {escape(line)}" for line in accounts)]


def _waits(table: WaitTable, verdict: Verdict) -> str:
    old, new = verdict.baseline, verdict.candidate
    heads = (table.title, f"{old} n", "median", "95th", f"{new} n", "median", "95th")
    rows = [
        (row.name, row.baseline_p50.n, seconds(row.baseline_p50), seconds(row.baseline_p95), row.candidate_p50.n,
         seconds(row.candidate_p50), seconds(row.candidate_p95))
        for row in table.rows
    ]  # fmt: skip
    return _table([escape(head) for head in heads], rows)


def _gate(gate: GateResult) -> tuple[object, ...]:
    ends = f"{amount(gate.low, gate.unit)} to {amount(gate.high, gate.unit)}" if gate.n else "no data"
    allowed = "" if gate.margin is None else amount(gate.margin, gate.unit)
    kind = "" if gate.required else ", can only block or reject" if gate.critical else ", shown only"
    more = "" if gate.more is None else gate.more
    estimate = "" if gate.estimate is None else amount(gate.estimate, gate.unit)
    return f"{gate.id} {gate.title}{kind}", estimate, ends, allowed, gate.n, gate.state.value, more, gate.note


def _latency(verdict: Verdict) -> str:
    found = verdict.latency
    sides = (
        (verdict.baseline, found.baseline_p50, found.baseline_p95, found.baseline_p99),
        (verdict.candidate, found.candidate_p50, found.candidate_p95, found.candidate_p99),
    )
    rows = [(name, *(seconds(p) + ("" if p.reliable else " (too few)") for p in points)) for name, *points in sides]
    return _table(("latency", "median", "95th", "99th percentile"), rows)
