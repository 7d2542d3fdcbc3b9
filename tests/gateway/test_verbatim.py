"""What crosses the gateway crosses it byte for byte, over real sockets, in both directions."""

from __future__ import annotations

import gzip
import hashlib

import pytest

from gateway.settings import Credential
from tests.fakes.backend import Backend, Peer, RawRequest, answering, plain
from tests.gateway.client import encode
from tests.gateway.harness import Running, one_route, running, with_backend

pytestmark = pytest.mark.usefixtures("each_wire")
HOP_BY_HOP = {b"connection", b"keep-alive", b"te", b"proxy-authorization", b"proxy-connection", b"upgrade", b"x-hop"}


def ask(gateway: Running, backend: Backend, data: bytes, method: str = "GET") -> RawRequest:
    """Send raw bytes through, expect a 200, and return what the backend got."""
    assert gateway.send(data, method).status == 200
    return backend.requests[-1]


def test_p01_hop_by_hop_fields_stay_on_their_hop(gateway: Running, backend: Backend) -> None:
    fields = [
        (b"Connection", b"close, X-Hop"), (b"X-Hop", b"1"), (b"Keep-Alive", b"timeout=5"), (b"TE", b"gzip"),
        (b"Proxy-Authorization", b"Basic eA=="), (b"Proxy-Connection", b"keep-alive"), (b"Upgrade", b"h2c"),
        (b"X-Ordinary", b"stays"),
    ]  # fmt: skip
    for _ in range(2):
        assert gateway.request("GET", "/a", fields).status == 200
    names = {name for name, _ in backend.requests[0].fields}
    assert not names & HOP_BY_HOP
    assert backend.requests[0].values(b"x-ordinary") == [b"stays"]
    assert backend.accepted == 1, "a client's close must not close the pooled connection"


def test_p01_hop_by_hop_fields_of_the_answer_stay_on_their_hop() -> None:
    fields = b"Connection: X-Resp\r\nX-Resp: 1\r\nKeep-Alive: timeout=9\r\nProxy-Authenticate: Basic\r\n"
    raw = plain(fields=fields + b"X-Ordinary: stays\r\n")
    with Backend(answering(raw)) as backend, running(one_route(backend.url)) as gateway:
        answer = gateway.request("GET", "/a")
    names = {name for name, _ in answer.fields}
    assert not names & {b"connection", b"x-resp", b"keep-alive", b"proxy-authenticate"}
    assert answer.values(b"x-ordinary") == [b"stays"]


def test_p01_connection_cannot_nominate_the_framing_away(gateway: Running, backend: Backend) -> None:
    fields = [(b"Connection", b"Content-Length, Host"), (b"X-D", b"1")]
    assert gateway.request("POST", "/a", fields, b"hello").status == 200
    assert backend.requests[0].body == b"hello"


@pytest.mark.parametrize("status", [b"200 OK", b"302 Found", b"400 Bad Request"])
def test_p03_repeated_fields_stay_separate(status: bytes) -> None:
    cookies = [b"a=1; Expires=Wed, 21 Oct 2099 07:28:00 GMT", b"b=2"]
    repeated = [(b"set-cookie", cookie) for cookie in cookies]
    repeated += [(b"www-authenticate", b"Basic"), (b"www-authenticate", b'Digest realm="x, y"')]
    repeated += [(b"link", b"</a>; rel=x"), (b"link", b"</b>; rel=y")]
    lines = b"".join(b"%b: %b\r\n" % field for field in repeated)
    with Backend(answering(plain(status=status, fields=lines))) as backend, running(one_route(backend.url)) as gateway:
        answer = gateway.request("GET", "/", [(b"X-D", b"1"), (b"X-D", b"2")])
        assert backend.requests[0].values(b"x-d") == [b"1", b"2"]
    assert [field for field in answer.fields if field[0] in {name for name, _ in repeated}] == repeated


def test_p03_a_cookie_is_shared_with_nobody() -> None:
    with Backend(answering(plain(fields=b"Set-Cookie: a=1; Path=/\r\n"))) as backend:
        with running(one_route(backend.url)) as gateway, gateway.client() as client:
            for _ in range(2):
                assert client.request("GET", "/").values(b"set-cookie") == [b"a=1; Path=/"]
        assert [request.values(b"cookie") for request in backend.requests] == [[], []]


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("coding", [b"gzip", b"br", b"zstd", b"gzip, br", b""])
def test_p05_compressed_answers_pass_undecoded(coding: bytes, chunked: bool) -> None:
    body = gzip.compress(b"hello world" * 1000)
    fields = b"Content-Encoding: %b\r\n" % coding if coding else b""
    raw = plain(body, fields=fields)
    if chunked:
        framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n%b\r\n%b" % (fields, framed)
    with Backend(answering(raw)) as backend, running(one_route(backend.url)) as gateway:
        answer = gateway.request("GET", "/", [(b"Accept-Encoding", b"gzip")])
    assert answer.body == body
    assert answer.values(b"content-encoding") == ([coding] if coding else [])
    assert answer.values(b"content-length") == ([] if chunked else [b"%d" % len(body)])


