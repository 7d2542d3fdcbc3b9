"""The ways to a backend beside plain TCP: TLS with names and certificates that are checked, and Unix sockets."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.backend_tls import ClientContexts
from gateway.generation import check
from gateway.settings import BackendTls, HealthCheck, ServerRules, Settings
from tests.fakes.backend import Backend, Peer, answering, plain
from tests.gateway.authority import Authority
from tests.gateway.harness import one_route, running, stored, with_backend


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def own_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSFADE_TEST_TRANSPORT", "own")


pytestmark = pytest.mark.usefixtures("own_transport")


@contextmanager
def tls_backend(
    authority: Authority, folder: Path, *names: str, asks: bool = False
) -> Iterator[tuple[Backend, list[str | None]]]:
    """Serve over TLS with a certificate for the names; yield the backend and the server names that clients sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(folder, *names))
    seen: list[str | None] = []
    context.sni_callback = lambda sock, name, context: seen.append(name)
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.bundle(folder))
    with Backend(answering(plain()), tls=context) as backend:
        yield backend, seen


def recorded_one(status: Any) -> bool:
    """Say whether one exchange is recorded."""
    return bool(status["routes"]["all"]["account"]["recorded"] == 1)


def over_tls(url: str, **tls: str | None) -> Settings:
    """Return settings whose cloud is at the URL and spoken to in this way."""
    return with_backend(one_route(url), "cloud", tls=BackendTls(**tls))


def test_an_own_authority_and_a_server_name_are_used_and_checked(authority: Authority, tmp_path: Path) -> None:
    ca = str(authority.bundle(tmp_path))
    with tls_backend(authority, tmp_path, "model.test") as (backend, names):
        with running(over_tls(backend.url, ca=ca, server_name="model.test")) as gateway:
            for _ in range(2):
                assert gateway.request("POST", "/", body=b"x").status == 200
        assert names == ["model.test"], "the second request uses the first one's connection"
        for wrong in ({"ca": ca}, {"ca": ca, "server_name": "other.test"}, {"server_name": "model.test"}):
            with running(over_tls(backend.url, **wrong)) as gateway:
                assert gateway.request("GET", "/").code == "backend_unreachable"
        assert len(backend.requests) == 2


def test_a_client_certificate_is_shown_where_one_is_asked_for(authority: Authority, tmp_path: Path) -> None:
    ca = str(authority.bundle(tmp_path))
    chain, key = authority.issue(tmp_path, "gateway.test", stem="client")
    with tls_backend(authority, tmp_path, "127.0.0.1", asks=True) as (backend, _):
        with running(over_tls(backend.url, ca=ca, certificate=str(chain), key=str(key))) as gateway:
            assert gateway.request("GET", "/").status == 200
        with running(over_tls(backend.url, ca=ca)) as gateway:
            assert gateway.request("GET", "/").status == 502
        assert len(backend.requests) == 1


def test_health_checks_and_the_mirror_take_the_same_way(authority: Authority, tmp_path: Path) -> None:
    ca = str(authority.bundle(tmp_path))
    with (
        tls_backend(authority, tmp_path, "model.test") as (onprem, _),
        Backend(answering(plain()), path=tmp_path / "cloud.sock") as cloud,
    ):
        settings = stored(one_route(cloud.url, onprem.url), tmp_path)
        checks = ServerRules(check=HealthCheck("/ready", interval_s=0.01))
        settings = with_backend(settings, "onprem", tls=BackendTls(ca=ca, server_name="model.test"), rules=checks)
        settings = with_backend(settings, "cloud", rules=checks)
        with running(settings, mirror=True) as gateway:
            assert gateway.request("GET", "/asked").status == 200
            status = gateway.wait_status(recorded_one)
            for backend in (cloud, onprem):
                assert backend.wait_requests(5), "checks go on"
        assert status["routes"]["all"]["account"]["skipped"] == {}
        assert {request.target for request in onprem.requests} == {b"/asked", b"/ready"}


def test_a_backend_on_a_unix_socket_is_asked_there(tmp_path: Path) -> None:
    path = tmp_path / "model.sock"
    with Backend(answering(plain(b"here")), path=path) as backend:
        with running(one_route(f"unix://{path}")) as gateway:
            assert [gateway.request("POST", "/a?b", body=b"x").body for _ in range(2)] == [b"here"] * 2
            assert gateway.taps.wait(2)[0].primary.server == f"unix://{path}"
        assert backend.accepted == 1
        assert backend.requests[0].line == b"POST /a?b HTTP/1.1"
        assert backend.requests[0].values(b"host") == [b"localhost"]
    with running(one_route(f"unix://{path}")) as gateway:
        assert gateway.request("GET", "/").code == "backend_unreachable"


def test_a_cut_answer_on_a_unix_socket_does_not_look_whole(tmp_path: Path) -> None:
    def script(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")

    with (
        Backend(script, path=tmp_path / "s") as backend,
        running(one_route(backend.url)) as gateway,
        gateway.client() as client,
    ):
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        client.read_head()
        assert client.read_up_to(100) == b"hello"
        assert client.at_end()


def test_what_cannot_be_used_says_where_and_why(authority: Authority, tmp_path: Path) -> None:
    chain, _ = authority.issue(tmp_path, "a.test", stem="a")
    _, key = authority.issue(tmp_path, "b.test", stem="b")
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    for tls, message in (
        ({"ca": str(tmp_path / "none.pem")}, "none.pem: No such file"),
        ({"ca": str(empty)}, "empty.pem holds no certificate"),
        ({"certificate": str(chain), "key": str(key)}, "do not make a pair"),
        ({"certificate": str(chain)}, "certificate and key are needed together"),
    ):
        with pytest.raises(ValueError, match=rf"^backends\.cloud\.tls: .*{message}"):
            check(over_tls("https://a.test", **tls))
    with pytest.raises(ValueError, match="none of its servers begins with https"):
        check(over_tls("http://a.test", server_name="a.test"))
    with pytest.raises(ValueError, match=r"backends\.cloud: TLS settings of a backend need gateway\.transport: own"):
        check(replace(over_tls("https://a.test", server_name="a.test"), transport="httpx"))
    with pytest.raises(ValueError, match=r"backends\.cloud: Unix sockets need gateway\.transport: own"):
        check(replace(one_route("unix:///run/a.sock", "http://b.test"), transport="httpx"))


def test_a_context_lasts_until_its_files_change(authority: Authority, tmp_path: Path) -> None:
    tls = BackendTls(ca=str(authority.bundle(tmp_path)))
    contexts = ClientContexts()
    first = contexts.get("cloud", tls)
    assert contexts.get("cloud", tls) is first
    Authority().bundle(tmp_path)
    assert contexts.get("cloud", tls) is not first
