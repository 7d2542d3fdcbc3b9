"""The bounds on a request's head, over real sockets."""

from __future__ import annotations

import select
import socket
import threading
import time
from contextlib import ExitStack, suppress

import pytest

from gateway.head import HeadLimits
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.client import encode
from tests.gateway.harness import Running, one_route, running, with_backend

pytestmark = pytest.mark.usefixtures("each_parser")
SHORT = HeadLimits(timeout_s=0.3)


def test_p21_a_twelve_kib_cookie_passes(gateway: Running, backend: Backend) -> None:
    cookie = b"a=" + b"x" * 12 * 1024
    assert gateway.request("GET", "/", [(b"Cookie", cookie)]).status == 200
    assert backend.requests[0].values(b"cookie") == [cookie]


def test_p21_a_huge_field_in_small_pieces_is_refused_before_it_is_whole(gateway: Running, backend: Backend) -> None:
    with gateway.client() as client:
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nX-Huge: ")
        sent = 0
        try:
            for _ in range(200):
                client.send(b"x" * 1024)
                sent += 1024
        except ConnectionError:
            pass  # refused and closed while it was still being sent, which is the point
        assert client.read().code == "headers_too_large"
        assert client.at_end()
    assert backend.requests == []


def test_p21_two_thousand_fields_are_refused(gateway: Running, backend: Backend) -> None:
    fields = [(b"X-%d" % number, b"1") for number in range(2000)]
    with gateway.client() as client:
        client.send(encode("GET", "/", fields))
        answer = client.read()
        assert (answer.status, answer.code) == (431, "headers_too_large")
        assert client.at_end()
    assert backend.requests == []


def test_a_gateway_ends_in_order_while_a_refused_client_stays(backend: Backend) -> None:
    fields = [(b"X-%d" % number, b"1") for number in range(2000)]
    with ExitStack() as staying:
        with running(one_route(backend.url)) as gateway:
            client = staying.enter_context(gateway.client())
            client.send(encode("GET", "/", fields))
            assert client.read().status == 431
            assert gateway.request("GET", "/").status == 200
        assert client.at_end()


def test_p21_a_head_of_many_fields_over_64_kib_is_refused(gateway: Running) -> None:
    fields = [(b"X-%d" % number, b"x" * 1000) for number in range(80)]
    assert gateway.send(encode("GET", "/", fields)).code == "headers_too_large"


def test_p21_endless_trailers_are_refused(gateway: Running) -> None:
    with gateway.client() as client:
        client.send(encode("GET", "/", [(b"Transfer-Encoding", b"chunked")]) + b"0\r\nX-Huge: ")
        client.send(b"x" * 100 * 1024)
        assert client.read().code == "headers_too_large"


@pytest.mark.parametrize(("size", "status"), [(16 * 1024, 200), (16 * 1024 + 1, 414)])
def test_p21_a_target_may_have_sixteen_kib(gateway: Running, size: int, status: int) -> None:
    assert gateway.send(encode("GET", b"/" + b"x" * (size - 1))).status == status


@pytest.mark.parametrize(("beyond", "status"), [(0, 200), (1, 431)])
def test_p21_a_long_target_takes_nothing_from_the_fields(gateway: Running, beyond: int, status: int) -> None:
    target, name = b"/" + b"x" * (16 * 1024 - 1), b"X-Large"
    value = b"y" * (64 * 1024 - len(b"Host: a\r\n") - len(name + b": \r\n") + beyond)
    with gateway.client() as client:
        client.send(b"GET %b HTTP/1.1\r\nHost: a\r\n%b:%b\r\n\r\n" % (target, name, value))
        assert client.read().status == status


