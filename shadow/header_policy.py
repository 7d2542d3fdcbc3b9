"""What the copy of a request looks like on the wire: pure functions from the client's fields to the shadow's.

The client's fields keep their order, case and bytes. Gone is what goes on production's leg too (hop-by-hop fields, RFC
9110 section 7.6.1, and ``Expect``, under all their spellings); the client's credentials (``ShadowRule.hides``) unless
the rule forwards them; framing, which is written anew because the copy is complete. Added are: the target's own
credential, the marker, the request id, and a trace context of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from shadow.exchange import Headers, Request, Role
from shadow.field_names import HOP_BY_HOP, nominated, with_aliases
from shadow.rule import ShadowRule

MARKERS = {Role.SHADOW: b"X-Crossfade-Shadow", Role.CONTROL: b"X-Crossfade-Control"}
REQUEST_ID = b"X-Request-Id"

_REWRITTEN = frozenset({b"host", b"content-length", b"traceparent", b"tracestate", REQUEST_ID.lower()})
_OURS = frozenset(marker.lower() for marker in MARKERS.values())
_NEVER_COPIED = with_aliases(HOP_BY_HOP | {b"expect"} | _REWRITTEN | _OURS)
_TRACEPARENT = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})(-.*)?")


def copy_headers(
    request: Request,
    rule: ShadowRule,
    *,
    role: Role,
    request_id: str,
    authority: bytes,
    credential: tuple[str, str] | None,
    parent_id: int,
) -> Headers:
    """Return the fields of the copy that goes to ``authority`` as ``role``.

    ``parent_id`` is the copy's own span id (64 bits, not zero). ``credential`` replaces any field of the same name.
    """
    fields = [(name, name.lower(), value) for name, value in request.headers]
    keys = {key for _, key, _ in fields}
    hosts = [value for _, key, value in fields if key == b"host"] if rule.preserve_host else ()
    host = hosts[0] if len(hosts) == 1 else authority
    dropped = _NEVER_COPIED.union(key for key in keys - _NEVER_COPIED if rule.hides(key.decode("latin-1")))
    if b"connection" in keys:
        gone = nominated(value for _, key, value in fields if key == b"connection")
        fields = [field for field in fields if field[1] not in gone]
    added = [(MARKERS[role], b"1"), (REQUEST_ID, request_id.encode("latin-1", "replace"))]
    if credential is not None:
        name = credential[0].encode("latin-1")
        dropped |= with_aliases({name.lower()})
        added.append((name, credential[1].encode("latin-1")))
    return (
        (b"Host", host),
        *[(name, value) for name, key, value in fields if key not in dropped],
        *_framing(keys, request.body.size_bytes),
        *(_trace_context(fields, parent_id) if b"traceparent" in keys else ()),
        *added,
    )


def join_target(prefix: bytes, target: bytes) -> bytes:
    """Put the path of a server's base URL before the raw request-target, byte for byte and with no double slash."""
    return prefix.rstrip(b"/") + target if target.startswith(b"/") else target


def _framing(keys: set[bytes], size_bytes: int) -> Headers:
    declared = b"content-length" in keys or b"transfer-encoding" in keys
    return ((b"Content-Length", b"%d" % size_bytes),) if size_bytes or declared else ()


def _trace_context(fields: list[tuple[bytes, bytes, bytes]], parent_id: int) -> Iterator[tuple[bytes, bytes]]:
    """Continue the client's trace (W3C Trace Context section 3.2) under a new parent; a broken one is not passed on."""
    parents = [value.strip() for _, key, value in fields if key == b"traceparent"]
    match = _TRACEPARENT.fullmatch(parents[0]) if len(parents) == 1 else None
    if match is None:
        return
    version, trace_id, flags, more = match.groups()
    if version == b"ff" or trace_id == b"0" * 32 or (version == b"00" and more):
        return
    # Of the flags only "sampled" is defined in the version that is written here.
    yield b"traceparent", b"00-%b-%016x-%02x" % (trace_id, parent_id, int(flags, 16) & 1)
    for name, key, value in fields:
        if key == b"tracestate":
            yield name, value
