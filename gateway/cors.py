"""What a browser needs to let a page read the gateway's own answers (Fetch standard, section 3.3). Pure.

A backend's answers carry the backend's own CORS fields and are passed on untouched, and preflights go to the backend
too. But a 429 or a 401 never reaches a backend: without these fields a page sees a network error, and no Retry-After.
"""

from __future__ import annotations

from gateway.fields import values_of
from gateway.settings import Cors
from shadow.exchange import Headers

_EXPOSED = b"Retry-After, RateLimit, RateLimit-Policy, X-Request-Id"


def cors_fields(cors: Cors | None, headers: Headers) -> Headers:
    """Return the fields that a problem's answer to a request with these fields carries."""
    if cors is None:
        return ()
    origins = values_of(headers, b"origin")
    is_known = len(origins) == 1 and ("*" in cors.origins or origins[0].decode("latin-1") in cors.origins)
    vary = (b"vary", b"Origin")
    if not is_known:
        return (vary,)
    fields = (vary, (b"access-control-allow-origin", origins[0]), (b"access-control-expose-headers", _EXPOSED))
    return (*fields, (b"access-control-allow-credentials", b"true")) if cors.credentials else fields
