"""Sentences that know how they were said, so that a page can say them in the visitor's language.

A ``Phrase`` is its English text (a ``str`` like any other) and remembers the source sentence and its values. Views
build phrases and know no language; whoever lays a page out translates what is a phrase. The one catalogue is
``korean.toml``: the English source sentence, then the Korean one. What is no phrase is content (a route's name, a
kernel's sentence) and stays as it is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from markupsafe import Markup, escape
from starlette.requests import Request

ENGLISH, KOREAN = "en", "ko"
LANGUAGES: Mapping[str, str] = {ENGLISH: "English", KOREAN: "한국어"}
"""Each language's code and its own name."""
COOKIE = "crossfade_language"


class Phrase(str):
    """An English text that remembers its source sentence and values. Joining or formatting makes plain text of it."""

    source: str
    values: Mapping[str, object]


def say(source: str, /, **values: object) -> Phrase:
    """Return a phrase: ``source`` is a sentence of the catalogue with ``str.format`` places for the values."""
    phrase = Phrase(_fill(source, values))
    phrase.source, phrase.values = source, values
    return phrase


def mark(source: str) -> str:
    """Return ``source`` as it is; marks a sentence of the catalogue that is said elsewhere."""
    return source


def joined(separator: str, parts: Iterable[str]) -> Phrase:
    """Return the parts one after the other; each keeps its language."""
    values = {f"part{n}": part for n, part in enumerate(parts)}
    return say(separator.join(f"{{{name}}}" for name in values), **values)


def plural(number: int, noun: str) -> Phrase:
    """Return ``1 pair`` or ``2 pairs``, with thousands separated."""
    return say(f"{{n:,}} {noun}" if number == 1 else f"{{n:,}} {noun}s", n=number)


def translate(text: str, language: str) -> str:
    """Return a phrase in a language; anything else, and what the catalogue lacks, as it is."""
    if not isinstance(text, Phrase):
        return text
    values = {name: translate(v, language) if isinstance(v, str) else v for name, v in text.values.items()}
    source = text.source if language == ENGLISH else catalogue().get(text.source, text.source)
    return _fill(source, values)


def _fill(source: str, values: Mapping[str, object]) -> str:
    if any(isinstance(value, Markup) for value in values.values()):
        return escape(source).format(**values)
    return source.format(**values)


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
