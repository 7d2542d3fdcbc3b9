"""One look at what moves: what the gateways say, how far the comparison is. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GatewayView:
    """What the gateways say of themselves. ``received`` and ``refused`` (by a limit) are totals by route; ``mirror`` is
    as on ``/-/status``; ``reached`` is false when one of them did not answer."""

    reached: bool = False
    received: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    mirror: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Progress:
    """The comparison's progress on one route: exchanges that are stored, and how many of them are measured."""

    stored: int
    measured: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look. ``rates`` are requests per second by route, ``None`` where they are not known yet; ``comparing`` are
    the routes of which more was measured than at the look before."""

    gateway: GatewayView
    progress: Mapping[str, Progress]
    rates: Mapping[str, float | None] = field(default_factory=dict)
    comparing: frozenset[str] = frozenset()


def nobody_there() -> GatewayView:
    """Stand for gateways that nobody named."""
    return GatewayView()
