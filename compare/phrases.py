"""Sentences that know how they were said: a key with named values, so that they can be said again in another language.

A ``Phrase`` is its English text (a ``str`` like any other, so whoever writes English needs nothing of this) and
remembers its key, the source sentence with ``str.format`` places, and its values: numbers, names, and other phrases.
The job builds phrases and stores them with their keys (``as_fields``, ``from_stored``); a page that speaks another
language looks the key up in its catalogue. What is no phrase (a route's name, a text stored by an older version) stays
as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Self

from markupsafe import Markup, escape

_TEXT, _KEY, _VALUES = "text", "key", "values"


class Phrase(str):
    """An English text with the key and values that it was made of. Joining or formatting makes plain text of it."""

    source: str
    values: Mapping[str, object]

    def __html__(self) -> str:
        """Return it as a template takes it: what is markup in it stays markup, all else is escaped."""
        return escape(fill(self.source, self.values))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Nothing in it changes, so it is its own copy."""
        return self


def say(source: str, /, **values: object) -> Phrase:
    """Return a phrase: ``source`` is a sentence of the catalogue with ``str.format`` places for the values."""
    return _phrase(fill(source, values), source, values)


def _phrase(text: str, source: str, values: Mapping[str, object]) -> Phrase:
    phrase = Phrase(text)
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


def plain(name: str) -> Phrase:
    """Return a code such as ``budget_full`` as words; those that the catalogue knows have a translation."""
    return say("{code}", code=name.replace("_", " ")) if "{" in name or "}" in name else say(name.replace("_", " "))


def fill(source: str, values: Mapping[str, object]) -> str:
    """Return a sentence with its values in it, escaped where one of them is markup."""
    if any(isinstance(value, Markup) for value in values.values()):
        return escape(source).format(**values)
    return source.format(**values)


def as_fields(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a dataclass with its phrases as JSON holds them; the ``dict_factory`` of ``asdict``."""
    return {name: _stored(value) for name, value in pairs}


def _stored(value: Any) -> Any:
    if isinstance(value, Phrase):
        return {_TEXT: str(value), _KEY: value.source, _VALUES: as_fields(value.values.items())}
    if isinstance(value, tuple) and any(isinstance(item, Phrase) for item in value):
        return [_stored(item) for item in value]
    return value


def from_stored(value: Any) -> Any:
    """Return what ``as_fields`` stored: a phrase that reads as it was said then, or the very value."""
    if isinstance(value, list):
        return tuple(from_stored(item) for item in value)
    if not isinstance(value, dict):
        return value
    return _phrase(value[_TEXT], value[_KEY], {name: from_stored(item) for name, item in value[_VALUES].items()})


def to_text(text: str) -> str:
    """Return what a column of text holds: a phrase as JSON, any other text as it is."""
    return json.dumps(_stored(text)) if isinstance(text, Phrase) else text


def from_text(text: str) -> str:
    """Return what ``to_text`` made a text of."""
    found: str = from_stored(json.loads(text)) if text.startswith(f'{{"{_TEXT}": ') else text
    return found
