"""Host names: looked up beside everything else, once at a time, and every address of theirs is tried."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress

import httpx
import pytest

from gateway.transport.own import OwnTransport
from gateway.transport.resolver import Address, look_up
from tests.fakes.shadow_server import ShadowServer, answers
from tests.gateway.transport.line import WAIT_S, Line, closed

pytestmark = pytest.mark.anyio

SHORT_S = 0.2
ASKERS = 80
"""More than any loop has threads."""


class Names:
    """A name server: it knows the names that it was told, passes on what else it is asked, and is silent about
    ``silent.test``."""

    def __init__(self, **known: list[Address]) -> None:
        self.asked = Counter[str]()
        self.speaks = threading.Event()
        self._known = known

    def __call__(self, host: str, port: int) -> list[Address]:
        self.asked[host] += 1
        if host == "silent.test":
            self.speaks.wait(WAIT_S)
            raise socket.gaierror(socket.EAI_AGAIN, "silent")
        return self._known.get(host) or look_up(host, port)


async def test_a_name_server_that_is_silent_holds_up_nobody_else() -> None:
    names = Names()
    async with closed(OwnTransport(lookup=names)) as transport, ShadowServer(answers(b"yes")) as server:
        silent = Line(transport, "http://silent.test", defaults={"timeout": {"connect": WAIT_S}})
        asking = [asyncio.create_task(silent.ask()) for _ in range(ASKERS)]
        while not names.asked:  # noqa: ASYNC110 - a thread tells no loop
            await asyncio.sleep(0.001)
        async with asyncio.timeout(WAIT_S / 2):
            named = Line(transport, server.url.replace("127.0.0.1", "localhost"))
            assert (await named.ask())[1] == b"yes"
            assert await asyncio.to_thread(lambda: 1) == 1
            assert await asyncio.get_running_loop().getaddrinfo("localhost", 80)
        assert names.asked == {"silent.test": 1, "localhost": 1}
        names.speaks.set()
        found = await asyncio.gather(*asking, return_exceptions=True)
        assert {type(each) for each in found} == {httpx.ConnectError}


async def test_who_gives_up_takes_the_answer_from_nobody() -> None:
    names = Names()
    async with closed(OwnTransport(lookup=names)) as transport:
        silent = Line(transport, "http://silent.test")
        patient = asyncio.create_task(silent.ask(timeout={"connect": WAIT_S}))
        with pytest.raises(httpx.ConnectTimeout):
            await silent.ask(timeout={"connect": SHORT_S})
        assert not patient.done()
        names.speaks.set()
        with pytest.raises(httpx.ConnectError):
            await patient
        assert names.asked["silent.test"] == 1


async def test_every_address_of_a_name_is_tried() -> None:
    async with ShadowServer(answers(b"yes")) as server:
        with socket.socket() as bound:  # nobody listens there
            bound.bind(("127.0.0.1", 0))
            port = int(server.url.rpartition(":")[2])
            nobody, there = (socket.AF_INET, bound.getsockname()), (socket.AF_INET, ("127.0.0.1", port))
            names = Names(**{"both.test": [nobody, there], "neither.test": [nobody, nobody]})
            async with closed(OwnTransport(lookup=names)) as transport:
                assert (await Line(transport, "http://both.test").ask())[1] == b"yes"
                with pytest.raises(httpx.ConnectError):
                    await Line(transport, "http://neither.test").ask()
                assert transport.pool.open == 1


def test_a_lookup_without_an_answer_does_not_keep_the_process_from_ending() -> None:
    program = f"""
import asyncio, time
from gateway.transport.resolver import Resolver

async def main():
    resolver = Resolver(lambda host, port: time.sleep({4 * WAIT_S}))
    try:
        await asyncio.wait_for(resolver.addresses("silent.test", 80), {SHORT_S})
    except TimeoutError:
        print("gave up")

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=WAIT_S, check=True)
    assert (ended.stdout, ended.stderr) == (b"gave up\n", b"")


async def test_what_is_written_goes_out_at_once() -> None:
    """TCP_NODELAY: a body's last bytes would otherwise wait for the server to acknowledge the ones before."""
    async with closed(OwnTransport()) as transport, ShadowServer(answers(b"yes")) as server:
        await Line(transport, server.url).ask()
        (ours,) = sockets_to(int(server.url.rpartition(":")[2]))
        with ours:
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def sockets_to(port: int) -> list[socket.socket]:
    """Return copies of this process's sockets whose other end is this port."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            copy = socket.socket(fileno=os.dup(int(number)))
        except OSError:  # no socket, or gone
            continue
        with suppress(OSError):
            if copy.family == socket.AF_INET and copy.getpeername()[1] == port:
                found.append(copy)
                continue
        copy.close()
    return found
