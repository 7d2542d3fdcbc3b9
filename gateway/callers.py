"""Who is calling, for limits and for the toggle's stickiness. Pure, but for remembering what addresses come to.

For limits a caller is what is proved: the owner of its API key (``keyring``), else its address. For stickiness what a
client claims is enough, since nothing can be gained by it: its key where it sends one (``X-Api-Key``, ``Api-Key`` or
``Authorization``), else its address.

An address is the peer's, unless the peer is a trusted proxy: then the right-most address in X-Forwarded-For (or
Forwarded, RFC 7239, where the settings say so) that is no trusted proxy, the lines joined in order, because everything
to the left of it can be made up. Only one of the two fields is read: a proxy that writes one passes the other on as the
client sent it. A value that is no address stops the search and the peer counts: never an error, never a shared
"unknown".
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple

from gateway.arrival import Arrival

REMEMBERED = 4096

_KEY_HEADERS = (b"x-api-key", b"api-key", b"authorization")
# Possessive throughout: what a client sends must not make the matching try again and again.
_NAME = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_VALUE = rf'(?:{_NAME}|"(?:[^"\\]|\\.)*+")'
_PAIR = rf"(?:{_NAME}={_VALUE}[ \t]*+)?+"
_FORWARDED = re.compile(rf"(?:[ \t]*+{_PAIR}[;,])*+[ \t]*+{_PAIR}")
_PIECE = re.compile(rf"(?P<name>{_NAME})=(?P<value>{_VALUE})|(?P<comma>,)")
_PORT = re.compile(r":[0-9_.A-Za-z-]*")
_Address = IPv4Address | IPv6Address


class Caller(NamedTuple):
    """A caller without its secret: ``kind`` is ``key`` or ``address``, ``value`` a hash or an address (IPv6: its
    /64)."""

    kind: str
    value: str

    @property
    def identity(self) -> str:
        """A name for this caller, the same for no other whatever they contain."""
        return f"{len(self.kind)}:{self.kind}{self.value}"

    def key(self, route: str) -> str:
        """Return a name for this caller on this route: hexadecimal, the same for no other pair whatever they
        contain."""
        parts = (route, self.kind, self.value)
        text = "".join(f"{len(part)}:{part}" for part in parts)
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class Callers:
    """Tells callers apart. ``trusted_proxies`` are networks whose ``forwarded_header`` is believed; raises
    ``ValueError`` for one that is none."""

    def __init__(self, trusted_proxies: Iterable[str], forwarded_header: str = "X-Forwarded-For") -> None:
        self._trusted = tuple(ip_network(network, strict=False) for network in trusted_proxies)
        self._direct: dict[str, str] = {}  # what untrusted peers come to: nothing but a saving of time
        self._header = forwarded_header.lower().encode("latin-1")
        if self._header not in (b"x-forwarded-for", b"forwarded"):
            raise ValueError(f"forwarded_header is X-Forwarded-For or Forwarded, not '{forwarded_header}'")

    def identify(self, arrival: Arrival) -> Caller:
        """Return who the request says it comes from."""
        for header in _KEY_HEADERS:
            for value in arrival.values_of(header):
                if value:
                    return Caller("key", hashlib.sha256(value).hexdigest())
        return Caller("address", self.address_of(arrival))

    def address_of(self, arrival: Arrival) -> str:
        """Return the address that a request comes from; of IPv6, its /64."""
        text = arrival.peer or "local"
        if text in self._direct:
            return self._direct[text]
        peer = _parse(text)
        if peer is None or not self._trusts(peer):
            if len(self._direct) >= REMEMBERED:
                self._direct.clear()
            self._direct[text] = text if peer is None else _bucket(peer)
            return self._direct[text]
        client = peer
        for hop in reversed(self._hops(arrival)):
            address = _parse(hop)
            if address is None:
                return _bucket(peer)
            client = address
            if not self._trusts(address):
                break
        return _bucket(client)

    def _hops(self, arrival: Arrival) -> list[str]:
        """Return the nodes that the proxies name, the nearest last; one that cannot be read is empty."""
        lines = [value.decode("latin-1") for value in arrival.values_of(self._header)]
        if self._header == b"forwarded":
            return [node for line in lines for node in _nodes_of(line)]
        return [hop.strip() for hop in ",".join(lines).split(",")]

    def _trusts(self, address: _Address) -> bool:
        return any(address in network for network in self._trusted)


def _nodes_of(line: str) -> list[str]:
    """Return the node of each element of one Forwarded field (RFC 7239 section 4), empty where it names none.

    A line that is not wholly well-formed names nobody: a quote that a client leaves open would otherwise swallow what
    the proxy adds to the same line.
    """
    if not _FORWARDED.fullmatch(line):
        return [""]
    nodes = [""]
    for found in _PIECE.finditer(line):
        if found["comma"]:
            nodes.append("")
        elif found["name"].lower() == "for":
            value = found["value"]
            nodes[-1] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] == '"' else value
    return nodes


def _parse(text: str) -> _Address | None:
    """Read ``1.2.3.4``, ``1.2.3.4:55``, ``2001:db8::1`` or ``[2001:db8::1]:443``."""
    if text.startswith("["):
        text, _, port = text[1:].partition("]")
        if port and not _PORT.fullmatch(port):
            return None
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _bucket(address: _Address) -> str:
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), 64), strict=False))  # one subscriber owns a whole /64
    return str(address)
