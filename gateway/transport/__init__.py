"""The way to the backends: HTTP/1.1 over asyncio protocols, as an ``httpx.AsyncBaseTransport``.

``head`` and ``chunked`` and ``answer`` read and write bytes and know no socket; ``connection`` moves them, ``pool``
lends connections out, ``round_trip`` carries one request through one connection, and ``own`` is the transport.

Every failure is the ``httpx`` error that httpx's own transport would raise, so that callers need not know which of the
two they have:

* ``PoolTimeout``, ``ConnectTimeout``, ``ConnectError``: nothing was sent;
* ``WriteTimeout``, ``WriteError``: the request was not taken, and no answer came either;
* ``ReadTimeout``, ``ReadError``: no answer, or the rest of it never came;
* ``RemoteProtocolError``: what came is no HTTP/1.1 answer, or the connection ended in the middle of one;
* ``LocalProtocolError``: the request cannot be sent as it is; the caller's fault.
"""
