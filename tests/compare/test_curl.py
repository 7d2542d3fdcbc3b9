"""The curl command of a recorded request, run by a shell against a real server: what arrives is what was recorded."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from compare.curl import curl_command
from shadow.exchange import Headers, Request
from tests.fakes.backend import Backend, RawRequest, answering, plain
from tests.shadow.bench import body_of

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")

HEADERS = ((b"Accept", b"image/*"), (b"User-Agent", b"app"))


def sent(request: Request, folder: Path, answer: bytes = plain(b"ok"), socket: Path | None = None) -> RawRequest:
    """Run the command and return what arrived."""
    (folder / "body.bin").write_bytes(b"".join(request.body))
    with Backend(answering(answer), path=socket) as backend:
        command = curl_command(request, backend.url, "body.bin" if request.body.size_bytes else None)
        shell = [b"/bin/sh", b"-c", os.fsencode(command)]
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        subprocess.run(shell, cwd=folder, env=environment, check=True, timeout=10, capture_output=True)
        return backend.requests[0]


@pytest.mark.parametrize(
    "headers",
    [
        HEADERS,
        (*HEADERS, (b"X-Twice", b"1"), (b"x-twice", b"2"), (b"X-Empty", b"")),
        (*HEADERS, (b"X-Latin", b"\xe9"), (b"X-Utf", "ü".encode()), (b"X-Shell", b"$(id) 'a' \"b\" \\")),
        (*HEADERS, (b"X-Large", b"a" * 30_000)),
        (),
    ],
)
def test_fields_arrive_as_they_were_and_no_others(headers: Headers, tmp_path: Path) -> None:
    arrived = sent(Request("POST", b"/v1/x", headers, body_of(b"pic\0ture")), tmp_path)
    fields = [(name, value) for name, value in arrived.fields if name not in (b"host", b"content-length")]
    assert fields == [(name.lower(), value) for name, value in headers]
    assert arrived.body == b"pic\0ture"


@pytest.mark.parametrize("target", [b"/v1/../x?q=%20a%2Fb&r=[1]{2}", b"/v1/x?q=$(id)'", "/v1/ü".encode(), b"/v1/\xe9"])
def test_the_target_arrives_byte_for_byte(target: bytes, tmp_path: Path) -> None:
    assert sent(Request("GET", target, HEADERS, body_of(b"")), tmp_path).line == b"GET " + target + b" HTTP/1.1"


def test_a_head_does_not_wait_for_a_body_that_never_comes(tmp_path: Path) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
    assert sent(Request("HEAD", b"/v1/x", HEADERS, body_of(b"")), tmp_path, answer).line == b"HEAD /v1/x HTTP/1.1"


def test_an_empty_body_is_announced_where_it_was(tmp_path: Path) -> None:
    for headers, values in (((*HEADERS, (b"Content-Length", b"0")), [b"0"]), (HEADERS, [])):
        arrived = sent(Request("POST", b"/v1/x", headers, body_of(b"")), tmp_path)
        assert (arrived.values(b"content-length"), arrived.values(b"content-type")) == (values, [])


def test_a_server_on_a_unix_socket_is_asked_there(tmp_path: Path) -> None:
    arrived = sent(Request("GET", b"/v1/x?a", HEADERS, body_of(b"")), tmp_path, socket=tmp_path / "model.sock")
    assert arrived.line == b"GET /v1/x?a HTTP/1.1"


def test_what_was_redacted_is_left_out_and_a_redacted_body_is_not_said_to_be_compressed(tmp_path: Path) -> None:
    headers = (*HEADERS, (b"Authorization", b"[redacted]"), (b"Content-Encoding", b"gzip"))
    arrived = sent(Request("POST", b"/v1/x", headers, body_of(b'{"a":"[redacted]"}')), tmp_path)
    assert {b"authorization", b"content-encoding"}.isdisjoint(name for name, _ in arrived.fields)
    kept = body_of(b"\x1f\x8b", content_encoding="gzip")
    assert sent(Request("POST", b"/v1/x", headers, kept), tmp_path).values(b"content-encoding") == [b"gzip"]
