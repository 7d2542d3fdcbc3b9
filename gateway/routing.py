"""Find the route of a request and the backend of a caller. Pure.

A path is matched in one form: as it came, still percent-encoded, except that escapes of unreserved characters are
undone and the hex digits of all others are upper case, which RFC 3986 section 6.2.2 calls the same URI. What a backend
receives is never this form but the bytes that came.

A backend may decode further than that, so a path that would belong to another route (or to none) after one full
decoding, without path parameters, empty and dot segments, is refused as ambiguous: ``/public/%2e%2e/admin``,
``/admin%2Fx``, ``//admin`` and ``/admin;/x`` get past no rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from gateway.settings import Route

_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_PARAMETERS = re.compile(rb";[^/]*")
_SLASHES = re.compile(rb"/{2,}")
_REMEMBERED = 4096
_REMEMBERED_BYTES = 256
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


@dataclass(frozen=True, slots=True)
class NoRoute:
    """No route has the path."""


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """The path means different routes before and after decoding."""


@dataclass(frozen=True, slots=True)
class WrongMethod:
    """The path has routes, but none for the method; ``allow`` lists what they take, sorted."""

    allow: tuple[str, ...]


Match = Route | NoRoute | Ambiguous | WrongMethod


class RouteTable:
    """The routes of one configuration. Exact paths come first, then the longest ``/*`` prefix. What the last few
    thousand short paths came to is remembered."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._exact: dict[bytes, list[Route]] = {}
        self._below: dict[bytes, list[Route]] = {}
        for route in routes:
            if route.path.endswith("/*"):
                self._below.setdefault(comparable(route.path[:-1].encode()), []).append(route)
            else:
                self._exact.setdefault(comparable(route.path.encode()), []).append(route)
        self._prefixes = sorted(self._below, key=len, reverse=True)
        self._remember = lru_cache(_REMEMBERED)(self._find)

    def match(self, method: str, raw_path: bytes) -> Match:
        """Return the route that takes this method and path, or why there is none."""
        return (self._remember if len(raw_path) <= _REMEMBERED_BYTES else self._find)(method, raw_path)

    def _find(self, method: str, raw_path: bytes) -> Match:
        candidates = self._candidates(comparable(raw_path))
        if not candidates:
            return NoRoute()
        decoded = _as_decoded(raw_path)
        if decoded is not raw_path and self._candidates(decoded) is not candidates:
            return Ambiguous()
        for route in candidates:
            if method in route.methods:
                return route
        return WrongMethod(tuple(sorted({method for route in candidates for method in route.methods})))

    def _candidates(self, path: bytes) -> list[Route]:
        if path in self._exact:
            return self._exact[path]
        for prefix in self._prefixes:
            if path.startswith(prefix):
                return self._below[prefix]
        return []


def sole(active: Mapping[str, int]) -> str | None:
    """Return the backend that serves every caller, ``None`` where callers are shared out."""
    for name, percent in active.items():
        if percent == 100:
            return name
    return None


def choose(active: Mapping[str, int], key_hash: int) -> str:
    """Return the backend that serves the caller with this hash.

    ``active`` holds whole percents that sum to 100. The callers are laid out on 100 places and the backends share them
    in the order of their names, so a caller stays on its side, and between two backends a growing percent only ever
    moves callers towards it.
    """
    place = key_hash % 100
    for name in sorted(active):
        place -= active[name]
        if place < 0:
            return name
    raise ValueError("the active percents do not sum to 100")


def comparable(raw_path: bytes) -> bytes:
    """Return the form of a raw path that routes are compared in."""
    if b"%" not in raw_path:
        return raw_path
    return _ESCAPE.sub(_undo_unreserved, raw_path)


def _undo_unreserved(match: re.Match[bytes]) -> bytes:
    code = int(match[1], 16)
    return bytes((code,)) if code in _UNRESERVED else match[0].upper()


def _as_decoded(raw_path: bytes) -> bytes:
    """Decode once, drop what some backends drop (path parameters after ``;``, empty segments) and remove dot segments
    as RFC 3986 section 5.2.4 does; then encode nothing back."""
    decoded = unquote_to_bytes(raw_path) if b"%" in raw_path else raw_path
    if b";" in decoded:
        decoded = _PARAMETERS.sub(b"", decoded)
    if b"//" in decoded:
        decoded = _SLASHES.sub(b"/", decoded)
    if b"." not in decoded:
        return decoded
    kept: list[bytes] = []
    segments = decoded.split(b"/")
    for segment in segments:
        if segment == b"..":
            if len(kept) > 1:
                kept.pop()
        elif segment != b".":
            kept.append(segment)
    if segments[-1] in (b".", b".."):
        kept.append(b"")
    return b"/".join(kept)
