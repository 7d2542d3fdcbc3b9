"""What header fields are by their names alone, for whoever passes a request on: production's leg or the mirror's. Pure.

CGI, WSGI and their kin make one variable of ``X-Forwarded-For`` and ``X_Forwarded_For`` (RFC 9110 section 17.10). So
what a client may not tell a backend under the one name it may not tell it under the other either.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Never passed on (RFC 9110 section 7.6.1), in lower case; besides those that ``Connection`` names."""

_NEVER_NOMINATED = frozenset({b"content-length", b"host", b"x-request-id", b"forwarded", b"x-real-ip"})
_FORWARDED = b"x-forwarded-"


def nominated(connections: Iterable[bytes]) -> frozenset[bytes]:
    """Return the names, in lower case, that these values of ``Connection`` take out of a message.

    Not those without which it would lose its framing, its target or what a trusted proxy says about its origin.
    """
    options = (option.strip().lower() for value in connections for option in value.split(b","))
    return frozenset(name for name in options if name and not name.startswith(_FORWARDED)) - _NEVER_NOMINATED


def with_aliases(names: Iterable[bytes]) -> frozenset[bytes]:
    """Return the names in all their spellings with an underscore for a hyphen."""
    return frozenset(spelling for name in names for spelling in _spellings(name))


def is_alias(name: bytes) -> bool:
    """Say whether a name may be taken for another one."""
    return b"_" in name


def _spellings(name: bytes) -> Iterable[bytes]:
    first, *others = name.split(b"-")
    for joints in product((b"-", b"_"), repeat=len(others)):
        yield first + b"".join(joint + word for joint, word in zip(joints, others, strict=True))