def test_p21_slow_heads_are_closed_and_delay_nobody(backend: Backend) -> None:
    limits = HeadLimits(timeout_s=1.5)
    with running(one_route(backend.url), head_limits=limits) as gateway:
        slow = [gateway.client() for _ in range(50)]
        for client in slow:
            client.send(b"GET / HT")
        started = time.monotonic()
        assert gateway.request("GET", "/").status == 200
        assert time.monotonic() - started < limits.timeout_s
        for client in slow:
            assert client.read().code == "head_timeout"
            assert client.at_end()
            client.close()
        assert time.monotonic() - started < 10 * limits.timeout_s


def test_p21_a_silent_connection_and_one_of_empty_lines_are_closed(backend: Backend) -> None:
    with running(one_route(backend.url), head_limits=SHORT) as gateway:
        with gateway.client() as client:
            assert client.read().code == "first_byte_timeout"
        with gateway.client() as client:
            assert client.request("GET", "/").status == 200
            gateway.taps.wait()  # the answer is done with, and uvicorn's own idle timer runs
            client.send(b"\r\n")
            assert client.read().code == "first_byte_timeout"


def test_p21_an_idle_connection_is_no_slow_head(backend: Backend) -> None:
    with running(one_route(backend.url), head_limits=SHORT) as gateway, gateway.client() as client:
        assert client.request("GET", "/").status == 200
        time.sleep(SHORT.timeout_s * 1.5)  # the absence of something can only be waited for
        assert client.request("GET", "/").status == 200


def test_p21_a_huge_field_of_a_backend_is_a_502() -> None:
    huge = plain(fields=b"X-Huge: " + b"x" * 200 * 1024 + b"\r\n")
    with Backend(answering(huge)) as backend, running(one_route(backend.url)) as gateway:
        assert gateway.request("GET", "/").code == "backend_protocol_error"


