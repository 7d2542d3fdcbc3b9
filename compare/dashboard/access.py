"""Who a visitor is, and what that person may do.

    viewer    verdicts, gates, counts and lists, but nobody's pictures or texts
    reviewer  the bodies, too, and a label on each pair; every look at a body is audited
    operator  the ramps, too; every change is audited

Beyond loopback a visitor shows one of the tokens (each opens one role), or comes through a trusted proxy that names the
user in a header. Without either everybody is the operator of this machine; ``server.guard`` then lets only loopback in.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from starlette.datastructures import Headers

_MAX_NAME = 100


class Role(IntEnum):
    """What a visitor may do; each may do what those before it may."""

    VIEWER = 1
    REVIEWER = 2
    OPERATOR = 3

    @property
    def word(self) -> str:
        """The role for a person."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who is known; ``name`` goes into the audit."""

    name: str
    role: Role

    def may(self, least: Role) -> bool:
        """Whether the role is at least that."""
        return self.role >= least


HERE = Visitor("this machine", Role.OPERATOR)


@dataclass(frozen=True, slots=True)
class Access:
    """How visitors become known. ``tokens`` are never shown; an empty one counts as none. ``user_header`` is believed
    from ``proxies`` (networks) only; users that are in neither list are viewers."""

    tokens: Mapping[Role, str] = field(default_factory=dict, repr=False)
    user_header: str = ""
    proxies: tuple[str, ...] = ()
    reviewers: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset()

    @property
    def demanded(self) -> bool:
        """Whether a visitor has to be somebody."""
        return any(self.tokens.values()) or self.proxied

    @property
    def proxied(self) -> bool:
        """Whether a trusted proxy names the users."""
        return bool(self.user_header and self.proxies)

    def named(self, headers: Headers, peer: str) -> Visitor | None:
        """Return the user that a trusted proxy names."""
        if not self.proxied or not self._trusts(peer):
            return None
        names = headers.getlist(self.user_header)
        name = names[0].strip()[:_MAX_NAME] if len(names) == 1 else ""  # two names are somebody's trick
        if not name:
            return None
        role = Role.OPERATOR if name in self.operators else Role.REVIEWER if name in self.reviewers else Role.VIEWER
        return Visitor(name, role)

    def _trusts(self, peer: str) -> bool:
        try:
            address = ipaddress.ip_address(peer)
        except ValueError:
            return False
        return any(address in ipaddress.ip_network(network) for network in self.proxies)
