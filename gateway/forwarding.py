"""What a backend is told about where a request came from: ``X-Forwarded-*``, ``X-Real-IP`` and ``Forwarded`` (RFC
7239). Pure.

Such fields are claims. They are believed from a peer that is a trusted proxy and are removed from everybody else's
requests, whatever the mode. Their aliases, which only some proxies filter, are believed from nobody. By mode the
gateway adds its own:

* ``off``: none is invented; a trusted proxy's pass untouched;
* ``x-forwarded``: ``X-Forwarded-For`` gets the peer's address at its end, ``-Proto`` and ``-Host`` are set where the
  trusted proxy did not;
* ``forwarded``: ``Forwarded`` gets an element for this hop at its end (section 4);
* ``both``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network

from gateway.arrival import Arrival
from gateway.fields import values_of
from shadow.exchange import Headers
from shadow.field_names import is_alias, with_aliases

MODES = ("off", "x-forwarded", "forwarded", "both")
FOR, PROTO, HOST, FORWARDED = b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"forwarded"

_CLAIMS = tuple(with_aliases({b"x-forwarded-"}))
_NAMES = with_aliases({FORWARDED, b"x-real-ip"})
_NONE: frozenset[bytes] = frozenset()
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


@dataclass(frozen=True, slots=True)
class FieldChange:
    """Fields to take out by name, and fields to put in at the end."""

    dropped: frozenset[bytes] = frozenset()
    added: Headers = ()

    def applied_to(self, headers: Headers) -> Headers:
        """Return the headers with the change."""
        if not self.dropped and not self.added:
            return headers
        return (*(field for field in headers if field[0] not in self.dropped), *self.added)

    def followed_by(self, other: FieldChange) -> FieldChange:
        """Return both changes as one."""
        if other is NO_CHANGE:
            return self
        return FieldChange(self.dropped | other.dropped, (*self.added, *other.added))


NO_CHANGE = FieldChange()
REMEMBERED = 4096


class Forwarding:
    """The rule of one configuration. Raises ``ValueError`` for an unknown mode or a network that is none."""

    def __init__(self, mode: str, trusted_proxies: Iterable[str]) -> None:
        if mode not in MODES:
            raise ValueError(f"gateway.forwarded must be one of {', '.join(MODES)}")
        self._legacy = mode in ("x-forwarded", "both")
        self._standard = mode in ("forwarded", "both")
        self._trusted = tuple(ip_network(network, strict=False) for network in trusted_proxies)
        self._trusts = lru_cache(REMEMBERED)(self._is_trusted) if self._trusted else _nobody

    def change(self, arrival: Arrival) -> FieldChange:
        """Return what happens to the fields of this request on their way to a backend."""
        names = b"\n".join(arrival.first)
        claims = _claims(arrival.first) if FORWARDED in names or b"real" in names else _NONE
        trusted = self._trusts(arrival.peer)
        if trusted:
            claims = frozenset(filter(is_alias, claims)) if claims else claims
        if not self._legacy and not self._standard:
            return FieldChange(claims) if claims else NO_CHANGE
        believed = arrival.headers if trusted else ()
        added: list[tuple[bytes, bytes]] = []
        if self._legacy:
            added += _legacy_fields(arrival, believed)
        if self._standard:
            hops = [*values_of(believed, FORWARDED), _element(arrival)]
            added.append((FORWARDED, b", ".join(hop for hop in hops if hop)))
        ours = frozenset(name for name, _ in added)
        return FieldChange(claims | ours, tuple(added))

    def _is_trusted(self, peer: str | None) -> bool:
        try:
            address = ip_address(peer or "")
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._trusted)


def _nobody(peer: str | None) -> bool:
    return False


def _claims(names: Iterable[bytes]) -> frozenset[bytes]:
    return frozenset(name for name in names if name in _NAMES or name.startswith(_CLAIMS))


def _legacy_fields(arrival: Arrival, believed: Headers) -> list[tuple[bytes, bytes]]:
    chain = [*values_of(believed, FOR), _peer(arrival)]
    fields = [(FOR, b", ".join(hop for hop in chain if hop))]
    fields += [(PROTO, value) for value in values_of(believed, PROTO) or [arrival.scheme.encode("ascii")]]
    fields += [(HOST, value) for value in values_of(believed, HOST) or values_of(arrival.headers, b"host")[:1]]
    return fields


def _element(arrival: Arrival) -> bytes:
    peer = _peer(arrival)
    node = b'"[%b]"' % peer if b":" in peer else peer  # section 6: an IPv6 address is bracketed and quoted
    parts = [b"for=" + node]
    parts += [b"host=" + _quoted(host) for host in values_of(arrival.headers, b"host")[:1] if host]
    parts.append(b"proto=" + arrival.scheme.encode("ascii"))
    return b";".join(parts)


def _peer(arrival: Arrival) -> bytes:
    return (arrival.peer or "unknown").encode("ascii", "replace")


def _quoted(value: bytes) -> bytes:
    if _TOKEN.fullmatch(value):
        return value
    return b'"%b"' % value.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
