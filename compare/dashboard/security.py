"""Who may look, and what a page may do. Everything here is pure ASGI or a pure function.

States of a visitor when something is demanded: unknown (sees the login form and nothing else), or known by a trusted
proxy's word, by ``Authorization: Bearer`` or by a session cookie. A cookie is ``<role>.<issued>.<HMAC-SHA256(token,
role, issued)>``: the token itself is never sent to the browser, and another token ends every session.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from compare.dashboard.access import HERE, Access, Role, Visitor

COOKIE = "crossfade_session"
SESSION_S = 14 * 86_400
PAGE_POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PLOTLY_STYLES = (
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=' 'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='"
)
CHART_POLICY = PAGE_POLICY.replace("style-src 'self'", f"style-src 'self' {_PLOTLY_STYLES}")
"""The policy of a page with charts: plotly puts two style elements of its own into it, an empty one that it fills by
script among them. Their hashes are allowed, and no other inline style; without them it draws, too, but complains."""
BODY_POLICY = "default-src 'none'; sandbox; frame-ancestors 'none'"
_LOCAL_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")


@dataclass(frozen=True, slots=True)
class Gate:
    """Decides who a visitor is."""

    access: Access
    now: Callable[[], datetime]

    @property
    def demanded(self) -> bool:
        """Whether a visitor has to be somebody."""
        return self.access.demanded

    def accepts(self, token: str) -> Role | None:
        """Return the role that a token opens. Every token is compared, in constant time."""
        opened = [role for role, known in self.access.tokens.items() if known and _same(token, known)]
        return max(opened, default=None)

    def visitor(self, headers: Headers, cookie: str | None, peer: str) -> Visitor | None:
        """Return who the visitor is, ``None`` for somebody unknown."""
        if not self.demanded:
            return HERE
        found = self.access.named(headers, peer)
        if found is not None:
            return found
        scheme, _, given = headers.get("authorization", "").partition(" ")
        role = self.accepts(given.strip()) if scheme.lower() == "bearer" else None
        role = role or self._of_session(cookie or "")
        return None if role is None else Visitor(f"{role.word} at {peer}", role)

    def session(self, role: Role) -> str:
        """Return the cookie of a visitor who has just shown the token of a role."""
        return self._session(role, str(int(self.now().timestamp())))

    def _of_session(self, cookie: str) -> Role | None:
        number, _, rest = cookie.partition(".")
        issued, _, _ = rest.partition(".")
        role = next((role for role in self.access.tokens if number == str(int(role))), None)
        if role is None or not issued.isascii() or not issued.isdecimal() or len(issued) > 12:
            return None
        fresh = 0 <= self.now().timestamp() - int(issued) + 1 < SESSION_S
        return role if _same(cookie, self._session(role, issued)) and fresh else None

    def _session(self, role: Role, issued: str) -> str:
        key, said = self.access.tokens.get(role, "").encode(), f"{int(role)}.{issued}"
        return f"{said}.{hmac.new(key, b'crossfade dashboard ' + said.encode(), hashlib.sha256).hexdigest()}"


def is_own_form(headers: Headers) -> bool:
    """Whether a request that changes something comes from a page of this very host, or from no browser at all.

    Browsers say so in Sec-Fetch-Site (on trustworthy origins) or in Origin (with every POST).
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(_digest(one), _digest(other))


def _digest(text: str) -> bytes:
    """Return a hash to compare by: ``compare_digest`` leaks the length of what it is given."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def local_path(path: str) -> str:
    """Return ``path`` when it is a place on this very host, else ``/``: a login may not send people elsewhere."""
    return path if _LOCAL_PATH.fullmatch(path) else "/"


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is reached from this machine only. A name other than localhost is not trusted."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class SafeHeaders:
    """Give every answer, errors included, the headers that keep hostile content inert. A stricter policy that an answer
    already has is kept."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("content-security-policy", PAGE_POLICY)
                headers.setdefault("cache-control", "no-store")
                headers["x-content-type-options"] = "nosniff"
                headers["referrer-policy"] = "same-origin"
                headers["cross-origin-resource-policy"] = "same-origin"
                headers["cross-origin-opener-policy"] = "same-origin"
                headers["x-frame-options"] = "DENY"
            await send(message)

        await self._app(scope, receive, send_safely)


class KnownHosts:
    """Refuse a Host that is not one of ``hosts`` (names without a port): a page of another site whose name was pointed
    at loopback (DNS rebinding) sends its own name."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], refuse: ASGIApp) -> None:
        self._app, self._hosts, self._refuse = app, frozenset(hosts), refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = scope["type"] != "http" or host_name(Headers(scope=scope).get("host", "")) in self._hosts
        await (self._app if known else self._refuse)(scope, receive, send)


def host_name(host: str) -> str:
    """Return the lower-case name of a Host field without its port; an IPv6 address keeps its brackets."""
    name = host.lower()
    end = name.rfind("]") + 1 if name.startswith("[") else name.find(":")
    return name if end <= 0 else name[:end]
