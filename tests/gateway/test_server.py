"""The life of the process: it drains when it is told to end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

from tests.fakes.backend import Backend, Peer, plain
from tests.gateway.client import Client, encode
from tests.ports import free_port


def connect(port: int, process: subprocess.Popen[bytes]) -> Client:
    """Connect as soon as the process listens."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return Client(port)
        except ConnectionRefusedError:
            assert process.poll() is None, "the gateway ended"
            assert time.monotonic() < deadline, "the gateway does not listen"
            time.sleep(0.05)  # another process: there is no event to wait for


def test_sigterm_lets_requests_under_way_finish() -> None:
    go_on = threading.Event()

    def script(peer: Peer) -> None:
        peer.read_request()
        go_on.wait(30)
        peer.send(plain(b"finished"))

    port = free_port()
    with Backend(script) as backend:
        command = [sys.executable, "-m", "tests.gateway.serve_once", backend.url, str(port)]
        process = subprocess.Popen(command)
        try:
            with connect(port, process) as client, connect(port, process) as idle:
                assert idle.request("GET", "/-/ready").status == 200
                client.send(encode("GET", "/"))
                assert backend.wait_requests(1)
                process.send_signal(signal.SIGTERM)
                assert idle.at_end(), "an idle connection is closed at once"
                go_on.set()
                answer = client.read()
                assert (answer.status, answer.body) == (200, b"finished")
                assert client.at_end()
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
