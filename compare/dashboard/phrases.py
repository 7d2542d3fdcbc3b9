"""What is said to whom: the language of a visitor, and every phrase in it.

Views build phrases (``compare.phrases``) and know no language; whoever lays a page out translates what is a phrase. The
one catalogue is ``korean.toml``: the English source sentence, which is the phrase's key, then the Korean one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from starlette.requests import Request

from compare.phrases import Phrase, fill

ENGLISH, KOREAN = "en", "ko"
LANGUAGES: Mapping[str, str] = {ENGLISH: "English", KOREAN: "한국어"}
"""Each language's code and its own name."""
COOKIE = "crossfade_language"


def translate(text: str, language: str) -> str:
    """Return a phrase in a language; anything else, and what the catalogue lacks, as it is.

    A stored phrase whose sentence has other values today is told in English, as it was said then.
    """
    if not isinstance(text, Phrase):
        return text
    source = text.source if language == ENGLISH else catalogue().get(text.source, text.source)
    values = {name: translate(v, language) if isinstance(v, str) else v for name, v in text.values.items()}
    try:
        return fill(source, values)
    except (KeyError, ValueError):
        return str(text)


@cache
def catalogue() -> Mapping[str, str]:
    """Return the Korean sentence of each English one."""
    return tomllib.loads((Path(__file__).parent / "korean.toml").read_text("utf-8"))


def language_of(request: Request) -> str:
    """Return the language that the visitor chose, or else the first of ours that the browser asks for."""
    chosen = request.cookies.get(COOKIE, "")
    return chosen if chosen in LANGUAGES else _accepted(request.headers.get("accept-language", "")[:200])


def _accepted(field: str) -> str:
    """Return the language of an Accept-Language field (RFC 9110, 12.5.4) that weighs most, the first among equals."""
    weights: dict[str, float] = {}
    for item in field.split(","):
        name, _, parameter = item.strip().partition(";")
        language = name.strip().lower().partition("-")[0]
        try:
            weight = float(parameter.strip().removeprefix("q=") or 1)
        except ValueError:
            continue
        if language in LANGUAGES and weight > weights.get(language, 0):
            weights[language] = weight
    return max(weights, key=lambda language: weights[language], default=ENGLISH)
