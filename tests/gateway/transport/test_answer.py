"""Reading an answer: the pieces that it comes in never matter, and no bytes at all make the reader hang or crash."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.transport.answer import Answer, AnswerLimits, Reuse
from gateway.transport.chunked import AT_ONCE

SMALL = AnswerLimits(head_bytes=300, interim=2)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SCRIPTS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end\r\n\r\n",
    b"HTTP/1.0 200 OK\r\n\r\n",
    INTERIM + b"HTTP/1.1 204 No Content\r\n\r\n",
    INTERIM + b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    INTERIM + INTERIM + b"HTTP/1.1 204 No Content\r\n\r\n",
    CHUNKED + b'5\r\nhello\r\nA;x="y"\r\n, you too!\n\r\n0\r\n\r\n',
    CHUNKED + b"5 \r\nhello\r\n000\r\nX-T: v\r\n\r\n",
    CHUNKED + b"0\r\n\r\n\r\n",
    CHUNKED + b"5\r\nhello\r\n0\r\nno trailer\r\n\r\n",
    CHUNKED + b"5\r\nhelloX\r\n0\r\n\r\n",
    CHUNKED + b"5\nhello\r\n0\r\n\r\n",
    CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    CHUNKED + b"0x5\r\nhello\r\n0\r\n\r\n",
    CHUNKED + b"FFFFFFFFFFFFFFFFFFFF\r\nhello\r\n",
    CHUNKED + b"5\r\nhello\r\n",
    CHUNKED + b"5;" + b"x" * 5000,
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300,
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 260 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
    b"\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
    b"HTTQ",
    b"",
]
HINTS = (
    b"\r\n",
    b"0",
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.1 100 C\r\n\r\n",
    b"Content-Length: 3\r\n",
    CHUNKED,
    b"5\r\n",
    b"\n",
)


@dataclass(frozen=True)
class Outcome:
    status: int | None
    body: bytes
    complete: bool
    surplus: bool
    failed: bool
    reuse: Reuse


def outcome(pieces: list[bytes], method: str = "GET", *, ends: bool = True) -> Outcome:
    """Feed the pieces, what is left of them, and then the end; return all that a reader can learn."""
    answer, failed = Answer(method, SMALL), False
    try:
        for piece in pieces:
            answer.feed(piece)
        while answer.rest:
            answer.feed(b"")
        if ends and not answer.complete:
            answer.feed_end()
    except httpx.RemoteProtocolError:
        failed = True
    assert answer.waiting_bytes == sum(map(len, answer.chunks))
    assert all(answer.chunks), "no chunk is empty"
    status = answer.head.status if answer.head is not None else None
    body = b"".join(answer.take() for _ in range(len(answer.chunks)))
    return Outcome(status, body, answer.complete and not failed, answer.surplus, failed, answer.reuse)


@pytest.mark.parametrize("wire", SCRIPTS)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_byte_by_byte_is_the_same_as_at_once(wire: bytes, method: str) -> None:
    whole = outcome([wire], method)
    assert outcome([wire[at : at + 1] for at in range(len(wire))], method) == whole


@given(wire=st.sampled_from(SCRIPTS), cuts=st.lists(st.integers(0, 400)), method=st.sampled_from(["GET", "HEAD"]))
def test_any_pieces_are_the_same_as_at_once(wire: bytes, cuts: list[int], method: str) -> None:
    edges = [0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]
    pieces = [wire[start:stop] for start, stop in pairwise(edges)]
    assert outcome(pieces, method) == outcome([wire], method)


@given(
    st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(HINTS)), max_size=12),
    st.sampled_from(["GET", "HEAD", "POST"]),
)
@example([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 9], "GET")
def test_junk_is_read_or_refused_and_pieces_never_matter(pieces: list[bytes], method: str) -> None:
    whole = b"".join(pieces)
    assert outcome(pieces, method) == outcome([whole], method)
    assert outcome([whole[at : at + 1] for at in range(len(whole))], method) == outcome([whole], method)


@given(st.binary(max_size=200))
def test_junk_after_a_head_is_read_or_refused(junk: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\n"
    assert outcome([head, junk]) == outcome([head + junk])
    assert outcome([CHUNKED, junk]) == outcome([CHUNKED + junk])


@given(st.lists(st.binary(min_size=1, max_size=50)), st.lists(st.integers(1, 30)))
def test_what_is_chunked_comes_out_again(chunks: list[bytes], steps: list[int]) -> None:
    wire = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    pieces, at = [], 0
    for step in steps:
        pieces.append(wire[at : at + step])
        at += step
    seen = outcome([*pieces, wire[at:]], ends=False)
    assert (seen.body, seen.complete, seen.reuse) == (b"".join(chunks), True, Reuse.YES)


@pytest.mark.parametrize(
    ("wire", "reuse"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Reuse.YES),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n\r\n", Reuse.SURPLUS),
        (CHUNKED + b"2\r\nok\r\n0\r\n\r\n\r\n", Reuse.SURPLUS),
        (b"HTTP/1.1 204 OK\r\n\r\nx", Reuse.SURPLUS),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", Reuse.ASKED_TO_CLOSE),
        (b"HTTP/1.0 200 OK\r\n\r\nok", Reuse.ASKED_TO_CLOSE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", Reuse.UNFINISHED),
        (b"HTTP/1.1 200 OK\r\nCont", Reuse.UNFINISHED),
    ],
)
def test_why_a_connection_may_not_be_used_again_is_told(wire: bytes, reuse: Reuse) -> None:
    assert outcome([wire]).reuse is reuse


def test_many_chunks_that_come_together_go_on_together() -> None:
    answer = Answer("GET", AnswerLimits())
    answer.feed(CHUNKED + b"1\r\nx\r\n" * AT_ONCE)
    assert list(answer.chunks) == [b"x" * AT_ONCE]


@given(st.integers(0, 5 * AT_ONCE), st.sampled_from([b"0\r\n\r\n", b"0\r\n\r\nmore", b"X\r\n", b""]))
def test_of_very_many_chunks_a_bounded_number_is_decoded_in_one_go(count: int, end: bytes) -> None:
    answer, wire = Answer("GET", AnswerLimits()), CHUNKED + b"1\r\nx\r\n" * count + end
    taken = []
    with suppress(httpx.RemoteProtocolError):
        answer.feed(wire)
        while answer.rest:
            taken.append(answer.take())
            answer.feed(b"")
    taken += answer.chunks
    assert max(map(len, taken), default=0) <= AT_ONCE
    assert sum(map(len, taken)) == count
    assert (answer.complete, answer.surplus) == (end.startswith(b"0"), end.endswith(b"more"))


def test_a_piece_that_is_all_body_is_handed_on_uncopied() -> None:
    answer = Answer("GET", AnswerLimits())
    answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n")
    piece = bytes(2000)
    answer.feed(piece)
    assert answer.take() is piece


@pytest.mark.parametrize("end", [b"\n\n", b"\n\r\n"])
@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_head_that_ends_with_line_feeds_alone_is_not_waited_for(end: bytes, size: int) -> None:
    wire, answer = b"HTTP/1.1 200 OK\nContent-Length: 2" + end, Answer("GET", AnswerLimits())
    pieces = [wire[at : at + size] for at in range(0, len(wire), size)]
    for piece in pieces[:-1]:
        answer.feed(piece)
    with pytest.raises(httpx.RemoteProtocolError):
        answer.feed(pieces[-1])