@pytest.mark.parametrize(
    "target",
    [
        b"/a%2Fb/%252e%252e/c",
        b"/%C3%A9/%FF",
        b"/x%20y%3Fz%23w",
        b"/a;v=1,2",
        b"/a%00b",
        b"/%0a%0D",
        b"//a//",
        b"/x/../y/./z'|^",
    ],
)
def test_p07_path_encoding_is_kept(gateway: Running, backend: Backend, target: bytes) -> None:
    assert ask(gateway, backend, encode("GET", target)).target == target
    assert gateway.taps.wait()[0].request.target == target


@pytest.mark.parametrize(
    "target",
    [b"/q?b=2&a=1&b=3&bare&e=&sig=%E9%FF&s=1;2&h=hello%20world&p=a+b&u=x%2Fy", b"/q", b"/q?", b"/q??", b"/q?a=/../b"],
)
def test_p08_query_string_verbatim(gateway: Running, backend: Backend, target: bytes) -> None:
    assert ask(gateway, backend, encode("GET", target)).target == target
    assert gateway.taps.wait()[0].request.target == target


def test_p08_an_absolute_target_is_reduced_to_its_path(gateway: Running, backend: Backend) -> None:
    request = ask(gateway, backend, encode("GET", b"http://elsewhere.test/q?a=%20"))
    assert request.target == b"/q?a=%20"
    assert request.values(b"host") == [b"127.0.0.1:%d" % backend.port]


def test_a_prefix_of_the_server_goes_before_the_target(backend: Backend) -> None:
    with running(one_route(backend.url + "/prefix")) as gateway:
        assert gateway.request("GET", "/a%2Fb?").status == 200
    assert backend.requests[0].target == b"/prefix/a%2Fb?"


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "OPTIONS"])
def test_p11_no_body_means_no_framing(gateway: Running, backend: Backend, method: str) -> None:
    request = ask(gateway, backend, encode(method, "/"), method)
    assert not request.values(b"transfer-encoding")
    assert not request.values(b"content-length")
    assert request.body == b""


def test_p11_a_declared_empty_body_stays_declared(gateway: Running, backend: Backend) -> None:
    request = ask(gateway, backend, encode("POST", "/", body=b""), "POST")
    assert request.values(b"content-length") == [b"0"]
    assert not request.values(b"transfer-encoding")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_p11_a_chunked_body_arrives_whole(gateway: Running, backend: Backend, method: str) -> None:
    chunked = b"2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
    request = ask(gateway, backend, encode(method, "/", [(b"Transfer-Encoding", b"chunked")]) + chunked, method)
    assert request.body == b"hello"
    assert request.values(b"transfer-encoding") == [b"chunked"]
    assert not request.values(b"content-length")


def test_p11_a_known_length_stays_a_length(gateway: Running, backend: Backend) -> None:
    request = ask(gateway, backend, encode("POST", "/", body=b"hello"), "POST")
    assert request.body == b"hello"
    assert request.values(b"content-length") == [b"5"]
    assert not request.values(b"transfer-encoding")


