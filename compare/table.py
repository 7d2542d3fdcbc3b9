"""The terminal's table: one row a route, the same words as the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from compare.job import RouteResult
from compare.latency import typical_words
from compare.measurement import OutputClass
from compare.stats import Percentile
from compare.verdict import Decision

SIGNS = {Decision.PROMOTE: "✓", Decision.HOLD: "◔", Decision.REJECT: "✕"}
_STYLES = {Decision.PROMOTE: "green", Decision.HOLD: "yellow", Decision.REJECT: "red"}
_COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("route", "left"),
    ("pairs", "right"),
    ("baseline\nmedian", "right"),
    ("candidate\nmedian", "right"),
    ("ratio,\ninterval", "center"),
    ("identical\nequivalent\ndifferent\nbroken", "center"),
    ("cover-\nage", "right"),
    ("verdict", "left"),
)


@dataclass(frozen=True, slots=True)
class TableRow:
    """One route. ``failed`` counts pairs where a side gave no answer, ``refused`` those that both sides refused (they
    are not among ``pairs``); ``ratio`` is in words with its interval, the same as the three numbers behind it
    (candidate / baseline, ``None`` where unknown). ``changes`` is what a hold waits for, ``seen`` from when to when the
    pairs are, in UTC: a verdict is no newer than they are."""

    route: str
    pairs: int
    baseline: str
    candidate: str
    ratio: str
    ratio_estimate: float | None
    ratio_low: float | None
    ratio_high: float | None
    identical: int
    equivalent: int
    different: int
    broken: int
    failed: int
    refused: int
    coverage: float | None
    decision: Decision
    reason: str
    changes: tuple[str, ...] = ()
    seen: str = ""


def seconds(value: Percentile) -> str:
    """Return a duration for a person, or 'failed' where that percentile never answered."""
    if value.value is None:
        return "failed" if value.n else "-"
    if value.value >= 0.9995:  # below it, what would round to 1000 ms
        return f"{value.value:.2f} s"
    return f"{1000 * value.value:.{0 if value.value >= 0.00995 else 1}f} ms"


def share(value: float | None) -> str:
    """Return a percentage for a person; never rounded up to all or down to none."""
    if value is None:
        return "-"
    if value in (0, 1):
        return f"{100 * value:.0f} %"
    return f"{min(99.9, max(0.1, 100 * value)):.1f} %"


def most_urgent_first(results: Sequence[RouteResult]) -> list[RouteResult]:
    """Return the results as a person should read them: what must not be switched, what is ready, what has to wait."""
    order = [Decision.REJECT, Decision.PROMOTE, Decision.HOLD]
    return sorted(results, key=lambda result: order.index(result.verdict.decision))


def table_rows(results: Sequence[RouteResult]) -> list[TableRow]:
    """Return the rows in the order of the results."""
    rows = []
    for result in results:
        verdict = result.verdict
        rows.append(
            TableRow(
                route=verdict.route,
                pairs=verdict.pairs,
                baseline=seconds(verdict.latency.baseline_p50),
                candidate=seconds(verdict.latency.candidate_p50),
                ratio=typical_words(verdict.latency),
                ratio_estimate=verdict.latency.ratio,
                ratio_low=verdict.latency.ratio_low,
                ratio_high=verdict.latency.ratio_high,
                identical=verdict.classes.get(OutputClass.IDENTICAL, 0),
                equivalent=verdict.classes.get(OutputClass.EQUIVALENT, 0),
                different=verdict.classes.get(OutputClass.DIFFERENT, 0),
                broken=verdict.classes.get(OutputClass.BROKEN, 0),
                failed=result.tally.failed,
                refused=verdict.both_refused,
                coverage=verdict.coverage.share,
                decision=verdict.decision,
                reason=verdict.reason,
                changes=verdict.changes if verdict.decision is Decision.HOLD else (),
                seen=_span(verdict.first_at, verdict.last_at),
            )
        )
    return rows


def _span(first: datetime | None, last: datetime | None) -> str:
    if first is None or last is None:
        return ""
    begin, end = (f"{at.astimezone(UTC):%Y-%m-%d %H:%M}" for at in (first, last))
    return f"{begin} to {end} UTC"


def render(results: Sequence[RouteResult]) -> Group:
    """Return the table with a sentence for each verdict below it. Text from outside is never read as markup."""
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for heading, side in _COLUMNS:
        table.add_column(heading, justify=side, overflow="fold")
    reasons: list[RenderableType] = []
    for row in table_rows(results):
        style, sign = f"bold {_STYLES[row.decision]}", SIGNS[row.decision]
        failed = f"\n(+{row.failed} failed)" if row.failed else ""
        failed += f"\n(+{row.refused} refused\nby both)" if row.refused else ""
        outputs = f"{row.identical}/{row.equivalent}/{row.different}/{row.broken}{failed}"
        cells = (row.route, str(row.pairs), row.baseline, row.candidate, _ratio(row), outputs, share(row.coverage))
        table.add_row(*map(Text, cells), Text(f"{sign} {row.decision.value}", style))
        reasons.append(Text.assemble((f"{sign} {row.route}  ", style), row.reason))
        lines = [*row.changes, *([f"pairs of {row.seen}"] if row.seen else [])]
        reasons += [Padding(Text(f"• {line}", "dim"), (0, 0, 0, 4)) for line in lines]
    return Group(table, Text(), *reasons)


def _ratio(row: TableRow) -> str:
    if row.ratio_estimate is None:
        return "-"
    low, high = (f"{end:.2f}" if end else "?" for end in (row.ratio_low, row.ratio_high))
    return f"{row.ratio_estimate:.2f}\n{low}-{high}"
