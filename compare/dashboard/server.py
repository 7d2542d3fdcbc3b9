"""Serve the dashboard: loopback by default, elsewhere only with a token."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from compare.dashboard.errors import refuse_host
from compare.dashboard.security import KnownHosts, SafeHeaders, is_loopback

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


def guard(app: Starlette, host: str) -> ASGIApp:
    """Return what may listen on ``host``. Raises ``ValueError`` beyond loopback when no token is demanded.

    On loopback, where no token is needed, only this machine's own names are answered to (DNS rebinding).
    """
    if not is_loopback(host):
        if not app.state.gate.demanded:
            raise ValueError(
                f"{host} can be reached from other machines, so the dashboard needs a token: set "
                "CROSSFADE_DASHBOARD_TOKEN (to the output of `openssl rand -hex 24`, say), or a trusted proxy "
                "(dashboard.user_header and dashboard.trusted_proxies in the config), or listen on 127.0.0.1"
            )
        return app
    hosts = {*LOOPBACK_NAMES, host.lower(), f"[{host.strip('[]').lower()}]"}
    return SafeHeaders(KnownHosts(app, sorted(hosts), refuse_host))


def serve(app: Starlette, host: str, port: int, tell: Callable[[str], None]) -> None:
    """Tell the address and run until interrupted. Raises ``ValueError`` where ``guard`` does, and where the address
    cannot be listened on."""
    # proxy_headers off: who the peer is decides whom to believe, so nobody else may say it.
    config = uvicorn.Config(
        guard(app, host), log_level="warning", server_header=False, proxy_headers=False,
        timeout_graceful_shutdown=1,  # pages that are kept live never end by themselves
    )  # fmt: skip
    address = host.strip("[]")
    with _listen(address, port) as listener, suppress(KeyboardInterrupt):
        name = f"[{address}]" if ":" in address else address
        tell(f"dashboard at http://{name}:{listener.getsockname()[1]}")
        uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (")[0]  # the socket module's remark repeats the address
        raise ValueError(f"cannot listen on {host} port {port}: {why}. Name another place with --port") from error
