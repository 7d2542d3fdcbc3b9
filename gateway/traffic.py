"""The gateway's own count of what it received, kept apart from the mirror's account so that the two can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from types import MappingProxyType


def _tell_nobody(route: str) -> None:
    """Take no notice: nothing is mirrored."""


NO_ROUTE = ""
"""Stands for the route of a request that was refused before one was found."""


class Traffic:
    """Counts per route. ``received`` is what matched a route and passed its limits; ``open`` of these are still being
    served, ``total_open`` on all routes together, which any thread may read. ``refused`` are the others of the route,
    which are not received: turned away at the door, by code; under ``NO_ROUTE`` those that were turned away before it
    was known whose they are."""

    def __init__(self) -> None:
        self._note: Callable[[str], None] = _tell_nobody
        self._received: Counter[str] = Counter()
        self._open: Counter[str] = Counter()
        self.total_open = 0
        self._refused: dict[str, Counter[str]] = {}

    def watch(self, note: Callable[[str], None]) -> None:
        """Let ``note`` be called with the route of each request that is counted in; it neither waits nor raises."""
        self._note = note

    def begin(self, route: str) -> None:
        """Count a request in."""
        self._note(route)
        self._received[route] += 1
        self._open[route] += 1
        self.total_open += 1

    def end(self, route: str) -> None:
        """Note that a request was handed over; call it in the same turn of the loop as the tap."""
        self._open[route] -= 1
        self.total_open -= 1

    def refuse(self, route: str, code: str) -> None:
        """Count a request that did not come in; ``code`` is the problem's."""
        self._refused.setdefault(route, Counter())[code] += 1

    def routes(self) -> list[str]:
        """Return the routes that anything was counted for."""
        return [route for route in {**self._received, **self._refused} if route != NO_ROUTE]

    def received(self, route: str) -> int:
        """Requests so far."""
        return self._received[route]

    def open(self, route: str) -> int:
        """Requests that are being served now."""
        return self._open[route]

    def refused(self, route: str) -> Mapping[str, int]:
        """Requests so far that did not come in, by code."""
        return MappingProxyType(dict(self._refused.get(route, ())))
