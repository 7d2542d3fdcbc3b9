"""A scripted backend on a raw socket: it says exactly the bytes it is told, and keeps exactly the bytes it was sent.

Each connection is served by a thread that runs the script. Everything is on loopback and ends with ``close``.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class RawRequest:
    """One request as its bytes. ``body`` is what followed the head, with a chunked framing taken off."""

    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        """The request line without its end."""
        return self.head.split(b"\r\n", 1)[0]

    @property
    def target(self) -> bytes:
        """The request-target."""
        return self.line.split(b" ")[1]

    @property
    def fields(self) -> list[tuple[bytes, bytes]]:
        """The header fields in order, names in lower case, values as they came."""
        lines = self.head.split(b"\r\n")[1:]
        pairs = [line.split(b":", 1) for line in lines if line]
        return [(name.lower(), value.strip(b" ")) for name, value in pairs]

    def values(self, name: bytes) -> list[bytes]:
        """The values of all fields of this name."""
        return [value for key, value in self.fields if key == name]


class Peer:
    """The backend's end of one connection."""

    def __init__(self, sock: socket.socket, seen: list[RawRequest], arrived: threading.Condition) -> None:
        self.sock = sock
        self._stream = sock.makefile("rb")
        self._seen = seen
        self._arrived = arrived

    def read_head(self) -> bytes | None:
        """Read a head up to its empty line; ``None`` when the other side closed first."""
        lines: list[bytes] = []
        while line := self._stream.readline():
            if line == b"\r\n":
                return b"".join(lines)
            lines.append(line)
        return None

    def read_request(self) -> RawRequest | None:
        """Read and keep one whole request; ``None`` when the other side closed first."""
        head = self.read_head()
        if head is None:
            return None
        fields = RawRequest(head, b"")
        if fields.values(b"transfer-encoding"):
            body = self._read_chunked()
        else:
            body = self._stream.read(int((fields.values(b"content-length") or [b"0"])[0]))
        request = RawRequest(head, body)
        with self._arrived:
            self._seen.append(request)
            self._arrived.notify_all()
        return request

    def read_some(self) -> bytes:
        """Read what is there, at least one byte; empty at the end."""
        return self._stream.read1()

    def send(self, data: bytes) -> None:
        """Send all of the bytes."""
        self.sock.sendall(data)

    def reset(self) -> None:
        """Close with a RST instead of a FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self.sock.close()

    def wait_closed(self) -> bool:
        """Wait until the other side closes; false when it does not within ``WAIT_S``."""
        try:
            while self._stream.read1():
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def _read_chunked(self) -> bytes:
        body = b""
        while size := int(self._stream.readline().split(b";")[0], 16):
            body += self._stream.read(size)
            self._stream.readline()
        while self._stream.readline() != b"\r\n":
            pass
        return body


Script = Callable[[Peer], None]


@dataclass
class Backend:
    """Listens on a free port of loopback, or on the Unix socket ``path``, and runs the script for each connection, over
    TLS where there is a context. Use it as a context manager."""

    script: Script
    requests: list[RawRequest] = field(default_factory=list)
    accepted: int = 0
    """Connections so far."""
    tls: ssl.SSLContext | None = None
    path: Path | None = None

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._peers: set[Peer] = set()
        self._threads: list[threading.Thread] = []
        self._listener = _listen(self.path)
        self._accepting = threading.Thread(target=self._accept, name="backend-accept")
        self._accepting.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """The base URL."""
        if self.path is not None:
            return f"unix://{self.path}"
        return f"{'http' if self.tls is None else 'https'}://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """Connections whose script still runs."""
        with self._changed:
            return len(self._peers)

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Wait until the condition on this backend holds; false when it does not within ``WAIT_S``."""
        with self._changed:
            return self._changed.wait_for(condition, WAIT_S)

    def wait_requests(self, count: int) -> bool:
        """Wait until so many requests were read."""
        return self.wait_for(lambda: len(self.requests) >= count)

    def wait_accepted(self, count: int) -> bool:
        """Wait until so many connections came."""
        return self.wait_for(lambda: self.accepted >= count)

    def close(self) -> None:
        """Close the listener and all connections and end all threads."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join(WAIT_S)
        self._listener.close()
        with self._changed:
            peers = list(self._peers)
        for peer in peers:
            with suppress(OSError):
                peer.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), "a backend script does not end"

    def __enter__(self) -> Backend:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.settimeout(WAIT_S)
            if self.path is None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.tls is not None:
                sock = self.tls.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            peer = Peer(sock, self.requests, self._changed)
            with self._changed:
                self.accepted += 1
                self._peers.add(peer)
                self._changed.notify_all()
            thread = threading.Thread(target=self._serve, args=(peer,), name="backend-peer")
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer: Peer) -> None:
        try:
            # A gateway that leaves in the middle is what many tests are about; the script just ends.
            with suppress(OSError, ValueError):
                self.script(peer)
        finally:
            with suppress(OSError):
                peer.close()
            with self._changed:
                self._peers.discard(peer)
                self._changed.notify_all()


def _listen(path: Path | None) -> socket.socket:
    if path is None:
        return socket.create_server(("127.0.0.1", 0))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def answering(*answers: bytes) -> Script:
    """Return a script that answers the requests of a connection in turn, the last answer for ever."""

    def script(peer: Peer) -> None:
        left = list(answers)
        while peer.read_request() is not None:
            peer.send(left.pop(0) if len(left) > 1 else left[0])

    return script


def plain(body: bytes = b"ok", *, status: bytes = b"200 OK", fields: bytes = b"") -> bytes:
    """Return an answer with a Content-Length; ``fields`` are whole lines with their ends."""
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n%b\r\n%b" % (status, len(body), fields, body)
