"""What a verdict and a comparator say is told whole in either language, also after it was stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from compare.dashboard.phrases import KOREAN, translate
from compare.measurement import Measurement, OutputClass, measurement_from_json
from compare.measuring import measure
from compare.phrases import Phrase
from compare.policy import Kind, Policy
from compare.reasons import failure_phrase, phrase
from compare.verdict import Decision, Verdict, judge, verdict_from_json
from shadow.keeping import Bodies
from tests.compare.examples import answer, encoded, exchange, measured, photo, policy, tagged

NOW = datetime(2026, 5, 5, tzinfo=UTC)
SAME, OTHER, BROKEN = OutputClass.IDENTICAL, OutputClass.DIFFERENT, OutputClass.BROKEN
NAMES = r"onprem|cloud|EXIF|UTC|JSON|JPEG|PNG|IoU|chrF|G\d(-p\d\d)?|P0|items|\[\*\]|\dx|net-1|OSError|data|embedding"


def said(verdict: Verdict, rules: Policy) -> Iterator[str]:
    yield from (verdict.reason, *verdict.changes, *verdict.findings)
    for gate in verdict.gates:
        yield from (gate.title, gate.note)
    yield from (phrase(found, rules) for found in verdict.diagnoses if "example" not in found.example)
    yield from (failure_phrase(found, rules) for found in verdict.failures)


STORIES: dict[str, tuple[list[Measurement], Policy]] = {
    "nothing yet": ([], policy()),
    "few": ([measured(n, control=SAME if n % 2 else None) for n in range(20)], policy(latency_slo_s=3.0)),
    "slow": ([measured(n, candidate_s=0.9, control=SAME) for n in range(600)], policy()),
    "fine": ([measured(n, control=SAME) for n in range(900)], policy(bodies=Bodies.HASHES)),
    "wrong": ([measured(n, BROKEN, codes=["size"], control=SAME) for n in range(200)], policy()),
    "some wrong": ([measured(n, OTHER if n < 2 else SAME, codes=["rotated"]) for n in range(60)], policy()),
    "failing": ([measured(n, None, failure=("timeout", "status 500")[n % 2]) for n in range(300)], policy()),
    "too good": ([replace(measured(n), same_bytes=True) for n in range(60)], policy(random_outputs=True)),
}


@pytest.mark.parametrize("story", STORIES)
def test_a_stored_verdict_is_told_whole_in_korean(story: str) -> None:
    pairs, rules = STORIES[story]
    verdict = judge(pairs, rules, None, now=NOW)
    stored = verdict_from_json(verdict.to_json())
    assert list(said(stored, rules)) == list(said(verdict, rules))
    for text in filter(None, said(stored, rules)):
        assert isinstance(text, Phrase), text
        korean = translate(text, KOREAN)
        assert re.findall("[A-Za-z]{2,}", re.sub(NAMES, "", korean)) == [], korean
    assert len(stored.reason) < 200


PAIRS: dict[str, tuple[Kind, bytes, bytes, str]] = {
    "damaged": (Kind.AUTO, encoded(photo()), encoded(photo())[:5000], "image/png"),
    "no picture": (Kind.IMAGE, encoded(photo()), b"nothing", "image/png"),
    "turned": (Kind.AUTO, encoded(photo("chelsea")), encoded(photo("chelsea").transpose(1, 0, 2)), "image/png"),
    "swapped": (Kind.AUTO, encoded(photo()), encoded(photo()[..., ::-1]), "image/png"),
    "re-encoded": (Kind.AUTO, encoded(photo(), "JPEG", quality=95), encoded(photo(), "JPEG", quality=30), "image/jpeg"),
    "values": (Kind.AUTO, b'{"items": [1, "a", [1], {}, true]}', b'{"items": [2, "bc", [], null]}', "application/json"),
    "no json": (Kind.JSON, b'{"items": 1}', b'{"items": ', "application/json"),
    "another type": (Kind.AUTO, b'{"items": 1}', b"[1]", "application/json"),
    "words": (Kind.TEXT, b"one two three four five", b"alpha beta gamma delta epsi", "text/plain"),
    "emptied": (Kind.TEXT, b"one two three", b"", "text/plain"),
    "events": (Kind.AUTO, b"data: 1\n\ndata: 2\n\n", b"data: 1\n\n", "text/event-stream"),
    "no chat": (Kind.CHAT, b'{"choices": []}', b"{}", "application/json"),
    "no vectors": (Kind.EMBEDDING, b"{}", b'{"a": 1}', "application/json"),
    "bytes": (Kind.BYTES, b"abc", b"abd", "application/octet-stream"),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_what_a_comparator_says_is_told_whole_in_korean(name: str) -> None:
    kind, old, new, media_type = PAIRS[name]
    sent = tagged(photo("chelsea"), 6)
    pair = exchange(0, answer("cloud", old, media_type), answer("onprem", new, media_type), sent=sent)
    judgement = measurement_from_json(measure(pair, policy(kind)).to_json()).judgement
    texts = [each.sentence for each in judgement.diagnoses] + [judgement.note] * bool(judgement.note)
    assert texts
    for text in texts:
        assert isinstance(text, Phrase), text
        korean = translate(text, KOREAN)
        assert re.findall("[A-Za-z]{2,}", re.sub(NAMES, "", korean)) == [], korean


def test_a_reason_is_short_and_its_gates_are_a_list() -> None:
    verdict = judge(*STORIES["few"], None, now=NOW)
    assert verdict.decision is Decision.HOLD
    waiting = [gate for gate in verdict.gates if gate.required and gate.more]
    assert [line.partition(" (")[2][:2] for line in verdict.changes[:-1]] == [
        gate.id for gate in sorted(waiting, key=lambda gate: -(gate.more or 0))
    ]
    assert f"{max(gate.more or 0 for gate in waiting):,} more pairs" in verdict.reason
    assert judge([], policy(), None, now=NOW).reason.startswith("No evidence yet")
