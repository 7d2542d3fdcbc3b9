"""WebSockets through the gateway: a real client, a real server, and raw bytes where they misbehave."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.http11 import Request, Response
from websockets.sync.client import ClientConnection, connect
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Subprotocol

from gateway.settings import Credential, Settings
from shadow.exchange import SkipReason
from shadow.rule import ShadowRule
from shadow.sampling import BURST
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.client import encode
from tests.gateway.harness import METHODS, SOON_S, WAIT_S, Running, one_route, running, with_backend, with_limits

HANDSHAKE = [
    (b"Connection", b"Upgrade"),
    (b"Upgrade", b"websocket"),
    (b"Sec-WebSocket-Key", b"dGhlIHNhbXBsZSBub25jZQ=="),
    (b"Sec-WebSocket-Version", b"13"),
]


@dataclass
class Echo:
    """A WebSocket server that sends back what it gets; ``done`` is set when a connection has ended."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    codes: list[int | None] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def handle(self, connection: ServerConnection) -> None:
        """Serve one connection."""
        assert connection.request is not None
        self.requests.append(connection.request)
        try:
            for message in connection:
                if message == "close 4001":
                    connection.close(4001, "enough")
                elif message == "break off":
                    connection.socket.shutdown(socket.SHUT_RDWR)
                else:
                    connection.send(message)
        except ConnectionClosed:
            pass
        self.codes.append(connection.close_code)
        self.done.set()


