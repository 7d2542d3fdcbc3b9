"""Numbers and verdicts in words: a sign and a word for every verdict, so that colour is never alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from compare.measurement import OutputClass
from compare.phrases import mark, say
from compare.table import SIGNS
from compare.verdict import Decision

NOTHING = "\N{EN DASH}"
_COUNTS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True, slots=True)
class Badge:
    """A word, its sign, and the tone that the style sheet gives it: promote, hold, reject or none."""

    word: str
    sign: str
    tone: str


VERDICTS = {decision: Badge(say(decision.value), SIGNS[decision], decision.value) for decision in Decision}
NO_VERDICT = Badge(say("no verdict yet"), "…", "none")
GATES = {
    "pass": Badge(say("pass"), "✓", "promote"),
    "open": Badge(say("open"), "◔", "hold"),
    "fail": Badge(say("fail"), "✕", "reject"),
    "nodata": Badge(say("no data"), "…", "none"),
}
CLASSES = {
    OutputClass.IDENTICAL: Badge(say("identical"), "✓", "promote"),
    OutputClass.EQUIVALENT: Badge(say("equivalent"), "≈", "promote"),
    OutputClass.DIFFERENT: Badge(say("different"), "✕", "reject"),
    OutputClass.BROKEN: Badge(say("broken"), "✕", "reject"),
}
REFUSED = Badge(say("refused by both"), NOTHING, "none")
NOT_JUDGED = Badge(say("not compared"), NOTHING, "none")
FAILED = Badge(say("no answer"), "✕", "reject")


def count_word(number: int) -> str:
    """Return a small number as a word, a large one in digits."""
    return _COUNTS[number] if 0 <= number < len(_COUNTS) else f"{number:,}"


def duration(seconds: float | None) -> str:
    """Return a duration in the unit that a person would use."""
    if seconds is None:
        return NOTHING
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms" if seconds >= 0.00995 else f"{1000 * seconds:.1f} ms"
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    for unit, length in (
        (mark("{n:.0f} days"), 86_400.0),
        (mark("{n:.0f} hours"), 3600.0),
        (mark("{n:.0f} minutes"), 60.0),
    ):
        if seconds >= 2 * length:
            return say(unit, n=seconds / length)
    return f"{seconds:.0f} s"


def size(size_bytes: int) -> str:
    """Return a size in bytes, KB or MB (powers of ten)."""
    for unit, length in (("MB", 1e6), ("KB", 1e3)):
        if size_bytes >= length:
            return f"{size_bytes / length:.{1 if size_bytes < 10 * length else 0}f} {unit}"
    return say("{n} bytes", n=size_bytes)


def moment(at: datetime) -> str:
    """Return a wall time in UTC with its zone."""
    return f"{at.astimezone(UTC):%d %b %Y %H:%M:%S} UTC"


def number(value: object) -> str:
    """Return a measured number with as many digits as a person can use; text stays text."""
    if isinstance(value, bool) or value is None:
        return {True: say("yes"), False: say("no"), None: NOTHING}[value]
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) >= 100 else f"{value:.4g}"
    return str(value)
