"""What became of the exchanges that a gateway handed to the workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from shadow.exchange import SkipReason


def _nothing_skipped() -> Mapping[SkipReason, int]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Held:
    """What Redis knows of one run and route: how many are ``waiting`` for a worker, and what workers skipped."""

    waiting: int = 0
    skipped: Mapping[SkipReason, int] = field(default_factory=_nothing_skipped)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of the exchanges of one route that were handed over."""

    handed_over: int = 0
    recorded: int = 0
    lost: int = 0
    skipped: Mapping[SkipReason, int] = field(default_factory=_nothing_skipped)


def believable(skipped: Mapping[SkipReason, int], room: int) -> Mapping[SkipReason, int]:
    """Return the skips, at most ``room`` of them: what one worker skipped, another who still had it may have stored."""
    found: dict[SkipReason, int] = {}
    for reason, count in skipped.items():
        taken = min(count, max(0, room))
        room -= taken
        if taken:
            found[reason] = taken
    return found
