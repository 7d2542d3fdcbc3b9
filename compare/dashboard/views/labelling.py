"""Labels in words, and the drafts of a policy change that acceptable ones make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compare.dashboard.views.words import moment
from compare.labels import Judgment, Label
from compare.phrases import joined, mark, plain, plural, say
from compare.verdict import Verdict

KEYS = {Judgment.ACCEPTABLE: "a", Judgment.REAL: "r", Judgment.UNSURE: "u"}
_WORDS = {
    Judgment.ACCEPTABLE: mark("acceptable"),
    Judgment.REAL: mark("real"),
    Judgment.UNSURE: mark("unsure"),
}
_PATHS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class LabelView:
    """The label form: ``buttons`` are (value, key, whether it is the present one), ``said`` who said what."""

    buttons: tuple[tuple[str, str, bool], ...]
    said: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A change of the policy for a person to consider: why, the lines for the config, and what they cost."""

    why: str
    lines: str
    note: str


def build_label(label: Label | None) -> LabelView:
    """Return the form with what was said last."""
    buttons = tuple((each.value, key, label is not None and label.label is each) for each, key in KEYS.items())
    if label is None:
        return LabelView(buttons, say("Nobody has labelled this pair yet."))
    word = say(_WORDS[label.label])
    return LabelView(buttons, say("{label}, said {who} on {at}", label=word, who=label.who, at=moment(label.at)))


def build_drafts(accepted: Mapping[str, int], verdict: Verdict | None) -> tuple[Draft, ...]:
    """Return a draft for each diagnosis that people called acceptable. A label never changes a policy by itself."""
    return tuple(_draft(code, n, verdict) for code, n in sorted(accepted.items()))


def _draft(code: str, n: int, verdict: Verdict | None) -> Draft:
    why = say("{pairs} with '{diagnosis}' called acceptable", pairs=plural(n, "pair"), diagnosis=plain(code))
    paths = [found.path for found in verdict.paths if found.pairs > found.noise] if verdict is not None else []
    if paths:
        return Draft(why, ignore_lines(paths[:_PATHS_SHOWN]), _EPOCH)
    share = _share_of(code, verdict)
    if share is None:
        return Draft(why, "", say("No pair of the present verdict shows it any more; nothing is to be changed."))
    return Draft(
        why,
        f"compare:\n  mismatch_margin: {share:.3f}",
        joined(
            " ",
            (
                say("No setting excuses this diagnosis alone, so the margin of all outputs would have to cover it."),
                _EPOCH,
            ),
        ),
    )


_EPOCH = say("A changed policy begins a new epoch: its verdict starts from nothing.")


def ignore_lines(paths: list[str]) -> str:
    """Return the config lines that leave JSON paths out of the comparison, each quoted as YAML wants it."""
    quoted = "\n".join("    - '" + path.replace("'", "''") + "'" for path in paths)
    return f"compare:\n  ignore:\n{quoted}"


def _share_of(code: str, verdict: Verdict | None) -> float | None:
    """Return a margin that the present share of a diagnosis would keep, ``None`` where no pair shows it."""
    if verdict is None or not verdict.pairs:
        return None
    pairs = sum(found.pairs for found in verdict.diagnoses if found.code == code)
    return min(0.99, 1.5 * pairs / verdict.pairs + 0.01) if pairs else None
