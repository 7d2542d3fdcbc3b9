"""A request's query options: which ones a feature takes, and what their values may be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from onprem_backend.problems import Problem


class Option(Protocol):
    """One option. ``default`` is its value when the request says nothing."""

    @property
    def default(self) -> str:
        """The value that stands for silence."""

    def accepts(self, text: str) -> bool:
        """Say whether ``text`` is a value of this option."""

    def allowed(self) -> list[str]:
        """Return what to tell a client that sent something else."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words, the default first."""

    values: tuple[str, ...]

    @property
    def default(self) -> str:
        """The first one."""
        return self.values[0]

    def accepts(self, text: str) -> bool:
        """Say whether it is one of them."""
        return text in self.values

    def allowed(self) -> list[str]:
        """Return all of them."""
        return list(self.values)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number from ``low`` to ``high``. ``default`` may be empty: not given."""

    default: str
    low: int
    high: int

    def accepts(self, text: str) -> bool:
        """Say whether it is a plain decimal number in the range."""
        return re.fullmatch(r"[0-9]{1,10}", text) is not None and self.low <= int(text) <= self.high

    def allowed(self) -> list[str]:
        """Return the range."""
        return [f"{self.low}..{self.high}"]


@dataclass(frozen=True, slots=True)
class Colour:
    """Six hexadecimal digits, red, green, blue; empty: none."""

    default: str = ""

    def accepts(self, text: str) -> bool:
        """Say whether it is such a colour."""
        return re.fullmatch(r"[0-9a-fA-F]{6}", text) is not None

    def allowed(self) -> list[str]:
        """Return the form."""
        return ["RRGGBB"]


OPTIONS: Mapping[str, Mapping[str, Option]] = MappingProxyType(
    {
        "classify": {"model": Choice(("auto", "resnet18", "efficientnet-lite0")), "k": Whole("5", 1, 1000)},
        "remove-background": {
            "model": Choice(("auto", "u2netp", "u2net", "isnet")),
            "background": Colour(),
            "refine": Choice(("0", "1")),
        },
        "face-blur": {"mode": Choice(("blur", "mosaic")), "output": Choice(("picture", "boxes"))},
        "restore": {
            "mode": Choice(("quality", "face")),
            "model": Choice(("small", "x4plus")),
            "version": Choice(("auto", "1.4", "1.3")),
            "seed": Whole("", 0, 2**32 - 1),
        },
        "erase": {},
    }
)
"""Per feature its query options."""


def check_options(feature: str, query: Mapping[str, str]) -> dict[str, str]:
    """Return every option of ``feature`` with its value. Raises ``Problem("unknown_option")``; other query fields are
    ignored."""
    chosen = {}
    for name, option in OPTIONS[feature].items():
        value = query.get(name, option.default)
        if value != option.default and not option.accepts(value):
            allowed = option.allowed()
            detail = f"{name}={value!r} is not one of {', '.join(allowed)}"
            raise Problem("unknown_option", detail, option=name, allowed=allowed)
        chosen[name] = value
    return chosen
