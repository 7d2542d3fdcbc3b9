"""Two texts: a ladder that stops at the first rung that holds.

exact; normalised (Unicode NFC, runs of white space as one blank); then how far apart they are: the first token that
differs with the share of the common prefix, the similarity of edits (Indel distance, rapidfuzz) and chrF. Generated
text differs from itself from call to call, so a text is never held to be another merely because it is not the same: it
is ``equivalent`` from ``Policy.min_similarity`` of chrF on, below it the pair is a mismatch that is held against the
baseline's own rate. What no tolerance excuses are the invariants: an empty text where there was one, a length beyond
half or double, another script.

No sentence quotes a text.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

from rapidfuzz.distance import Indel

from compare.measurement import Diagnosis, Judgement, Number, OutputClass
from compare.phrases import mark, plain, say
from compare.policy import Policy

MAX_EDITED = 50_000
"""Characters (after what both sides begin and end with) up to which edits are counted: the time is their product."""
MAX_CHARACTERS = 400_000
CHRF_ORDER, CHRF_BETA = 6, 2
LENGTH_RATIO = 2.0
_SHORT = 20
_SCRIPT_SAMPLE = 2_000
_TOKEN = re.compile(r"\w+|[^\w\s]")
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class TextDistance:
    """``rung`` is what holds: exact, normalised, or ``apart``. ``similarity`` is ``None`` beyond ``MAX_EDITED``."""

    rung: str
    first_token: int | None = None
    common_prefix: float = 1.0
    similarity: float | None = 1.0
    chrf: float = 1.0

    def numbers(self) -> dict[str, Number]:
        """Return what is stored, by name."""
        found: dict[str, Number] = {"rung": self.rung, "chrf": round(self.chrf, 4)}
        if self.rung == "apart":
            found |= {"first_different_token": self.first_token, "common_prefix": round(self.common_prefix, 4)}
            found["similarity"] = None if self.similarity is None else round(self.similarity, 4)
        return found


def normalise(text: str) -> str:
    """Return the text in NFC with every run of white space as one blank, none at its ends."""
    return _BLANKS.sub(" ", unicodedata.normalize("NFC", text)).strip()


def compare_texts(a: str, b: str) -> TextDistance:
    """Measure how far apart two texts of at most ``MAX_CHARACTERS`` are. Symmetric."""
    if a == b:
        return TextDistance("exact")
    one, other = normalise(a), normalise(b)
    if one == other:
        return TextDistance("normalised")
    first, share = _divergence(_TOKEN.findall(one), _TOKEN.findall(other))
    return TextDistance("apart", first, share, _similarity(one, other), chrf(one, other))


def _divergence(a: list[str], b: list[str]) -> tuple[int, float]:
    """Return the place of the first token that differs and the share of the longer side that comes before it."""
    same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return same, same / max(1, len(a), len(b))


def _similarity(a: str, b: str) -> float | None:
    short, long = sorted((a, b), key=len)
    start = next((i for i, (x, y) in enumerate(zip(short, long, strict=False)) if x != y), len(short))
    rest = zip(reversed(short[start:]), reversed(long[start:]), strict=False)
    end = next((i for i, (x, y) in enumerate(rest) if x != y), len(short) - start)
    if len(long) - start - end > MAX_EDITED:
        return None
    return float(Indel.normalized_similarity(a, b))


def chrf(a: str, b: str, order: int = CHRF_ORDER, beta: float = CHRF_BETA) -> float:
    """Return chrF (Popovic, WMT 2015) in [0, 1]: the F-score of character n-grams up to ``order``, blanks left out.

    Averaged over both directions, as neither side is the reference; with beta = 1 both are the same. Orders beyond
    either text's length are left out, as in sacrebleu.
    """
    one, other = (text.replace(" ", "") for text in (a, b))
    if not one or not other:
        return float(one == other)
    scores = []
    for n in range(1, min(order, len(one), len(other)) + 1):
        left, right = (Counter(text[i : i + n] for i in range(len(text) - n + 1)) for text in (one, other))
        common = (left & right).total()
        scores.append((common / left.total(), common / right.total()))
    forward, backward = (sum(pair[side] for pair in scores) / len(scores) for side in (0, 1))
    return (_f_score(forward, backward, beta) + _f_score(backward, forward, beta)) / 2


def _f_score(precision: float, recall: float, beta: float) -> float:
    weight = beta * beta * precision + recall
    return (1 + beta * beta) * precision * recall / weight if weight else 0.0


def script_of(text: str) -> str | None:
    """Return the script that most letters of the text's beginning belong to, ``None`` below twenty letters."""
    letters = [c for c in text[:_SCRIPT_SAMPLE] if c.isalpha()]
    if len(letters) < _SHORT:
        return None
    names = Counter(unicodedata.name(c, "unknown").split(" ")[0].split("-")[0] for c in letters)
    return names.most_common(1)[0][0].lower()