def first(connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return offered[0] if offered else None


def decline(connection: ServerConnection, request: Request) -> Response | None:
    if request.path.startswith("/forbidden"):
        return Response(HTTPStatus.FORBIDDEN, "No", Headers({"X-Why": "no key", "Content-Length": "2"}), b"no")
    if request.path.startswith("/moved"):
        return Response(307, "Moved", Headers({"Location": "/elsewhere", "Content-Length": "0"}), b"")
    return None


@pytest.fixture
def echo() -> Iterator[Echo]:
    one = Echo()
    with serve(
        one.handle, "127.0.0.1", 0, process_request=decline, select_subprotocol=first, compression=None
    ) as server:
        one.url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield one
        server.shutdown()
        thread.join()


def bridging(url: str, **changes: Any) -> Settings:
    return one_route(url, websocket=True, **changes)


@contextmanager
def opened(gateway: Running, path: str = "/", **options: Any) -> Iterator[ClientConnection]:
    with connect(f"ws://127.0.0.1:{gateway.port}{path}", proxy=None, **options) as client:
        yield client


def metric(gateway: Running, line: str) -> Callable[[], bool]:
    return lambda: line.encode() in gateway.request("GET", "/-/metrics").body


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline


def test_messages_pass_both_ways_and_nothing_is_mirrored(echo: Echo) -> None:
    messages: list[str | bytes] = ["text é", b"\x00\xff" * 1000, "", b"", "x" * 1_000_000]
    with running(bridging(echo.url)) as gateway:
        with opened(gateway, subprotocols=[Subprotocol("chat")]) as client:
            assert client.subprotocol == "chat"
            for message in messages:
                client.send(message)
                assert client.recv() == message
            wait_for(metric(gateway, 'crossfade_websockets_open{backend="cloud",route="all"} 1.0'))
            client.close(1001, "bye")
        assert echo.done.wait(WAIT_S)
        wait_for(metric(gateway, 'crossfade_websockets_open{backend="cloud",route="all"} 0.0'))
        wait_for(metric(gateway, 'crossfade_websockets_total{backend="cloud",outcome="closed",route="all"} 1.0'))
        assert gateway.taps.exchanges == []
        assert gateway.status()["routes"]["all"]["account"]["received"] == 0
        (server,) = gateway.status()["backends"]["cloud"].values()
        assert server["outstanding"] == 0
    assert echo.codes == [1001]


def test_what_is_never_mirrored_takes_nothing_of_the_mirrors_rate(echo: Echo) -> None:
    """Neither a WebSocket nor another mirror's copy."""
    rule = ShadowRule(percent=100, methods=METHODS, rate_per_s=1)
    with running(bridging(echo.url, shadow=rule)) as gateway:
        for _ in range(int(BURST)):
            with opened(gateway):
                pass
            gateway.request("POST", "/", [(b"X-Crossfade-Shadow", b"1")])
        gateway.request("POST", "/own")
        *copies, own = gateway.taps.wait(int(BURST) + 1)
    assert {copy.skipped for copy in copies} == {SkipReason.IS_A_COPY}
    assert own.skipped is None


def test_the_handshake_is_a_request_like_any_other(echo: Echo) -> None:
    settings = with_backend(bridging(echo.url), "cloud", credential=Credential("Authorization", "Bearer ours"))
    fields = {"Authorization": "Bearer theirs", "X-Custom": "caf\xe9", "X-Forwarded-For": "1.2.3.4"}
    with (
        running(settings) as gateway,
        opened(gateway, "/a%2Fb?q=%20&q", additional_headers=fields, origin="http://page.test") as client,
    ):
        client.send("x")
        assert client.recv() == "x"
        assert client.response is not None
        (request_id,) = client.response.headers.get_all("x-request-id")
    (request,) = echo.requests
    assert request.path == "/a%2Fb?q=%20&q"
    assert request.headers.get_all("Authorization") == ["Bearer ours"]
    assert request.headers.get_all("Origin") == ["http://page.test"]
    assert request.headers.get_all("X-Request-Id") == [request_id]
    assert request.headers.get_all("X-Custom") == ["caf\xe9"]
    assert request.headers.get_all("X-Forwarded-For") == []
    assert request.headers.get_all("User-Agent")[0].startswith("Python/"), "the client's own"
    assert len(request.headers.get_all("Sec-WebSocket-Key")) == 1


def test_a_target_is_not_logged(echo: Echo, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), running(bridging(echo.url)) as gateway:
        with opened(gateway, "/?key=secret") as client:
            client.send("x")
            assert client.recv() == "x"
        with pytest.raises(InvalidStatus), opened(gateway, "/forbidden?key=secret"):
            pass
    assert [record for record in caplog.records if "secret" in record.getMessage()] == []


def test_the_backends_close_code_reaches_the_client(echo: Echo) -> None:
    with running(bridging(echo.url)) as gateway:
        with opened(gateway) as client:
            client.send("close 4001")
            with pytest.raises(ConnectionClosed):
                client.recv()
            assert (client.close_code, client.close_reason) == (4001, "enough")
        with opened(gateway) as client:
            client.send("break off")
            with pytest.raises(ConnectionClosed):
                client.recv()
            assert client.close_code == 1014


def test_a_client_that_breaks_off_ends_the_backends_side(echo: Echo) -> None:
    with running(bridging(echo.url)) as gateway, opened(gateway) as client:
        client.send("x")
        client.recv()
        started = time.monotonic()
        client.socket.shutdown(socket.SHUT_RDWR)
        assert echo.done.wait(WAIT_S)
        assert time.monotonic() - started < SOON_S
    assert echo.codes[0] in (1000, 1001)


def test_a_refusal_of_the_backend_reaches_the_client_and_a_redirect_is_not_followed(echo: Echo) -> None:
    with running(bridging(echo.url)) as gateway:
        with pytest.raises(InvalidStatus) as refused, opened(gateway, "/forbidden"):
            pass
        response = refused.value.response
        assert (response.status_code, response.body, response.headers["x-why"]) == (403, b"no", "no key")
        answer = gateway.send(encode("GET", "/moved", HANDSHAKE))
        assert (answer.status, answer.values(b"location")) == (307, [b"/elsewhere"])
    assert echo.requests == []


def test_routes_that_do_not_ask_for_it_answer_501_and_limits_hold(echo: Echo) -> None:
    with running(one_route(echo.url)) as gateway:
        assert gateway.send(encode("GET", "/", HANDSHAKE)).code == "upgrade_not_supported"
    with running(with_limits(bridging(echo.url), "1/minute")) as gateway:
        with opened(gateway) as client:
            client.send("x")
            assert client.recv() == "x"
        with pytest.raises(InvalidStatus) as refused, opened(gateway):
            pass
        response = refused.value.response
        assert response.status_code == 429
        assert int(response.headers["retry-after"]) >= 1
        assert response.headers["content-type"] == "application/problem+json"
    with running(bridging(echo.url, path="/ws")) as gateway:
        assert gateway.send(encode("GET", "/other", HANDSHAKE)).code == "route_not_found"
        others = [(name, b"h2c" if name == b"Upgrade" else value) for name, value in HANDSHAKE]
        assert gateway.send(encode("GET", "/ws", others)).status == 426, "another offer is dropped, not bridged"


@pytest.mark.usefixtures("each_parser")
def test_a_handshake_that_is_none_is_refused_in_words_and_asks_no_backend(echo: Echo) -> None:
    def without(name: bytes, *instead: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        return [*(field for field in HANDSHAKE if field[0] != name), *instead]

    version, key = b"Sec-WebSocket-Version", b"Sec-WebSocket-Key"
    with running(bridging(echo.url)) as gateway:
        for fields in (without(version), without(version, (version, b"8"))):
            answer = gateway.send(encode("GET", "/", fields))
            assert (answer.status, answer.code) == (426, "websocket_version")
            assert answer.values(b"sec-websocket-version") == [b"13"]
            assert answer.values(b"upgrade") == [b"websocket"]
            assert b"upgrade" in answer.values(b"connection")
        odd = (b"Sec-WebSocket-Protocol", b"one two")
        for broken in (without(key), without(key, (key, b"short")), [*HANDSHAKE, HANDSHAKE[2]], [*HANDSHAKE, odd]):
            assert gateway.send(encode("GET", "/", broken)).code == "bad_request"
        assert gateway.send(encode("GET", "/", HANDSHAKE, b"hello")).code == "bad_request"
        assert gateway.send(encode("POST", "/", HANDSHAKE, b""), "POST").code == "bad_request"
        assert echo.requests == []
        old = encode("GET", "/", HANDSHAKE).replace(b"HTTP/1.1", b"HTTP/1.0")
        assert gateway.send(old).status == 426, "its Upgrade is not seen: served like any other request"


@pytest.mark.usefixtures("each_parser")
@pytest.mark.parametrize(
    "more",
    [[], [(b"Cookie", b"a" * 12_000)], [(b"X-%d" % number, b"") for number in range(200)], [(b"Origin", b"a")] * 2],
)
def test_a_handshake_reaches_the_backend_as_it_came_within_the_bounds_of_any_request(
    more: list[tuple[bytes, bytes]],
) -> None:
    target = b"//a/%2F;v=1|{}?"
    with Backend(answering(plain())) as backend, running(bridging(backend.url)) as gateway:
        answer = gateway.send(encode("GET", target, [*HANDSHAKE, *more]))
        assert (answer.status, answer.body) == (200, b"ok"), "it declined in its own words"
        (request,) = backend.requests
        assert request.target == target
        assert [field for field in request.fields if field[0] in {name.lower() for name, _ in more}] == [
            (name.lower(), value) for name, value in more
        ]


@pytest.mark.usefixtures("each_parser")
def test_a_handshake_on_the_heels_of_a_request_takes_nothing_from_its_answer() -> None:
    with Backend(answering(plain(b"first"))) as backend:
        with running(bridging(backend.url)) as gateway, gateway.client() as client:
            client.send(encode("GET", "/one") + encode("GET", "/two", HANDSHAKE))
            assert client.read().body == b"first"
            # The one parser stops at the end of a request, the other has read on: then nothing else can be granted.
            assert client.read().status in (200, 501)
        assert backend.requests[0].head.startswith(b"GET /one ")


def test_a_backend_that_is_not_there_or_speaks_no_websocket_is_a_problem(echo: Echo) -> None:
    with Backend(answering(plain())) as gone:
        url = gone.url
        with running(bridging(url)) as gateway:
            answer = gateway.send(encode("GET", "/", HANDSHAKE))
            assert (answer.status, answer.body) == (200, b"ok"), "it declined in its own words"
    with running(bridging(url)) as gateway:
        assert gateway.send(encode("GET", "/", HANDSHAKE)).code == "backend_unreachable"
    with running(bridging(url, fallback=True)) as gateway:
        assert gateway.send(encode("GET", "/", HANDSHAKE)).code == "backend_unreachable"
    settings = bridging(url, fallback=True)
    with running(with_backend(settings, "onprem", servers=(echo.url,))) as gateway, opened(gateway) as client:
        client.send("x")
        assert client.recv() == "x"
    with Backend(answering(b"nonsense\r\n\r\n")) as odd, running(bridging(odd.url)) as gateway:
        assert gateway.send(encode("GET", "/", HANDSHAKE)).code == "backend_protocol_error"


def test_a_client_that_leaves_during_the_handshake_costs_the_backend_nothing_more() -> None:
    def silent(peer: Peer) -> None:
        peer.read_request()
        peer.wait_closed()

    with Backend(silent) as backend, running(bridging(backend.url)) as gateway:
        client = gateway.client()
        client.send(encode("GET", "/", HANDSHAKE))
        assert backend.wait_requests(1)
        started = time.monotonic()
        client.reset()
        assert backend.wait_for(lambda: backend.open_connections == 0)
        assert time.monotonic() - started < SOON_S
        wait_for(metric(gateway, 'outcome="gone"'))


def test_a_backend_that_does_not_answer_the_handshake_is_a_504() -> None:
    def silent(peer: Peer) -> None:
        peer.read_request()
        peer.wait_closed()

    with Backend(silent) as backend:
        settings = with_backend(bridging(backend.url), "cloud", connect_timeout_s=0.2)
        with running(settings) as gateway:
            assert gateway.send(encode("GET", "/", HANDSHAKE)).code == "backend_timeout"


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x82\xff" + (16 * 1024 * 1024 + 1).to_bytes(8) + b"mask", 1009),  # a message over the limit is announced
        (b"\x83\x80mask", 1002),  # an opcode that does not exist
        (b"\x81\x81\x00\x00\x00\x00\xff", 1007),  # text that is not UTF-8
    ],
)
def test_a_frame_that_breaks_a_rule_ends_both_sides_with_a_code(echo: Echo, frame: bytes, code: int) -> None:
    with running(bridging(echo.url)) as gateway, gateway.client() as raw:
        raw.send(encode("GET", "/", HANDSHAKE))
        assert raw.read_line() == b"HTTP/1.1 101 Switching Protocols\r\n"
        while raw.read_line() != b"\r\n":
            pass
        raw.send(frame)
        close = raw.read_up_to(4)
        assert (close[0], int.from_bytes(close[2:4])) == (0x88, code)
        assert echo.done.wait(WAIT_S)
        wait_for(metric(gateway, 'crossfade_websockets_open{backend="cloud",route="all"} 0.0'))


@pytest.mark.anyio
async def test_a_reader_that_stops_stops_the_writer_and_nothing_is_lost(echo: Echo) -> None:
    with running(bridging(echo.url)) as gateway:
        async with connect_async(f"ws://127.0.0.1:{gateway.port}/", proxy=None, max_size=None, max_queue=1) as client:
            sent, stalled = 0, False
            while not stalled and sent < 100:  # nobody reads the echoes: after some megabytes nothing moves any more
                sent += 1
                try:
                    async with asyncio.timeout(1):
                        await client.send(b"x" * 1_000_000)
                except TimeoutError:
                    stalled = True
            assert stalled
            async with asyncio.timeout(60):
                for _ in range(sent):
                    assert len(await client.recv()) == 1_000_000
