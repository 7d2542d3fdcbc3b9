"""What the stock transport is there for: backends that speak HTTP/2, and a proxy on the way to them."""

from __future__ import annotations

import base64
import ssl
import threading
from dataclasses import replace
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import pytest

from gateway.generation import check
from tests.fakes.backend import Backend, Peer, RawRequest, answering, plain
from tests.gateway.authority import Authority
from tests.gateway.harness import one_route, running


def test_requests_go_through_the_proxy_with_their_targets_and_its_credentials() -> None:
    with Backend(answering(plain(b"by the proxy"))) as proxy:
        url = f"http://me:hush@127.0.0.1:{proxy.port}"
        settings = replace(one_route("http://cloud.test:81"), transport="httpx", proxy=url)
        assert "hush" not in repr(settings)
        with running(settings) as gateway:
            assert gateway.request("POST", "/a%2Fb?c=%20", body=b"x").body == b"by the proxy"
        request = proxy.requests[0]
    assert request.line == b"POST http://cloud.test:81/a%2Fb?c=%20 HTTP/1.1"
    assert request.values(b"host") == [b"cloud.test:81"]
    assert request.values(b"proxy-authorization") == [b"Basic " + base64.b64encode(b"me:hush")]
    assert request.body == b"x"


def test_https_backends_are_reached_through_a_tunnel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle(tmp_path)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(tmp_path, "cloud.test"))
    asked: list[bytes | None] = []
    requests: list[RawRequest] = []

    def script(peer: Peer) -> None:
        asked.append(peer.read_head())
        peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        with context.wrap_socket(peer.sock, server_side=True) as sock:
            inner = Peer(sock, requests, threading.Condition())
            while inner.read_request() is not None:
                inner.send(plain(b"in the tunnel"))

    with Backend(script) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        with running(replace(one_route("https://cloud.test"), transport="httpx", proxy=url)) as gateway:
            for _ in range(2):
                assert gateway.request("POST", "/a%2Fb?c=%20", body=b"x").body == b"in the tunnel"
    assert asked[0] is not None
    assert asked[0].startswith(b"CONNECT cloud.test:443 HTTP/1.1\r\n")
    assert [request.line for request in requests] == [b"POST /a%2Fb?c=%20 HTTP/1.1"] * 2


class H2Peer:
    """Serves HTTP/2 on one connection: every request is answered with its own body."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.heads: list[dict[bytes, bytes]] = []
        self._bodies: dict[int, bytes] = {}

    def serve(self) -> None:
        """Serve until the other side leaves."""
        self._connection.initiate_connection()
        self._flush()
        while data := self._peer.sock.recv(65536):
            for event in self._connection.receive_data(data):
                self._heed(event)
            self._flush()

    def _heed(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.RequestReceived):
            self.heads.append({bytes(name): bytes(value) for name, value in event.headers})
            self._bodies[event.stream_id] = b""
        elif isinstance(event, h2.events.DataReceived):
            self._bodies[event.stream_id] += event.data
        elif isinstance(event, h2.events.StreamEnded):
            self._connection.send_headers(event.stream_id, [(b":status", b"200"), (b"x-b", b"1"), (b"x-b", b"2")])
            self._connection.send_data(event.stream_id, self._bodies[event.stream_id], end_stream=True)

    def _flush(self) -> None:
        self._peer.send(self._connection.data_to_send())


def test_http_2_is_spoken_with_a_backend_that_offers_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority()
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle(tmp_path)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(tmp_path, "127.0.0.1"))
    context.set_alpn_protocols(["h2"])
    peers: list[H2Peer] = []

    def script(peer: Peer) -> None:
        peers.append(H2Peer(peer))
        peers[-1].serve()

    with Backend(script, tls=context) as backend:
        settings = replace(one_route(backend.url), transport="httpx", http2=True)
        with running(settings) as gateway:
            for body in (b"hello", b"again"):
                answer = gateway.request("POST", "/a%2Fb?c", [(b"X-A", b"1"), (b"Connection", b"X-Hop")], body)
                assert (answer.status, answer.body, answer.values(b"x-b")) == (200, body, [b"1", b"2"])
        assert len(peers) == 1, "one connection carries both"
    head = peers[0].heads[0]
    assert (head[b":method"], head[b":path"], head[b"x-a"]) == (b"POST", b"/a%2Fb?c", b"1")
    assert not {b"connection", b"transfer-encoding"} & head.keys()


@pytest.mark.parametrize("changes", [{"http2": True}, {"proxy": "http://proxy.test:3128"}])
def test_the_gateways_own_transport_has_neither(changes: dict[str, object]) -> None:
    settings = replace(one_route("http://a.test"), transport="own", **changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="http2 and proxy need"):
        check(settings)
