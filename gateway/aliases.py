"""Names of header fields that a server behind may take for one another. Pure.

CGI, WSGI and their kin make one variable of ``X-Forwarded-For`` and ``X_Forwarded_For`` (RFC 9110 section 17.10). So
what a client may not tell a backend under the one name it may not tell it under the other either.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product


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
