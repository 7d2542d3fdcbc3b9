"""TLS and Unix sockets: certificates are verified, names are checked, a client shows its own where one is demanded."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from gateway.transport.own import OwnTransport
from tests.fakes.shadow_server import Received, Script, answers
from tests.gateway.transport.line import Line, closed, open_sockets, read, says, until

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Authority:
    """A certificate authority made for the tests, with what it signed."""

    folder: Path

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def client_context(self, *, shows: str | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        if shows is not None:
            context.load_cert_chain(self.path(f"{shows}.pem"), self.path(f"{shows}.key"))
        return context

    def server_context(self, *, demands_client: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path("server.pem"), self.path("server.key"))
        if demands_client:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.path("ca.pem"))
        return context


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    folder = tmp_path_factory.mktemp("authority")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    _openssl(folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority")
    for name, host in (("server", "backend.test"), ("client", "gateway.test")):
        signing = ["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", f"subjectAltName=DNS:{host}"]
        _openssl(
            folder,
            "req",
            "-x509",
            *key,
            *signing,
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
            "-subj",
            f"/CN={host}",
        )
    return Authority(folder)


@asynccontextmanager
async def listening(
    script: Script, *, tls: ssl.SSLContext | None = None, path: str | None = None
) -> AsyncIterator[str]:
    """Serve the script on a port or a Unix socket; yield the authority, and end only when all sockets are closed."""
    before = open_sockets()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            await script(reader, writer, [])
        writer.close()

    if path is not None:
        server = await asyncio.start_unix_server(serve, path, ssl=tls)
    else:
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield "backend.test" if path is not None else f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()
    await until(lambda: open_sockets() <= before)


@asynccontextmanager
async def secured(
    server_tls: ssl.SSLContext, client_tls: ssl.SSLContext | None, script: Script, name: str = "backend.test"
) -> AsyncIterator[Line]:
    """Run a TLS server and a transport that asks it for this name."""
    async with listening(script, tls=server_tls) as address, closed(OwnTransport(tls=client_tls)) as transport:
        yield Line(transport, f"https://{address}", defaults={"sni_hostname": name} if name else {})


async def test_a_certificate_that_fits_is_believed_and_the_name_is_sent(authority: Authority) -> None:
    names: list[str | None] = []
    tls = authority.server_context()
    tls.sni_callback = lambda _socket, name, _context: names.append(name)
    body = bytes(range(256)) * 4096
    async with secured(tls, authority.client_context(), answers(body)) as server:
        for _ in range(3):
            seen = await server.ask(
                "POST", fields=[(b"Content-Length", b"%d" % len(body))], body=httpx.ByteStream(body)
            )
            assert seen == (200, body)
        assert (server.opened, names) == (1, ["backend.test"])


@pytest.mark.parametrize("case", ["another name", "an address", "an unknown authority"])
async def test_a_certificate_that_does_not_fit_is_refused(authority: Authority, case: str) -> None:
    tls = None if case == "an unknown authority" else authority.client_context()
    name = {"another name": "other.test", "an address": ""}.get(case, "backend.test")
    async with secured(authority.server_context(), tls, answers(), name) as server:
        with pytest.raises(httpx.ConnectError):
            await server.ask()
        assert server.transport.pool.open == 0


async def test_a_server_that_demands_a_certificate_gets_it(authority: Authority) -> None:
    demanding = authority.server_context(demands_client=True)
    async with secured(demanding, authority.client_context(shows="client"), answers(b"yes")) as server:
        assert await server.ask() == (200, b"yes")


async def test_without_a_certificate_such_a_server_says_no(authority: Authority) -> None:
    demanding = authority.server_context(demands_client=True)
    async with secured(demanding, authority.client_context(), answers(b"yes")) as server:
        # With TLS 1.3 the client's handshake is over before the server looks: the refusal comes as a broken connection.
        with pytest.raises((httpx.NetworkError, httpx.RemoteProtocolError)):
            await server.ask()
        await until(lambda: server.transport.pool.open == 0)


async def test_a_plain_server_is_no_tls_server(authority: Authority) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    async with listening(plain) as address, closed(OwnTransport(tls=authority.client_context())) as transport:
        with pytest.raises(httpx.ConnectError):
            await Line(transport, f"https://{address}").ask()
        assert transport.pool.open == 0


async def test_a_handshake_that_never_ends_is_a_connect_timeout(authority: Authority) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        await reader.read()

    async with listening(silent) as address, closed(OwnTransport(tls=authority.client_context())) as transport:
        with pytest.raises(httpx.ConnectTimeout):
            await Line(transport, f"https://{address}").ask(timeout={"connect": 0.1})
        assert transport.pool.open == 0


async def test_a_cut_answer_over_tls_never_looks_whole(authority: Authority) -> None:
    script = says(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", then="close")
    async with secured(authority.server_context(), authority.client_context(), script) as server:
        response = await server.start()
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            await read(response)


async def test_a_unix_socket_is_a_server(tmp_path: Path) -> None:
    path = str(tmp_path / "backend.sock")
    async with listening(answers(b"yes"), path=path) as name, closed(OwnTransport()) as transport:
        local = Line(transport, f"http://{name}", defaults={"unix_socket": path})
        for _ in range(2):
            assert await local.ask() == (200, b"yes")
        assert (local.opened, transport.pool.idle) == (1, 1)
        with pytest.raises(httpx.ConnectError):
            await local.ask(unix_socket=str(tmp_path / "nobody.sock"))