def test_p11_a_conflict_of_framings_reaches_no_backend(gateway: Running, backend: Backend) -> None:
    fields = [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")]
    assert gateway.send(encode("POST", "/", fields) + b"0\r\n\r\n").code == "bad_request"
    assert gateway.send(encode("POST", "/", [(b"Transfer-Encoding", b"gzip, chunked")])).code == "coding_not_supported"
    assert backend.requests == []


def test_p19_multipart_body_is_byte_exact(gateway: Running, backend: Backend) -> None:
    part = b"--a b:c/9\r\nContent-Disposition: form-data; name=\"image\"; filename*=UTF-8''%E5%86%99.png\r\n\r\n"
    body = b"preamble\r\n" + part + b"a\nb\r\n" + part + bytes(range(256)) * 12 * 1024 + b"\r\n--a b:c/9--\r\nepilogue"
    media_type = b'multipart/form-data; boundary="a b:c/9"'
    assert gateway.request("POST", "/", [(b"Content-Type", media_type)], body).status == 200
    assert backend.requests[0].body == body
    assert backend.requests[0].values(b"content-type") == [media_type]
    kept = gateway.taps.wait()[0].request.body
    assert kept.sha256 == hashlib.sha256(body).hexdigest()
    assert b"".join(kept) == body


def test_p20_header_bytes_outside_ascii_pass_unchanged() -> None:
    fields = [
        (b"x-l", b"caf\xe9"), (b"x-u", b"\xe4\xbd\xa0"),
        (b"content-disposition", b'attachment; filename="\xe5\x86\x99.png"'),
    ]  # fmt: skip
    lines = b"".join(b"%b: %b\r\n" % field for field in fields)
    with Backend(answering(plain(fields=lines))) as backend, running(one_route(backend.url)) as gateway:
        answer = gateway.request("GET", "/", fields)
        assert [field for field in backend.requests[0].fields if field in fields] == fields
        exchange = gateway.taps.wait()[0]
    assert [field for field in answer.fields if field in fields] == fields
    assert set(fields) <= set(exchange.request.headers)


def test_nothing_is_invented(gateway: Running, backend: Backend) -> None:
    answer = gateway.request("GET", "/")
    assert {name for name, _ in answer.fields} == {b"content-length", b"date", b"x-request-id"}
    request = backend.requests[0]
    assert {name for name, _ in request.fields} == {b"host", b"x-request-id"}
    assert request.values(b"host") == [b"127.0.0.1:%d" % backend.port]


def test_what_a_backend_may_take_for_framing_or_our_id_stays_here(gateway: Running, backend: Backend) -> None:
    aliases = [(b"Transfer_Encoding", b"chunked"), (b"Content_Length", b"0"), (b"X_Request-Id", b"mine")]
    gateway.request("POST", "/", [*aliases, (b"X_Other", b"kept")], b"hello")
    (request,) = backend.requests
    assert [(name, value) for name, value in request.fields if b"_" in name] == [(b"x_other", b"kept")]
    assert request.body == b"hello"


def test_the_request_id_is_the_gateways_own(gateway: Running, backend: Backend) -> None:
    answer = gateway.request("GET", "/", [(b"X-Request-Id", b"mine")])
    exchange = gateway.taps.wait()[0]
    assert backend.requests[0].values(b"x-request-id") == [exchange.id.encode()]
    assert answer.values(b"x-request-id") == [exchange.id.encode()]
    assert exchange.client_request_id == "mine"


def test_a_date_is_added_only_where_there_is_none(gateway: Running) -> None:
    assert len(gateway.request("GET", "/").values(b"date")) == 1
    dated = b"Date: Wed, 21 Oct 2015 07:28:00 GMT\r\n"
    with Backend(answering(plain(fields=dated))) as backend, running(one_route(backend.url)) as other:
        assert other.request("GET", "/").values(b"date") == [b"Wed, 21 Oct 2015 07:28:00 GMT"]


def test_a_backend_with_a_credential_never_gets_the_clients(backend: Backend) -> None:
    fields = [(b"Authorization", b"Bearer client"), (b"X-Api-Key", b"client"), (b"X_Api-Key", b"client")]
    settings = one_route(backend.url)
    with running(settings) as gateway:
        gateway.request("GET", "/", fields)
    with running(with_backend(settings, "cloud", credential=Credential("X-Api-Key", "ours"))) as gateway:
        gateway.request("GET", "/", fields)
    assert b"client" not in b"".join(value for _, value in backend.requests[1].fields)
    assert backend.requests[0].values(b"authorization") == [b"Bearer client"]
    assert backend.requests[1].values(b"authorization") == []
    assert backend.requests[1].values(b"x-api-key") == [b"ours"]


def test_the_exchange_holds_what_crossed(gateway: Running, backend: Backend) -> None:
    gateway.request("POST", "/path?x=1", [(b"Content-Type", b"text/plain"), (b"Cookie", b"a=1")], b"question")
    exchange = gateway.taps.wait()[0]
    assert (exchange.route, exchange.request.method, exchange.request.target) == ("all", "POST", b"/path?x=1")
    assert (b"cookie", b"a=1") in exchange.request.headers
    assert exchange.request.body.media_type == "text/plain"
    assert exchange.skipped is None
    primary = exchange.primary
    assert (primary.backend, primary.server, primary.status, primary.failure) == ("cloud", backend.url, 200, None)
    assert primary.body is not None
    assert b"".join(primary.body) == b"ok"
    assert (b"Content-Length", b"2") in primary.headers
    assert primary.first_byte_s is not None
    assert primary.total_s is not None
    assert 0 <= primary.first_byte_s <= primary.total_s


def test_a_large_answer_streams_through() -> None:
    block = bytes(range(256)) * 4096

    def script(peer: Peer) -> None:
        while peer.read_request() is not None:
            peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (len(block) * 8))
            for _ in range(8):
                peer.send(block)

    with Backend(script) as backend, running(one_route(backend.url)) as gateway:
        answer = gateway.request("GET", "/")
        body = gateway.taps.wait()[0].primary.body
    assert answer.body == block * 8
    assert body is not None
    assert body.sha256 == hashlib.sha256(answer.body).hexdigest()
