"""Active health checks: one task for each server whose backend asks for them.

A check is a GET of the backend's path, on the connections that requests use, with the backend's own credential. Nothing
is decided here: the results go to the fleet, which counts them against the thresholds.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence

import httpx

from gateway.generation import Server
from gateway.settings import Backend, HealthCheck

DRAIN_BYTES = 64 * 1024
"""Of an answer, so that its connection can be used again; a longer one is dropped with its connection."""

_log = logging.getLogger(__name__)

Note = Callable[[str, str, bool], None]


class HealthChecks:
    """Owns the tasks. ``note`` is told backend, server and whether the check succeeded; ``transport`` is lent."""

    def __init__(self, transport: httpx.AsyncBaseTransport, note: Note, rng: random.Random) -> None:
        self._transport = transport
        self._note = note
        self._rng = rng
        self._tasks: dict[tuple[Backend, str], asyncio.Task[None]] = {}

    def configure(self, backends: Mapping[str, Backend], servers: Mapping[str, Sequence[Server]]) -> None:
        """Check these servers from now on and no others. What stays the same goes on undisturbed."""
        wanted = {
            (backend, server.name): server
            for backend in backends.values()
            if backend.rules.check is not None
            for server in servers[backend.name]
        }
        for key in self._tasks.keys() - wanted.keys():
            self._tasks.pop(key).cancel()
        for (backend, name), server in wanted.items():
            if (backend, name) not in self._tasks and backend.rules.check is not None:
                work = self._watch(backend, server, backend.rules.check)
                self._tasks[backend, name] = asyncio.create_task(work, name=f"check {name}")

    async def aclose(self) -> None:
        """End all checks."""
        tasks = set(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _watch(self, backend: Backend, server: Server, check: HealthCheck) -> None:
        await asyncio.sleep(self._rng.random() * check.interval_s)  # not all servers in the same moment
        while True:
            self._note(backend.name, server.name, await self._succeeds(backend, server, check))
            await asyncio.sleep(check.interval_s)

    async def _succeeds(self, backend: Backend, server: Server, check: HealthCheck) -> bool:
        try:
            async with asyncio.timeout(check.timeout_s):
                return await self._ask(_request(backend, server, check))
        except (TimeoutError, httpx.TransportError):
            return False
        except Exception:  # the boundary of a task that must outlive a defect
            _log.exception("a check of %s failed by a defect", server.name)
            return False

    async def _ask(self, request: httpx.Request) -> bool:
        response = await self._transport.handle_async_request(request)
        try:
            seen_bytes = 0
            assert isinstance(response.stream, httpx.AsyncByteStream)
            async for chunk in response.stream:
                seen_bytes += len(chunk)
                if seen_bytes > DRAIN_BYTES:
                    break
        finally:
            await response.aclose()
        return 200 <= response.status_code < 400


def _request(backend: Backend, server: Server, check: HealthCheck) -> httpx.Request:
    path = check.path.encode("ascii")
    timeout = dict.fromkeys(("connect", "read", "write", "pool"), check.timeout_s)
    headers = [(b"host", server.authority)]
    if backend.credential is not None:
        headers.append((backend.credential.header.encode("latin-1"), backend.credential.value.encode("latin-1")))
    return httpx.Request(
        "GET",
        server.request_url(path),
        headers=headers,
        stream=httpx.ByteStream(b""),
        extensions={"timeout": timeout, "target": server.prefix + path, "origin": server.origin},
    )
