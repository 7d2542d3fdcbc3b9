"""Which server of a backend gets a call, as whoever calls needs to know it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import httpx

from shadow.exchange import Observation


@dataclass(frozen=True)
class Way:
    """How one server is reached: its ``name`` in the settings, the ``url`` that its authority and its prefix are taken
    from, and what the transport has to be told besides."""

    name: str
    url: httpx.URL
    extensions: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def authority(self) -> bytes:
        """The value of a Host field."""
        return self.url.netloc

    @cached_property
    def prefix(self) -> bytes:
        """The path that goes before every target."""
        return self.url.raw_path


class ServerCall(Protocol):
    """A call that is under way at one server. It is ended exactly once."""

    @property
    def way(self) -> Way:
        """How the server is reached."""

    def end(self, observation: Observation | None) -> None:
        """Say what the server did; ``None`` when that was not to be seen, because the call was cut short."""


Choose = Callable[[], ServerCall | None]
"""Starts a call at the best server; ``None`` where none takes any."""


@dataclass(frozen=True, slots=True)
class UncountedCall:
    """A call at a server that nobody keeps count of."""

    way: Way

    def end(self, observation: Observation | None) -> None:
        """Take no note."""
