"""A gateway with a certificate of its own: served, renewed under traffic, refused when it cannot be used."""

from __future__ import annotations

import shutil
import socket
import ssl
from pathlib import Path

import httpx
import pytest

from tests.e2e.gateway_process import gateway_process, write_config
from tests.fakes.backend import Backend, answering, plain
from tests.gateway.authority import Authority
from tests.gateway.client import encode


def with_tls(config: Path, chain: Path, key: Path, **more: str) -> None:
    lines = "".join(f", {name}: '{value}'" for name, value in more.items())
    text = config.read_text()
    start, end = text.split("\n", 1)
    config.write_text(f"{start[:-1]}, tls: {{certificate: {chain.name}, key: {key.name}{lines}}}}}\n{end}")


def served_serial(port: int, context: ssl.SSLContext) -> str:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain_socket,
        context.wrap_socket(plain_socket, server_hostname="127.0.0.1") as secure,
    ):
        certificate = secure.getpeercert()
    assert certificate is not None
    return str(certificate["serialNumber"])


def test_https_is_served_and_a_renewal_drops_no_connection(tmp_path: Path) -> None:
    authority = Authority()
    context = authority.client_context()
    chain, key = authority.issue(tmp_path, "127.0.0.1")
    with Backend(answering(plain(b"cloud"))) as cloud:
        config, port = write_config(tmp_path, cloud.url, cloud.url)
        with_tls(config, chain, key)
        with (
            gateway_process(config, port, tls=context) as gateway,
            httpx.Client(base_url=gateway.url, verify=context, trust_env=False) as client,
        ):
            body = b"x" * 1_000_000
            assert client.post("/", content=body).content == b"cloud"
            first = served_serial(port, context)

            other_chain, other_key = authority.issue(tmp_path, "127.0.0.1", stem="other")
            shutil.copy(other_chain, chain)  # only half of the pair is there: nothing may change
            log = config.with_name("gateway.log")
            gateway.wait_status(lambda status: "do not make a pair" in log.read_text())
            assert served_serial(port, context) == first

            shutil.copy(other_key, key)
            gateway.wait_status(lambda status: served_serial(port, context) != first)
            assert client.post("/", content=b"again").content == b"cloud", "the connection from before goes on"
            gateway.process.terminate()
            assert gateway.process.wait(30) == 0


def test_a_stranger_and_an_old_version_are_refused_and_plain_http_gets_no_answer(tmp_path: Path) -> None:
    authority = Authority()
    chain, key = authority.issue(tmp_path, "127.0.0.1")
    with Backend(answering(plain())) as cloud:
        config, port = write_config(tmp_path, cloud.url, cloud.url)
        with_tls(config, chain, key, minimum_version="1.3")
        with gateway_process(config, port, tls=authority.client_context()):
            with pytest.raises(ssl.SSLCertVerificationError):
                served_serial(port, Authority().client_context())
            old = authority.client_context()
            old.maximum_version = ssl.TLSVersion.TLSv1_2
            with pytest.raises(ssl.SSLError):
                served_serial(port, old)
            with socket.create_connection(("127.0.0.1", port), timeout=10) as unencrypted:
                unencrypted.sendall(encode("GET", "/"))
                assert not unencrypted.recv(1000).startswith(b"HTTP/1.1 2")
        assert cloud.requests == []
