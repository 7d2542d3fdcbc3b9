"""A running gateway for tests: the real server, protocol and transport on loopback, in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import uvicorn

from gateway.app import Parts, create_app
from gateway.head import HeadLimits
from gateway.server import server_config
from gateway.settings import Backend, LimitSettings, Route, Settings
from shadow.exchange import Exchange
from shadow.rule import ShadowRule
from tests.gateway.client import Answer, Client, encode
from tests.prompt_server import PromptServer

WAIT_S = 30.0
SOON_S = 5.0
"""Within this comes what waits for no timeout: those of the tests' backends are far longer, and on a busy machine a
process may be away for a second or two."""
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})


@dataclass
class MemorySource:
    """A settings source whose settings a test replaces; a ``ValueError`` in their place is what loading raises."""

    settings: Settings | ValueError
    version: int = 0
    loads: int = 0

    def replace(self, settings: Settings | ValueError) -> None:
        """Put other settings in."""
        self.settings = settings
        self.version += 1

    def fingerprint(self) -> str:
        """Return the version."""
        return f"v{self.version}"

    def load(self) -> Settings:
        """Return or raise what is there."""
        self.loads += 1
        if isinstance(self.settings, ValueError):
            raise self.settings
        return self.settings


@dataclass
class Taps:
    """A tap that keeps what it is given."""

    exchanges: list[Exchange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._changed = threading.Condition()

    def __call__(self, exchange: Exchange) -> None:
        """Take an exchange."""
        with self._changed:
            self.exchanges.append(exchange)
            self._changed.notify_all()

    def wait(self, count: int = 1) -> list[Exchange]:
        """Wait until there are exactly so many; return them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.exchanges) >= count, WAIT_S), self.exchanges
            assert len(self.exchanges) == count
            return list(self.exchanges)


class _Server(PromptServer):
    """Tells when it is up, and what it left behind."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()
        self.left_tasks: list[str] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start and say so."""
        await super().startup(sockets)
        self.up.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End and look round."""
        await super().shutdown(sockets)
        current = asyncio.current_task()
        self.left_tasks = [task.get_name() for task in asyncio.all_tasks() if task is not current and _is_ours(task)]


def _is_ours(task: asyncio.Task[Any]) -> bool:
    return "LifespanOn" not in repr(task.get_coro())


@dataclass
class Running:
    """A gateway that serves on ``port``."""

    port: int
    source: MemorySource
    taps: Taps

    def client(self) -> Client:
        """Open a connection."""
        return Client(self.port)

    def request(
        self,
        method: str,
        target: bytes | str,
        fields: list[tuple[bytes, bytes]] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Send one request on a connection of its own."""
        with self.client() as client:
            return client.request(method, target, fields, body)

    def send(self, data: bytes, method: str = "GET") -> Answer:
        """Send raw bytes on a connection of its own and read one answer."""
        with self.client() as client:
            client.send(data)
            return client.read(method)

    def status(self) -> Any:
        """Read the status page."""
        return self.request("GET", "/-/status").json()

    def wait_status(self, condition: Callable[[Any], bool]) -> Any:
        """Read the status page over one connection until the condition holds, for at most ``WAIT_S``."""
        until = time.monotonic() + WAIT_S
        with self.client() as client:
            while time.monotonic() < until:
                client.send(encode("GET", "/-/status"))
                status = client.read().json()
                if condition(status):
                    return status
                time.sleep(0.002)
        raise AssertionError(f"the status never came to it: {status}")


def applied(version: int) -> Callable[[Any], bool]:
    """Return the condition that the status shows this version of the settings as applied."""
    return lambda status: bool(status["config"]["applied"] == f"v{version}")


def one_route(*urls: str, **changes: Any) -> Settings:
    """Return settings with one route for everything, to a cloud at the first URL and an on-prem backend at the last."""
    backends = {
        "cloud": Backend("cloud", (urls[0],), timeout_s=WAIT_S),
        "onprem": Backend("onprem", (urls[-1],), timeout_s=WAIT_S),
    }
    route = Route(
        name="all", path="/*", methods=METHODS, baseline="cloud", candidate="onprem", active={"cloud": 100},
        shadow=ShadowRule(percent=100, methods=METHODS),
    )  # fmt: skip
    settings = Settings(backends=backends, routes=(route,), transport=chosen_transport(), parser=chosen_parser())
    return with_route(settings, **changes)


def chosen_transport() -> str:
    """Return the transport that this run is to be made with: the ``each_transport`` fixture sets it, or a person."""
    return os.environ.get("CROSSFADE_TEST_TRANSPORT", "own")


def chosen_parser() -> str:
    """Return the parser that this run is to be made with: the ``each_parser`` fixture sets it, or a person."""
    return os.environ.get("CROSSFADE_TEST_PARSER", "httptools")


def with_route(settings: Settings, **changes: Any) -> Settings:
    """Return the settings with the first route changed."""
    return replace(settings, routes=(replace(settings.routes[0], **changes), *settings.routes[1:]))


def with_backend(settings: Settings, name: str, **changes: Any) -> Settings:
    """Return the settings with one backend changed."""
    backends: Mapping[str, Backend] = {**settings.backends, name: replace(settings.backends[name], **changes)}
    return replace(settings, backends=backends)


def stored(settings: Settings, folder: Path) -> Settings:
    """Return the settings with a store in the folder."""
    return replace(settings, store_url=f"sqlite:///{folder}/crossfade.db", bodies_dir=str(folder / "bodies"))


def with_limits(settings: Settings, *limits: str, **changes: Any) -> Settings:
    """Return the settings with limits on the first route, counted as the changes say."""
    changed = replace(LimitSettings(timeout_s=5.0), **changes)
    return replace(with_route(settings, limits=limits), limits=changed)


def _check_the_books(gateway: Running) -> None:
    """A test that mirrors has received something, and all of it is accounted for."""
    accounts = [route["account"] for route in gateway.status()["routes"].values()]
    assert sum(account["received"] for account in accounts) > 0
    for account in accounts:
        assert account["received"] == account["recorded"] + account["in_flight"] + sum(account["skipped"].values())


@contextmanager
def running(
    settings: Settings, *, head_limits: HeadLimits | None = None, mirror: bool = False, **parts: Any
) -> Iterator[Running]:
    """Run a gateway; with ``mirror`` the real mirror takes the exchanges instead of the kept tap.

    At the end nothing may be left: no task, and every request received was handed over.
    """
    source, taps = MemorySource(settings), Taps()
    app = create_app(source, Parts(tap=None if mirror else taps, poll_s=0.02, **parts))
    sock = socket.create_server(("127.0.0.1", 0))
    config = server_config(app, host="127.0.0.1", port=0, limits=head_limits, parser=settings.parser)
    server = _Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, name="gateway")
    thread.start()
    try:
        assert server.up.wait(WAIT_S), "the gateway did not start"
        gateway = Running(int(sock.getsockname()[1]), source, taps)
        yield gateway
        if mirror:
            _check_the_books(gateway)
    finally:
        server.should_exit = True
        thread.join(WAIT_S * 2)
        sock.close()
    assert not thread.is_alive(), "the gateway did not end"
    assert server.left_tasks == []
