"""A client on a raw socket: it sends exactly the bytes it is told and reads answers without forgiving anything."""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import termios
from array import array
from dataclasses import dataclass
from types import TracebackType
from typing import Any

WAIT_S = 30.0


class Cut(Exception):
    """The connection ended in the middle of an answer; ``partial`` is the body so far."""

    def __init__(self, partial: bytes) -> None:
        super().__init__(f"cut after {len(partial)} bytes")
        self.partial = partial


@dataclass(frozen=True, slots=True)
class Answer:
    """One final answer, its names in lower case."""

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes = b""
    interim: tuple[int, ...] = ()

    def values(self, name: bytes) -> list[bytes]:
        """The values of all fields of this name."""
        return [value for key, value in self.fields if key == name]

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem."""
        assert self.values(b"content-type") == [b"application/problem+json"]
        document = self.json()
        assert document["status"] == self.status
        return str(document["code"])


class Client:
    """One connection to the gateway; a context manager."""

    def __init__(self, port: int, *, timeout_s: float = WAIT_S) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=timeout_s)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self.sock.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send all of the bytes."""
        self.sock.sendall(data)

    def request(
        self,
        method: str,
        target: bytes | str,
        fields: list[tuple[bytes, bytes]] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Send one request, with a Content-Length where there is a body, and read its answer."""
        self.send(encode(method, target, fields, body))
        return self.read(method)

    def read(self, method: str = "GET") -> Answer:
        """Read one answer to its end. Raises ``Cut`` when it does not come to one."""
        answer = self.read_head()
        if method == "HEAD" or answer.status in (204, 304):
            return answer
        if answer.values(b"transfer-encoding"):
            assert answer.values(b"transfer-encoding") == [b"chunked"]
            assert not answer.values(b"content-length")
            body = self._read_chunked()
        else:
            size = int(answer.values(b"content-length")[0])
            body = self.read_up_to(size)
            if len(body) < size:
                raise Cut(body)
        return Answer(answer.status, answer.fields, body, answer.interim)

    def read_head(self) -> Answer:
        """Read a final answer's head, taking note of interim ones before it. Raises ``Cut`` at the end of the
        connection."""
        interim: list[int] = []
        while True:
            line = self.read_line()
            status = int(line.split(b" ")[1])
            fields = []
            while (line := self.read_line()) != b"\r\n":
                name, value = line[:-2].split(b": ", 1)
                fields.append((name.lower(), value))
            if status >= 200:
                return Answer(status, tuple(fields), b"", tuple(interim))
            interim.append(status)

    def read_chunk(self) -> bytes:
        """Read one chunk of a chunked body; empty for the last."""
        size = int(self.read_line(), 16)
        chunk = self.read_up_to(size)
        if len(chunk) < size or self.read_line() != b"\r\n":
            raise Cut(chunk)
        return chunk

    def at_end(self) -> bool:
        """Wait for the gateway to close; false when more bytes come instead."""
        try:
            return self._stream.read1() == b""
        except ConnectionResetError:
            return True

    def reset(self) -> None:
        """Leave with a RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Leave."""
        self._stream.close()
        self.sock.close()

    def read_line(self) -> bytes:
        """Read one line with its end. Raises ``Cut`` when there is none."""
        try:
            line = self._stream.readline()
        except ConnectionResetError:
            raise Cut(b"") from None
        if not line.endswith(b"\r\n"):
            raise Cut(line)
        return line

    def unread_bytes(self) -> int:
        """Return how many bytes the kernel holds for this connection."""
        size = array("i", [0])
        fcntl.ioctl(self.sock, termios.FIONREAD, size)
        return size[0]

    def read_up_to(self, size: int) -> bytes:
        """Read so many bytes, fewer at the end of the connection."""
        try:
            return self._stream.read(size)
        except ConnectionResetError:
            raise Cut(b"") from None

    def _read_chunked(self) -> bytes:
        body = b""
        while True:
            try:
                chunk = self.read_chunk()
            except Cut as cut:
                raise Cut(body + cut.partial) from None
            if not chunk:
                return body
            body += chunk


def encode(
    method: str, target: bytes | str, fields: list[tuple[bytes, bytes]] | None = None, body: bytes | None = None
) -> bytes:
    """Return the bytes of a request to the host ``gateway.test``."""
    raw_target = target.encode() if isinstance(target, str) else target
    lines = [b"%b %b HTTP/1.1" % (method.encode(), raw_target), b"Host: gateway.test"]
    lines += [b"%b: %b" % field for field in fields or []]
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")
