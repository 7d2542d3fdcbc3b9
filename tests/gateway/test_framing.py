"""Answers without a body, expectations, upgrades, trailers and redirects, over real sockets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.client import Client, encode
from tests.gateway.harness import one_route, running, with_limits

pytestmark = pytest.mark.usefixtures("each_wire")
EXPECTING = [(b"Expect", b"100-continue"), (b"Content-Length", b"5")]
NOT_MODIFIED = b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 12345\r\n\r\n'


@pytest.mark.parametrize(
    ("method", "first", "length"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n", [b"12345"]),
        ("GET", NOT_MODIFIED, [b"12345"]),
        ("HEAD", NOT_MODIFIED, [b"12345"]),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", []),
        ("DELETE", b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", []),
    ],
)
def test_p10_answers_without_a_body_keep_the_connection_in_step(method: str, first: bytes, length: list[bytes]) -> None:
    with Backend(answering(first, plain(b"next"))) as backend, running(one_route(backend.url)) as gateway:
        with gateway.client() as client:
            answer = client.request(method, "/")
            assert answer.values(b"content-length") == length
            assert not answer.values(b"transfer-encoding")
            assert client.request("GET", "/").body == b"next"
        exchange = gateway.taps.wait(2)[0]
        assert backend.accepted == 1
    assert exchange.primary.failure is None
    assert exchange.primary.body is not None
    assert exchange.primary.body.size_bytes == 0


def test_p10_a_204_with_a_body_spoils_no_later_answer() -> None:
    faulty = b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello"
    with Backend(answering(faulty)) as backend, running(one_route(backend.url)) as gateway, gateway.client() as client:
        for _ in range(3):
            answer = client.request("POST", "/", body=b"")
            assert answer.status == 204
            assert not answer.values(b"content-length")


def test_p12_exactly_one_100_and_no_expect_at_the_backend() -> None:
    with Backend(answering(plain())) as backend, running(one_route(backend.url)) as gateway:
        with gateway.client() as client:
            client.send(encode("POST", "/", EXPECTING))
            assert client.read_line() == b"HTTP/1.1 100 Continue\r\n"
            assert client.read_line() == b"\r\n"
            client.send(b"hello")
            answer = client.read("POST")
        assert (answer.status, answer.interim) == (200, ())
        assert backend.requests[0].values(b"expect") == []
        assert backend.requests[0].body == b"hello"


def test_p12_a_refusal_comes_without_a_100() -> None:
    with Backend(answering(plain())) as backend:
        settings = one_route(backend.url, max_body_bytes=4)
        with running(settings) as gateway:
            answer = gateway.send(encode("POST", "/", EXPECTING), "POST")
            assert (answer.code, answer.status, answer.interim) == ("body_too_large", 413, ())
        with running(with_limits(one_route(backend.url), "1/minute")) as gateway:
            gateway.request("GET", "/")
            answer = gateway.send(encode("POST", "/", EXPECTING), "POST")
            assert (answer.code, answer.status, answer.interim) == ("rate_limited", 429, ())
        assert len(backend.requests) == 1


def test_p12_an_interim_answer_of_the_backend_is_not_final() -> None:
    raw = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + plain(b"final")
    with Backend(answering(raw)) as backend, running(one_route(backend.url)) as gateway:
        answer = gateway.request("POST", "/", body=b"hello")
    assert (answer.status, answer.body) == (200, b"final")


def test_p22_an_upgrade_is_refused_and_never_mirrored() -> None:
    fields = [(b"Connection", b"keep-alive, Upgrade"), (b"Upgrade", b"websocket"), (b"Sec-WebSocket-Key", b"eA==")]
    with Backend(answering(plain())) as backend, running(one_route(backend.url)) as gateway:
        with gateway.client() as client:
            client.send(encode("GET", "/", fields) + encode("GET", "/smuggled"))
            assert client.read().code == "upgrade_not_supported"
            assert client.at_end()
        assert gateway.request("GET", "/", [(b"Connection", b"X-Upgrade-Foo"), (b"Upgrade", b"foo")]).status == 200
        assert len(gateway.taps.wait(1)) == 1
        assert len(backend.requests) == 1


H2C = [(b"Connection", b"Upgrade, HTTP2-Settings"), (b"Upgrade", b"h2c"), (b"HTTP2-Settings", b"AAMAAABk")]


@pytest.mark.parametrize(
    ("framing", "wire", "body"),
    [
        (None, b"", b""),
        ((b"Content-Length", b"5"), b"hello", b"hello"),
        ((b"Transfer-Encoding", b"chunked"), b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    ],
)
@pytest.mark.parametrize("together", [True, False])
def test_p22_after_an_upgrade_that_is_not_taken_every_byte_is_read_as_what_it_is(
    framing: tuple[bytes, bytes] | None, wire: bytes, body: bytes, together: bool
) -> None:
    first = encode("POST", "/1", H2C + ([framing] if framing is not None else []))
    hidden = encode("GET", "/hidden")
    second = encode("POST", "/2", [(b"Content-Length", b"%d" % len(hidden))])
    pieces = [first, wire, second, hidden, encode("GET", "/3")]
    with Backend(answering(plain())) as backend, running(one_route(backend.url)) as gateway, gateway.client() as client:
        if together:
            client.send(b"".join(pieces))
            statuses = [client.read().status for _ in range(3)]
        else:
            for piece in pieces[:2]:
                client.send(piece)
            statuses = [client.read().status]
            client.send(second)
            assert backend.wait_accepted(1)
            client.send(hidden)
            statuses.append(client.read().status)
            client.send(pieces[4])
            statuses.append(client.read().status)
        assert statuses == [200, 200, 200]
        assert [(seen.target, seen.body) for seen in backend.requests] == [(b"/1", body), (b"/2", hidden), (b"/3", b"")]


def test_p22_trailers_are_dropped_with_their_announcement() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
    with (
        Backend(answering(head + b"5\r\nhello\r\n0\r\nX-T: v\r\n\r\n")) as backend,
        running(one_route(backend.url)) as gateway,
        gateway.client() as client,
    ):
        for _ in range(2):
            answer = client.request("GET", "/")
            assert answer.body == b"hello"
            assert not answer.values(b"trailer")
            assert not answer.values(b"x-t")


def test_p22_trailers_of_a_request_do_not_become_its_headers() -> None:
    data = encode("POST", "/", [(b"Transfer-Encoding", b"chunked"), (b"Trailer", b"Authorization")])
    with Backend(answering(plain())) as backend, running(one_route(backend.url)) as gateway:
        assert gateway.send(data + b"0\r\nAuthorization: smuggled\r\n\r\n", "POST").status == 200
        request = backend.requests[0]
        exchange = gateway.taps.wait()[0]
    assert not request.values(b"authorization")
    assert not request.values(b"trailer")
    assert not [name for name, _ in exchange.request.headers if name == b"authorization"]


def test_p22_redirects_are_passed_through() -> None:
    raw = plain(b"", status=b"307 Temporary Redirect", fields=b"Location: http://internal:1/x?y\r\n")
    with Backend(answering(raw)) as backend, running(one_route(backend.url)) as gateway:
        answer = gateway.request("GET", "/")
        assert len(backend.requests) == 1
    assert (answer.status, answer.values(b"location")) == (307, [b"http://internal:1/x?y"])


def test_an_undeclared_body_over_the_limit_is_cut_off() -> None:
    def script(peer: Peer) -> None:
        peer.wait_closed()

    with Backend(script) as backend, running(one_route(backend.url, max_body_bytes=1000)) as gateway:
        with gateway.client() as client:
            client.send(encode("POST", "/", [(b"Transfer-Encoding", b"chunked")]))
            client.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
            client.send(b"1\r\nx\r\n")
            assert client.read("POST").code == "body_too_large"
            assert client.at_end()
        exchange = gateway.taps.wait()[0]
        assert backend.wait_for(lambda: backend.open_connections == 0)
    assert exchange.skipped == "body_too_large"


def test_a_wrong_method_names_the_right_ones_and_an_unknown_path_none() -> None:
    with Backend(answering(plain())) as backend:
        settings = one_route(backend.url, path="/only", methods=frozenset({"POST", "GET"}))
        with running(settings) as gateway:
            answer = gateway.request("PUT", "/only")
            assert (answer.code, answer.values(b"allow")) == ("method_not_allowed", [b"GET, POST"])
            assert gateway.request("GET", "/other").code == "route_not_found"
            assert gateway.request("GET", "/-/other").code == "route_not_found"
            with gateway.client() as client:  # a problem for HEAD has no body, and the connection goes on
                assert client.request("HEAD", "/other").status == 404
                assert client.request("GET", "/only").status == 200
            assert gateway.status()["routes"]["all"]["account"]["received"] == 1


def test_a_client_may_pipeline() -> None:
    with (
        Backend(answering(plain(b"1"), plain(b"2"), plain(b"3"))) as backend,
        running(one_route(backend.url)) as gateway,
        Client(gateway.port) as client,
    ):
        client.send(encode("GET", "/a") + encode("POST", "/b", body=b"x") + encode("GET", "/c"))
        assert [client.read().body for _ in range(3)] == [b"1", b"2", b"3"]
        assert [request.target for request in backend.requests] == [b"/a", b"/b", b"/c"]


def test_http_1_0_without_a_host_is_served() -> None:
    with Backend(answering(plain())) as backend, running(one_route(backend.url)) as gateway:
        with gateway.client() as client:
            client.send(b"GET /old HTTP/1.0\r\n\r\n")
            assert client.read().body == b"ok"
            assert client.at_end()
        assert backend.requests[0].line == b"GET /old HTTP/1.1"


def test_several_servers_all_get_requests() -> None:
    with Backend(answering(plain())) as first, Backend(answering(plain())) as second:
        settings = one_route(first.url)
        cloud = replace(settings.backends["cloud"], servers=(first.url, second.url))
        with running(replace(settings, backends={**settings.backends, "cloud": cloud})) as gateway:
            for _ in range(40):  # all on one side has a chance of one in 10^11
                assert gateway.request("GET", "/").status == 200
        assert min(len(first.requests), len(second.requests)) > 0
