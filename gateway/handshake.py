"""What a WebSocket's opening handshake must be (RFC 6455 section 4.2.1), whichever parser read it. Pure."""

from __future__ import annotations

import re

from gateway.fields import Fields, list_members, values_of
from gateway.head import may_continue
from gateway.problem import BAD_REQUEST, WEBSOCKET_VERSION, Problem

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_KEY = re.compile(rb"[0-9A-Za-z+/]{22}==")  # 16 bytes


def offers_websocket(fields: Fields) -> bool:
    """Say whether the fields, whose names are in lower case, ask to speak WebSocket and nothing else."""
    return b"upgrade" in list_members(fields, b"connection") and list_members(fields, b"upgrade") == [b"websocket"]


def subprotocols(fields: Fields) -> list[str]:
    """Return the subprotocols that the client would speak, the best first."""
    offered = b",".join(values_of(fields, b"sec-websocket-protocol")).decode("latin-1")
    return [name.strip() for name in offered.split(",") if name.strip()]


def handshake_fault(method: str, fields: Fields) -> Problem | None:
    """Return the problem of a handshake that offers WebSocket, ``None`` where it has none."""
    keys = values_of(fields, b"sec-websocket-key")
    if method != "GET" or may_continue("1.1", fields) or len(keys) != 1 or not _KEY.fullmatch(keys[0]):
        return BAD_REQUEST
    if not all(map(_TOKEN.fullmatch, subprotocols(fields))):
        return BAD_REQUEST
    return None if values_of(fields, b"sec-websocket-version") == [b"13"] else WEBSOCKET_VERSION


def is_handshake(method: str, fields: Fields) -> bool:
    """Say whether these begin a WebSocket."""
    return offers_websocket(fields) and handshake_fault(method, fields) is None