@pytest.mark.parametrize(
    "data",
    [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", b"GET /\xe9 HTTP/1.1\r\n\r\n"],
)
def test_what_is_no_http_is_a_400_problem(gateway: Running, data: bytes) -> None:
    assert gateway.send(data).code == "bad_request"


def test_a_broken_body_is_answered_once_and_closes(gateway: Running) -> None:
    with gateway.client() as client:
        client.send(encode("POST", "/", [(b"Transfer-Encoding", b"chunked")]) + b"zz\r\n")
        assert client.read("POST").code == "bad_request"
        assert client.at_end()


def test_a_broken_second_request_is_refused_after_the_answer_to_the_first(backend: Backend) -> None:
    with running(one_route(backend.url)) as gateway, gateway.client() as client:
        client.send(encode("GET", "/") + b"nonsense\r\n\r\n")
        assert client.read().body == b"ok"
        assert client.read().code == "bad_request"
        assert client.at_end()


def test_a_slow_second_head_is_not_refused_into_the_first_answer() -> None:
    go_on = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
        go_on.wait(30)
        peer.send(b"cd")

    with (
        Backend(script) as backend,
        running(one_route(backend.url), head_limits=SHORT) as gateway,
        gateway.client() as client,
    ):
        client.send(encode("GET", "/") + b"GET / HT")
        client.read_head()
        assert client.read_up_to(2) == b"ab"
        time.sleep(SHORT.timeout_s * 1.5)  # the second head's time runs out in the middle of the first answer
        go_on.set()
        assert client.read_up_to(2) == b"cd"
        assert client.read().code == "head_timeout"
        assert client.at_end()


def test_bytes_one_by_one_are_read_like_all_at_once(gateway: Running, backend: Backend) -> None:
    data = encode("POST", "/a?b", [(b"X-A", b"1"), (b"X-A", b"2"), (b"Content-Type", b"x/y")], b"hello")
    assert gateway.send(data, "POST").status == 200
    with gateway.client() as client:
        for byte in data:
            client.send(bytes((byte,)))
        assert client.read("POST").status == 200
    first, second = ([field for field in request.fields if field[0] != b"x-request-id"] for request in backend.requests)
    assert first == second
    assert backend.requests[1].body == b"hello"


def test_a_head_that_came_in_time_is_not_late_because_we_did_not_read_it() -> None:
    def slow(peer: Peer) -> None:
        while peer.read_request() is not None:
            time.sleep(SHORT.timeout_s * 1.5)
            peer.send(plain())

    third = encode("GET", "/3")
    with (
        Backend(slow) as backend,
        running(one_route(backend.url), head_limits=SHORT) as gateway,
        gateway.client() as client,
    ):
        client.send(encode("GET", "/1") + encode("GET", "/2") + third[:20])
        assert backend.wait_requests(1)
        client.send(third[20:])
        assert [client.read().status for _ in range(3)] == [200, 200, 200]


@pytest.mark.parametrize("rest", [b"x", b"x" * 99_999])
def test_after_an_answer_that_came_early_the_connection_ends_whatever_comes_of_the_body(rest: bytes) -> None:
    def early(peer: Peer) -> None:
        peer.read_head()
        peer.send(plain())
        peer.wait_closed()

    with Backend(early) as backend, running(one_route(backend.url)) as gateway, gateway.client() as client:
        client.send(encode("POST", "/", [(b"Content-Length", b"100000")]) + b"x")
        assert client.read("POST").body == b"ok"
        client.send(rest)
        assert client.at_end()


@pytest.mark.parametrize("then", [b"", encode("GET", "/-/none")])
def test_a_client_that_takes_nothing_of_a_whole_answer_loses_its_connection(then: bytes) -> None:
    size = 8_000_000
    limits = HeadLimits(unread_s=0.2)
    with Backend(answering(plain(b"x" * size))) as backend:
        with running(one_route(backend.url), head_limits=limits) as gateway, gateway.client() as client:
            client.send(encode("GET", "/", [] if then else [(b"Connection", b"close")]) + then)
            poll = select.poll()
            poll.register(client.sock, 0)  # the kernel tells of a break without anybody reading
            assert poll.poll(30_000)
        assert gateway.taps.wait(1)


def test_a_client_that_reads_slowly_keeps_its_connection() -> None:
    size = 8_000_000
    limits = HeadLimits(unread_s=1.5)
    with (
        Backend(answering(plain(b"x" * size))) as backend,
        running(one_route(backend.url), head_limits=limits) as gateway,
        gateway.client() as client,
    ):
        client.send(encode("GET", "/", [(b"Connection", b"close")]))
        client.read_head()
        for _ in range(8):
            assert len(client.read_up_to(size // 8)) == size // 8
            time.sleep(0.25)
        assert client.at_end()


def test_clients_that_leave_a_pipeline_or_an_http_1_0_answer_are_no_errors_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def stream(peer: Peer) -> None:
        if b"/stream" in (peer.read_head() or b""):
            peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        peer.wait_closed()

    with Backend(stream) as backend, running(one_route(backend.url)) as gateway:
        with gateway.client() as client:
            client.send(encode("GET", "/1") + encode("GET", "/2"))
            assert backend.wait_accepted(1)
        gateway.taps.wait(1)
        with gateway.client() as client:
            client.send(b"GET /stream HTTP/1.0\r\n\r\n")
            client.read_head()
            client.reset()
        gateway.taps.wait(2)
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("size", range(2_600_000, 3_400_001, 200_000))
def test_p16_an_http_1_0_answer_whose_last_piece_is_not_taken_does_not_end_in_order(size: int) -> None:
    def script(peer: Peer) -> None:
        peer.read_head()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n" % (size, b"x" * size))
        peer.send(b"3\r\nend\r\n0\r\n\r\n")
        peer.wait_closed()

    with (
        Backend(script) as backend,
        running(with_backend(one_route(backend.url), "cloud", timeout_s=0.2)) as gateway,
        socket.socket() as sock,
    ):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", gateway.port))
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        gateway.taps.wait(1)
        body = b""
        with suppress(ConnectionResetError):
            while data := sock.recv(65536):
                body += data
            assert body.endswith(b"end")
