"""Serve the gateway with uvicorn on uvloop, in one process or several, until SIGTERM or SIGINT, then drain. SIGHUP
loads the settings anew."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import ssl
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace

import uvicorn
import uvloop
from starlette.applications import Starlette

from gateway.app import Parts, check, create_app
from gateway.head import HeadLimits
from gateway.place import Place
from gateway.protocol import bounded_protocol
from gateway.settings import SettingsSource
from gateway.supervisor import START_FAILED, Supervisor
from gateway.tls import Certificate
from gateway.websocket import MAX_MESSAGE_BYTES, ClientSide
from shadow.errors import StoreError

DRAIN_S = 30
KEEP_ALIVE_S = 65
BACKLOG = 2048
COLLECT_AFTER = 5000
"""Objects that may be made, beyond those that go, before the youngest are looked through for garbage."""

SWITCH_S = 0.0005
"""After how long a thread that works in Python is made to let the event loop go on. Python's own 5 ms are ten times
what a small request takes in all."""

CUT_S = 5.0
"""How long requests that were cut at the end of the drain may take to notice it."""

_log = logging.getLogger(__name__)


def serve(source: SettingsSource, host: str, port: int, *, workers: int = 1) -> int:
    """Serve until told to end: no new connections, requests under way finish within ``DRAIN_S``, then the mirror
    drains. Return the exit code: 0 after a clean drain, 1 when requests were cut or the gateway could not start.

    Blocks, and must run in the main thread. Raises ``ValueError`` with a message for a person when the settings are not
    valid. Logging is the caller's to set up.
    """
    settings = source.load()
    check(settings, workers)
    if settings.tls is not None:
        Certificate(settings.tls)
    try:
        listeners = _listen(host, port, workers)
    except OSError as error:
        why = (error.strerror or str(error)).partition(" (")[0]  # the socket module's remark repeats the address
        _log.error("cannot listen on %s port %d: %s. Another place is named by gateway.listen", host, port, why)
        return 1
    if workers == 1:
        return min(1, _run_worker(source, listeners[0], Place()))
    with tempfile.TemporaryDirectory(prefix="crossfade-") as folder:

        def work(number: int, listener: socket.socket, alive_end: int) -> int:
            return _run_worker(source, listener, Place(number, workers, folder), alive_end)

        return Supervisor(work, listeners).run()


def server_config(
    app: Starlette,
    *,
    host: str,
    port: int,
    limits: HeadLimits | None = None,
    tls: ssl.SSLContext | None = None,
    parser: str = "httptools",
) -> uvicorn.Config:
    """Return uvicorn's configuration: no header of its own, no trust in anybody's, bounded heads and messages."""
    state = app.state
    return uvicorn.Config(
        state.front,
        interface="asgi3",
        host=host,
        port=port,
        loop="uvloop",
        http=bounded_protocol(limits or HeadLimits(), state.takes_websocket, state.date, state.note_stray, parser),
        ws=ClientSide,
        ws_max_size=MAX_MESSAGE_BYTES,
        ws_per_message_deflate=False,
        lifespan="on",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        access_log=False,
        log_config=None,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
        ssl_context_factory=None if tls is None else lambda config, default: tls,
    )


def settle_interpreter() -> None:
    """Leave what the start has made out of every later garbage collection, collect less often, and let no thread hold
    up the event loop for long.

    At Python's 700 objects more than before, a few requests at once begin a collection, again and again, and it finds
    nothing: what a request makes is freed by counting, but for what failures leave, some 100 objects each.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER)
    sys.setswitchinterval(SWITCH_S)


class _Server(uvicorn.Server):
    """uvicorn's server with the process left to us: it neither handles signals nor raises them again at its end."""

    was_cut = False

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain; afterwards nothing of the server runs any more."""
        await super().shutdown(sockets)
        left = set(self.server_state.tasks)
        self.was_cut = bool(left)
        if left:
            await asyncio.wait(left, timeout=CUT_S)


def _listen(host: str, port: int, count: int) -> list[socket.socket]:
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    listeners: list[socket.socket] = []
    try:
        for _ in range(count):
            # Every socket gets the first one's port, also where that was left to the system.
            place = (address[0], listeners[0].getsockname()[1], *address[2:]) if listeners else address
            listeners.append(socket.create_server(place, family=family, backlog=BACKLOG, reuse_port=count > 1))
    except OSError:
        for listener in listeners:
            listener.close()
        raise
    return listeners


def _run_worker(source: SettingsSource, listener: socket.socket, place: Place, alive_end: int | None = None) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(source, listener, place, alive_end))


async def _serve(source: SettingsSource, listener: socket.socket, place: Place, alive_end: int | None) -> int:
    settings = source.load()
    certificate = Certificate(settings.tls) if settings.tls is not None else None
    app = create_app(source, replace(Parts(), place=place))
    tls = certificate.context if certificate is not None else None
    config = server_config(app, host="", port=0, tls=tls, parser=settings.parser)
    config.lifespan = "off"  # it is entered here, so that it ends after the drain and its errors come to us
    server = _Server(config)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, app.state.reload)
    _heed_signals(server, alive_end)
    try:
        async with contextlib.AsyncExitStack() as stack:
            if not await _start(stack, app):
                return START_FAILED
            if certificate is not None:
                renewal = asyncio.create_task(certificate.run(), name="certificate")
                stack.callback(renewal.cancel)
            settle_interpreter()
            scheme, (host, port) = "http" if tls is None else "https", listener.getsockname()[:2]
            name = f"[{host}]" if ":" in host else host
            _log.info("serving at %s://%s:%d, the account of every request at /-/status", scheme, name, port)
            await server.serve(sockets=[listener])
    finally:
        listener.close()
    return int(server.was_cut)


async def _start(stack: contextlib.AsyncExitStack, app: Starlette) -> bool:
    try:
        await stack.enter_async_context(app.router.lifespan_context(app))
    except (StoreError, OSError, ValueError) as error:
        _log.error("the gateway cannot start: %s", error)
        return False
    return True


def _heed_signals(server: uvicorn.Server, alive_end: int | None) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.handle_exit, number, None)
    if alive_end is not None:

        def end_with_supervisor() -> None:
            loop.remove_reader(alive_end)
            server.handle_exit(signal.SIGTERM, None)

        loop.add_reader(alive_end, end_with_supervisor)
