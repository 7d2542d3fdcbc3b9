"""The gateway's own transport: HTTP/1.1 to every backend, on a pool of connections.

What it does with an ``httpx.Request``: method, ``extensions["target"]`` and the raw header list go out as they are,
and nothing is added. Understood extensions: ``timeout`` (``connect``, ``read``, ``write`` and ``pool`` as httpx has
them, and ``total`` for all of it), ``target``, ``sni_hostname``, ``unix_socket`` (a path), ``origin`` (what
``origin_of`` made of the URL and these two, so that it need not be done for every request), and ``trace``, which is
called with ``connection.open.started`` when a connection is opened for this request, and not when one is used again.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Mapping

import httpx

from gateway.transport.answer import Answer, AnswerLimits, Reuse
from gateway.transport.connection import Connection
from gateway.transport.head import encode_request
from gateway.transport.pool import Origin, Pool, PoolLimits
from gateway.transport.resolver import Lookup, Resolver, look_up
from gateway.transport.round_trip import Patience, RoundTrip
from shadow.message import LightResponse

Waits = Mapping[str, float | None]
_NO_LIMITS: Waits = {}


class OwnTransport(httpx.AsyncBaseTransport):
    """Belongs to the event loop that it is first used on. ``tls`` is the client's context for https; without one,
    certificates are verified against the usual authorities.

    Host names are looked up with ``lookup``. ``endings`` counts what became of the connections after each answer.
    """

    def __init__(
        self,
        *,
        pool: PoolLimits | None = None,
        answers: AnswerLimits | None = None,
        tls: ssl.SSLContext | None = None,
        lookup: Lookup = look_up,
    ) -> None:
        self._resolver = Resolver(lookup)
        self.endings: Counter[Reuse] = Counter()
        self._pool = Pool(pool or PoolLimits())
        self._answers = answers or AnswerLimits()
        self._tls = tls
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def pool(self) -> Pool:
        """The pool, to be looked at."""
        return self._pool

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request and return its answer as soon as the head is there. The response must be closed."""
        loop = self._loop = self._loop or asyncio.get_running_loop()
        extensions = request.extensions
        waits: Waits = extensions.get("timeout", _NO_LIMITS)
        total_s = waits.get("total")
        end_s = None if total_s is None else loop.time() + total_s
        target = extensions.get("target") or request.url.raw_path
        head = encode_request(request.method, target, request.headers.raw)
        origin = _origin_of(request)
        connection = self._pool.take_idle(origin, loop.time()) or await self._open(request, origin, waits, end_s, loop)
        round_trip = RoundTrip(
            connection,
            Answer(request.method, self._answers),
            Patience(waits.get("read"), waits.get("write"), end_s),
            loop,
            self._take_back,
        )
        try:
            await round_trip.send(head, request.stream)
        except BaseException:
            await round_trip.aclose()
            raise
        answer = round_trip.head
        told = {"http_version": b"HTTP/" + answer.version, "reason_phrase": answer.reason}
        return LightResponse(answer.status, answer.fields, round_trip, told)

    async def aclose(self) -> None:
        """Close every connection; requests that are under way fail."""
        await self._pool.aclose()

    async def _open(
        self,
        request: httpx.Request,
        origin: Origin,
        waits: Waits,
        end_s: float | None,
        loop: asyncio.AbstractEventLoop,
    ) -> Connection:
        extensions, connect_s = request.extensions, waits.get("connect")

        async def connect(on_lost: Callable[[Connection], None]) -> Connection:
            if "trace" in extensions:
                await extensions["trace"]("connection.open.started", {})
            left_s = None if end_s is None else end_s - loop.time()
            return await self._connect(origin, _least(connect_s, left_s), on_lost)

        left_s = None if end_s is None else end_s - loop.time()
        return await self._pool.open_one(origin, connect, _least(waits.get("pool"), left_s))

    def _take_back(self, connection: Connection, reuse: Reuse) -> None:
        self.endings[reuse] += 1
        if reuse is Reuse.YES:
            assert self._loop is not None, "it lent the connection"
            self._pool.put_back(connection, self._loop.time())

    async def _connect(
        self, origin: Origin, within_s: float | None, on_lost: Callable[[Connection], None]
    ) -> Connection:
        loop = asyncio.get_running_loop()
        connection = Connection(loop, on_lost)
        tls = (origin.context or self._context()) if origin.name is not None else None
        try:
            async with asyncio.timeout(within_s):
                if origin.socket_path is not None:
                    await loop.create_unix_connection(
                        lambda: connection, origin.socket_path, ssl=tls, server_hostname=origin.name
                    )
                else:
                    reached = await self._reach(origin)
                    await loop.create_connection(lambda: connection, sock=reached, ssl=tls, server_hostname=origin.name)
        except TimeoutError as error:
            connection.abort()
            raise httpx.ConnectTimeout("the server did not accept in time") from error
        except (OSError, UnicodeError) as error:  # refused, unreachable, no such name, a certificate that does not fit
            connection.abort()
            raise httpx.ConnectError(f"no connection to the server: {type(error).__name__}") from error
        except BaseException:
            connection.abort()
            raise
        return connection

    async def _reach(self, origin: Origin) -> socket.socket:
        """Connect to the first of the host's addresses that accepts. Raises ``OSError`` or ``UnicodeError``."""
        refused: OSError | None = None
        for family, address in await self._resolver.addresses(origin.host, origin.port):
            # The protocol by its name, or asyncio would not set TCP_NODELAY.
            reached = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            try:
                reached.setblocking(False)
                await asyncio.get_running_loop().sock_connect(reached, address)
            except OSError as error:
                reached.close()
                refused = error
            except BaseException:
                reached.close()
                raise
            else:
                return reached
        raise refused or OSError("the name has no address")

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = httpx.create_ssl_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


def origin_of(
    url: httpx.URL,
    *,
    name: str | None = None,
    socket_path: str | None = None,
    context: ssl.SSLContext | None = None,
) -> Origin:
    """Return where requests for the URL go. ``name`` stands for the URL's host in TLS, ``socket_path`` in connecting;
    ``context`` is for a server that needs one of its own.

    Raises ``httpx.UnsupportedProtocol``.
    """
    if url.scheme not in ("http", "https"):
        raise httpx.UnsupportedProtocol("only http and https are spoken")
    secure = url.scheme == "https"
    port = url.port or (443 if secure else 80)
    return Origin(url.host, port, (name or url.host) if secure else None, socket_path, context if secure else None)


def _origin_of(request: httpx.Request) -> Origin:
    known: Origin | None = request.extensions.get("origin")
    if known is not None:
        return known
    extensions = request.extensions
    return origin_of(request.url, name=extensions.get("sni_hostname"), socket_path=extensions.get("unix_socket"))


def _least(first_s: float | None, second_s: float | None) -> float | None:
    known = [seconds for seconds in (first_s, second_s) if seconds is not None]
    return min(known, default=None)
