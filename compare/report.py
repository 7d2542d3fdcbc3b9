"""The report: one self-contained HTML file, and a JSON twin with the same numbers.

No script, no request to any host. Everything that came from traffic is text to the page (autoescape) or a picture that
was decoded and drawn anew.
"""

from __future__ import annotations

import base64
import io
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from PIL import Image

from compare.charts import BAND_FROM, ecdf, funnel, gate_bar, ratio_histogram
from compare.detail import coverage_steps, idle_rules, plain_words, wait_tables
from compare.figures import ecdf_figure, figure_data, ratio_figure
from compare.interactive import script_policy, script_tags
from compare.job import RouteResult
from compare.kernels.pixels import Undecodable, decode
from compare.measurement import Measurement
from compare.pairing import Pair, pair_up
from compare.policy import JsonRule
from compare.reasons import amount, failure_phrase, phrase
from compare.results import class_name, severity
from compare.table import SIGNS, TableRow, most_urgent_first, seconds, share, table_rows
from compare.verdict import Decision, bad_routes
from shadow.errors import CorruptBody
from shadow.exchange import Body, Exchange, Observation

_WORST = 6
_THUMB = 200
_TEXT = 400
_THUMB_PIXELS = 64 * 1024 * 1024


class BodyReader(Protocol):
    """Where the worst pairs' bodies come from."""

    def exchange(self, exchange_id: str) -> Exchange | None:
        """Return a stored exchange."""
        ...

    def load(self, body: Body) -> bytes | None:
        """Return a body's bytes, ``None`` when they were not kept. Raises ``CorruptBody``."""
        ...


@dataclass(frozen=True, slots=True)
class Shown:
    """One side of a pair on the page: a picture as a data URI, or text."""

    name: str
    picture: str | None
    text: str


@dataclass(frozen=True, slots=True)
class WorstPair:
    """A pair that a person should look at."""

    exchange_id: str
    at: datetime
    title: str
    sentences: tuple[str, ...]
    numbers: tuple[tuple[str, str], ...]
    sides: tuple[Shown, ...]


