"""Name how a call failed, the same for the primary and the shadow leg, so that the two can be compared."""

from __future__ import annotations

import httpx

from shadow.exchange import FailureKind


def failure_kind(error: Exception, *, answered: bool) -> FailureKind:
    """Return the kind of a transport's error. ``answered`` says whether a status line had come: what breaks off after
    it is a truncated answer, however it broke (RFC 9112 section 8)."""
    match error:
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return FailureKind.CONNECT
        case TimeoutError() | httpx.TimeoutException():
            return FailureKind.TIMEOUT
        case httpx.NetworkError() | httpx.RemoteProtocolError() if answered:
            return FailureKind.TRUNCATED
        case httpx.NetworkError():
            return FailureKind.RESET
        case _:
            return FailureKind.PROTOCOL