def broken_invariants(a: str, b: str) -> tuple[Diagnosis, ...]:
    """Return what no tolerance excuses, from the baseline's text to the candidate's."""
    if bool(a.strip()) != bool(b.strip()):
        side = "candidate" if a.strip() else "baseline"
        return (Diagnosis("empty_text", say("the {side}'s text is empty, the other is not", side=plain(side))),)
    found = []
    if max(len(a), len(b)) > _SHORT and max(len(a), len(b)) > LENGTH_RATIO * min(len(a), len(b)):
        found.append(Diagnosis("length", say("the text has {new} characters against {old}", new=len(b), old=len(a))))
    old, new = script_of(a), script_of(b)
    if old and new and old != new:
        words = say("the text is mostly {new} where the baseline's is mostly {old}", new=new, old=old)
        found.append(Diagnosis("language", words))
    return tuple(found)


def judge_texts(a: str, b: str, min_similarity: float) -> Judgement:
    """Compare two texts that are already decoded."""
    if a == b:
        return Judgement(OutputClass.IDENTICAL, {"characters": len(a)})
    longest = max(len(a), len(b))
    if longest > MAX_CHARACTERS:
        words = say("a text of {n:,} characters is more than {most:,} to compare", n=longest, most=MAX_CHARACTERS)
        return Judgement(None, note=words)
    distance, broken = compare_texts(a, b), broken_invariants(a, b)
    numbers: dict[str, Number] = {"characters_baseline": len(a), "characters_candidate": len(b), **distance.numbers()}
    if broken:
        return Judgement(OutputClass.DIFFERENT, numbers, broken)
    if distance.chrf >= min_similarity:
        return Judgement(OutputClass.EQUIVALENT, numbers)
    source = mark("the texts differ from token {n} on: chrF {chrf:.2f}, at least {least:g} wanted")
    words = say(source, n=distance.first_token, chrf=distance.chrf, least=min_similarity)
    return Judgement(OutputClass.DIFFERENT, numbers, (Diagnosis("text", words),))


def decode_text(data: bytes, media_type: str) -> str | None:
    """Return the text in the charset that the media type names, else UTF-8; ``None`` where it is not in it."""
    parameters = (part.strip().partition("=") for part in media_type.split(";")[1:])
    named = next((value.strip("\"' ") for name, _, value in parameters if name.strip().lower() == "charset"), "utf-8")
    try:
        return data.decode("utf-8-sig" if named.lower().replace("_", "-") in ("utf-8", "utf8") else named)
    except (UnicodeDecodeError, LookupError, ValueError):
        return None


def judge_text(baseline: tuple[bytes, str], candidate: tuple[bytes, str], policy: Policy) -> Judgement | None:
    """Compare two bodies of text, each with its raw Content-Type; ``None`` where neither is in the charset it names."""
    old, new = decode_text(*baseline), decode_text(*candidate)
    if old is None and new is None:
        return None
    if old is None or new is None:
        side = "candidate" if new is None else "baseline"
        words = Diagnosis(
            "charset", say("the {side}'s answer is no text in the charset that it names", side=plain(side))
        )
        return Judgement(OutputClass.BROKEN, diagnoses=(words,))
    return judge_texts(old, new, policy.min_similarity)