def render_report(
    results: Sequence[RouteResult],
    reader: BodyReader | None,
    *,
    generated_at: datetime,
    notice: str = "",
    static: bool = True,
) -> str:
    """Return the whole page. ``notice`` stands on top, for whatever must not be overlooked (a baseline that is a
    stand-in).

    A page that is not ``static`` also carries plotly (about 5 MB) and draws its figures for the mouse; either asks no
    host for anything, and reads without script. Without a ``reader`` the worst pairs come without pictures.
    """
    results = most_urgent_first(results)
    environment = Environment(
        loader=PackageLoader("compare"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "utc": _utc,
        "share": share,
        "seconds": seconds,
        "words": lambda name: str(name).replace("_", " "),
    }
    return environment.get_template("report.html").render(
        notice=notice,
        generated_at=generated_at,
        headline=headline(results),
        routes=[_route(result, row, reader) for result, row in zip(results, table_rows(results), strict=True)],
        bad=bad_routes([r.verdict for r in results], min((r.policy.alpha for r in results), default=0.05)),
        signs=SIGNS,
        alphas=[*dict.fromkeys(f"{100 * result.policy.alpha:g} %" for result in results)],
        amount=amount,
        gate_bar=gate_bar,
        script_policy=script_policy(static=static),
        scripts=script_tags(static=static),
        static=static,
    )


def _words(name: object) -> str:
    return str(name).replace("_", " ")


def _utc(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") + " UTC"


def headline(results: Sequence[RouteResult]) -> str:
    """Return the answer of the whole report in one sentence."""
    counts = Counter(result.verdict.decision for result in results)
    words = {
        Decision.PROMOTE: ("is ready", "are ready"),
        Decision.REJECT: ("must not be switched", "must not be switched"),
        Decision.HOLD: ("needs more evidence", "need more evidence"),
    }
    parts = [
        f"{counts[decision]} {'route' if counts[decision] == 1 else 'routes'} {forms[counts[decision] != 1]}"
        for decision, forms in words.items()
        if counts[decision]
    ]
    return (", ".join(parts) or "No route was judged") + "."


def to_json(results: Sequence[RouteResult], *, generated_at: datetime, notice: str = "") -> str:
    """Return the same numbers as JSON: the table's rows and the full verdicts. A sentence of a verdict is its English
    text beside its key and values."""
    results = most_urgent_first(results)
    document = {
        "generated_at": generated_at.isoformat(),
        "notice": notice,
        "headline": headline(results),
        "table": [asdict(row) for row in table_rows(results)],
        "verdicts": [json.loads(result.verdict.to_json()) for result in results],
        "details": [_details(result) for result in results],
    }
    return json.dumps(document, indent=2)


def _details(result: RouteResult) -> dict[str, object]:
    return {
        "route": result.verdict.route,
        "latency": plain_words(result.verdict, result.policy),
        "what_would_change": result.verdict.changes,
        "waits": [asdict(table) for table in wait_tables(result.tally)],
        "rules_that_matched_nothing": idle_rules(result.tally),
    }


def _route(result: RouteResult, row: TableRow, reader: BodyReader | None) -> dict[str, object]:
    verdict, policy = result.verdict, result.policy
    data = result.tally
    return {
        "verdict": verdict,
        "policy": policy,
        "row": row,
        "latency": plain_words(verdict, policy),
        "waits": wait_tables(data),
        "funnel": funnel(coverage_steps(verdict.coverage, data.judged)),
        "idle": idle_rules(data),
        "figures": (
            ("ecdf", figure_data(ecdf_figure(data, (policy.baseline, policy.candidate)))),
            ("ratios", figure_data(ratio_figure(data, policy.margins.median_ratio))),
        ),
        "ecdf": ecdf(data.timed.baseline, data.timed.candidate, policy.latency_slo_s),
        "ratios": ratio_histogram(data.ratios, policy.margins.median_ratio),
        "banded": data.timed.candidate.total >= BAND_FROM,
        "diagnoses": [(phrase(d, policy), d) for d in verdict.diagnoses],
        "paths": verdict.paths,
        "failures": [failure_phrase(d, policy) for d in verdict.failures],
        "rules": [_rule_words(rule) for rule in policy.json_rules],
        "suppressed": data.suppressed,
        "worst": [_worst_pair(m, result, reader) for m in _worst(result.worst)],
        "identity": verdict.coverage.equations(),
    }


def _rule_words(rule: JsonRule) -> str:
    allowed = f" ±{rule.abs_tol:g}" if rule.abs_tol else ""
    return f"{rule.path}: {rule.rule.value}{allowed}" + (f" ±{100 * rule.rel_tol:g} %" if rule.rel_tol else "")


def _worst(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the pairs to show: each kind of trouble once before any comes twice, the graver first."""
    seen: Counter[str] = Counter()
    placed = []
    for m in sorted((m for m in measurements if severity(m) >= 2), key=lambda m: (-severity(m), m.sequence)):
        kind = m.judgement.diagnoses[0].code if m.judgement.diagnoses else class_name(m)
        placed.append((seen[kind], m))
        seen[kind] += 1
    return [m for _, m in sorted(placed, key=lambda item: item[0])[:_WORST]]


def _worst_pair(m: Measurement, result: RouteResult, reader: BodyReader | None) -> WorstPair:
    exchange = reader.exchange(m.exchange_id) if reader is not None else None
    pair = pair_up(exchange, result.policy) if exchange is not None else None
    sides: tuple[Shown, ...] = ()
    if reader is not None and isinstance(pair, Pair):
        sides = (
            _show(pair.baseline, f"baseline · {result.policy.baseline}", reader),
            _show(pair.candidate, f"candidate · {result.policy.candidate}", reader),
        )
    name = m.judgement.critical.value if m.judgement.critical else class_name(m)
    failed = [f"{leg.backend}: {leg.failure}" for leg in (m.baseline, m.candidate) if leg and leg.failure]
    return WorstPair(
        exchange_id=m.exchange_id,
        at=m.received_at,
        title=name.replace("_", " "),
        sentences=tuple(d.sentence for d in m.judgement.diagnoses) or tuple(failed) or (m.judgement.note,),
        numbers=tuple((name, str(value)) for name, value in list(m.judgement.numbers.items())[:8]),
        sides=sides,
    )


def _show(side: Observation, name: str, reader: BodyReader) -> Shown:
    facts = f"{name} · {side.status or 'no status'}" + (f" · {side.body.size_bytes:,} bytes" if side.body else "")
    try:
        data = reader.load(side.body) if side.body is not None else None
    except CorruptBody:
        return Shown(facts, None, "the stored body is damaged")
    if data is None:
        return Shown(facts, None, "not kept" if side.body is not None else "no answer")
    thumbnail = thumbnail_uri(data)
    return Shown(facts, thumbnail, "" if thumbnail else data[: 4 * _TEXT].decode("utf-8", "replace")[:_TEXT])


def thumbnail_uri(data: bytes) -> Markup | None:
    """Return a small PNG drawn from the decoded pixels as a data URI, ``None`` when ``data`` is no usable picture."""
    picture = decode(data, _THUMB_PIXELS)
    if isinstance(picture, Undecodable):
        return None
    image = Image.fromarray(picture.pixels)
    image.thumbnail((_THUMB, _THUMB))
    drawn = io.BytesIO()
    image.save(drawn, "PNG")
    return Markup("data:image/png;base64,{}").format(base64.b64encode(drawn.getvalue()).decode())
