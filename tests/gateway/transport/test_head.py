"""Heads as bytes: what goes out is what was asked for, what comes in is believed only when it is unambiguous."""

from __future__ import annotations

import httpx
import pytest

from gateway.transport.head import Framing, decode_answer, encode_request

HOST = (b"Host", b"a.test")


def test_a_request_goes_out_as_it_is() -> None:
    fields = [HOST, (b"X-D", b"1"), (b"x-d", b""), (b"X-L", b"caf\xe9"), (b"Content-Length", b"5")]
    head = encode_request("POST", b"/a%2Fb?x=\xff&bare", fields)
    assert head.data == (
        b"POST /a%2Fb?x=\xff&bare HTTP/1.1\r\nHost: a.test\r\nX-D: 1\r\n"
        b"x-d: \r\nX-L: caf\xe9\r\nContent-Length: 5\r\n\r\n"
    )
    assert head.length == 5


def test_a_request_without_a_length_has_no_body_and_a_chunked_one_no_length() -> None:
    assert encode_request("GET", b"/", [HOST]).length == 0
    assert encode_request("POST", b"/", [HOST, (b"Transfer-Encoding", b"Chunked")]).length is None


@pytest.mark.parametrize(
    ("method", "target", "fields"),
    [
        ("GET /x", b"/", [HOST]),
        ("GET", b"/a b", [HOST]),
        ("GET", b"/a\r\nX: y", [HOST]),
        ("GET", b"", [HOST]),
        ("GET", b"/", []),
        ("GET", b"/", [HOST, HOST]),
        ("GET", b"/", [HOST, (b"X", b"a\r\nY: b")]),
        ("GET", b"/", [HOST, (b"X", b"a\nb")]),
        ("GET", b"/", [HOST, (b"X", b"a\x00b")]),
        ("GET", b"/", [HOST, (b"X ", b"a")]),
        ("GET", b"/", [HOST, (b"", b"a")]),
        ("GET", b"/", [HOST, (b"X: a\r\nY", b"b")]),
        ("POST", b"/", [HOST, (b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked")]),
        ("POST", b"/", [HOST, (b"Content-Length", b"5"), (b"Content-Length", b"5")]),
        ("POST", b"/", [HOST, (b"Content-Length", b"+5")]),
        ("POST", b"/", [HOST, (b"Content-Length", b"5, 5")]),
        ("POST", b"/", [HOST, (b"Transfer-Encoding", b"gzip, chunked")]),
        ("POST", b"/", [HOST, (b"Transfer-Encoding", b"chunked"), (b"Transfer-Encoding", b"chunked")]),
    ],
)
def test_a_request_that_could_be_read_in_two_ways_is_not_sent(
    method: str, target: bytes, fields: list[tuple[bytes, bytes]]
) -> None:
    with pytest.raises(httpx.LocalProtocolError):
        encode_request(method, target, fields)


def test_an_answers_fields_keep_their_bytes_and_order() -> None:
    head = decode_answer(
        b"HTTP/1.1 200 All right\r\nSet-Cookie: a=1\r\nset-cookie:b=2 \t\r\nX-L:\t caf\xe9\r\nX-E:\r\n"
        b"Content-Length: 3\r\n\r\n",
        "GET",
    )
    assert head.fields == [
        (b"Set-Cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"X-L", b"caf\xe9"), (b"X-E", b""),
        (b"Content-Length", b"3"),
    ]  # fmt: skip
    assert (head.status, head.reason, head.framing, head.length) == (200, b"All right", Framing.LENGTH, 3)


@pytest.mark.parametrize(
    ("method", "line", "fields", "framing", "persistent"),
    [
        ("GET", b"HTTP/1.1 200 OK", b"Content-Length: 5\r\n", Framing.LENGTH, True),
        ("GET", b"HTTP/1.1 200 OK", b"Content-Length: 0\r\n", Framing.NONE, True),
        ("GET", b"HTTP/1.1 200 OK", b"Transfer-Encoding: CHUNKED\r\n", Framing.CHUNKED, True),
        ("GET", b"HTTP/1.1 200 OK", b"", Framing.CLOSE, False),
        ("GET", b"HTTP/1.1 200", b"Content-Length: 5\r\nConnection: X, Close\r\n", Framing.LENGTH, False),
        ("GET", b"HTTP/1.0 200 OK", b"Content-Length: 5\r\n", Framing.LENGTH, False),
        ("GET", b"HTTP/1.0 200 OK", b"Content-Length: 5\r\nConnection: Keep-Alive\r\n", Framing.LENGTH, True),
        ("GET", b"HTTP/1.0 200 OK", b"Content-Length: 5\r\nConnection: Keep-Alive, close\r\n", Framing.LENGTH, False),
        ("HEAD", b"HTTP/1.1 200 OK", b"Content-Length: 5\r\n", Framing.NONE, True),
        ("HEAD", b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked\r\n", Framing.NONE, True),
        ("HEAD", b"HTTP/1.1 200 OK", b"", Framing.NONE, True),
        ("GET", b"HTTP/1.1 304 OK", b"Content-Length: 5\r\n", Framing.NONE, True),
        ("GET", b"HTTP/1.1 204 OK", b"", Framing.NONE, True),
        ("GET", b"HTTP/1.1 204 OK", b"Content-Length: 5\r\n", Framing.NONE, False),
        ("GET", b"HTTP/1.1 204 OK", b"Transfer-Encoding: chunked\r\n", Framing.NONE, False),
        ("GET", b"HTTP/1.1 101 Up", b"", None, False),
        ("GET", b"HTTP/2.0 200 OK", b"Content-Length: 5\r\n", None, False),
        ("GET", b"HTTP/1.1 099 OK", b"Content-Length: 5\r\n", None, False),
        ("GET", b"HTTP/1.1 2000 OK", b"Content-Length: 5\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"Content-Length: 5\r\nContent-Length: 5\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"Content-Length: 5\r\nContent-Length: 6\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"Content-Length: 5, 5\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"Content-Length: -5\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"Content-Length: \r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"Transfer-Encoding: gzip, chunked\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"Transfer-Encoding: gzip\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"Transfer-Encoding: \r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", None, False),
        ("GET", b"HTTP/1.0 200 OK", b"Transfer-Encoding: chunked\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"A: b\r\n folded\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"A \t: b\r\nContent-Length : 5\r\n", Framing.LENGTH, True),
        ("GET", b"HTTP/1.1 200 OK", b"A B : c\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b" : b\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"A: b\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"A: b\rc\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b"A: b\x00\r\n", None, False),
        ("GET", b"HTTP/1.1 200 OK", b": b\r\n", None, False),
    ],
)
def test_an_answers_end_is_told_in_one_way_or_not_believed(
    method: str, line: bytes, fields: bytes, framing: Framing | None, persistent: bool
) -> None:
    data = line + b"\r\n" + fields + b"\r\n"
    if framing is None:
        with pytest.raises(httpx.RemoteProtocolError):
            decode_answer(data, method)
    else:
        head = decode_answer(data, method)
        assert (head.framing, head.persistent) == (framing, persistent)
