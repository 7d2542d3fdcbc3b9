"""A model server with a known service time on a device with so many cores, and a bench that starts it in this process.

The server speaks HTTP through ASGI and reads its pool size from the variables that the real one reads.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from crossfade.demo.pictures import Upload
from crossfade.sweep.bench import Site, http_sender, server_variables
from crossfade.sweep.usage import Usage

PICTURE = Upload("a picture", b"picture", "image/jpeg")
MB = 1_000_000


@dataclass(frozen=True)
class Device:
    """``cores`` requests compute at a time, each ``service_s`` (give or take 10 %, seeded); ``thrash`` is how much
    longer each takes for every session beyond the cores that computes at the same time. ``ageing`` makes request
    number n take ``1 + ageing * n`` times as long, ``leak_bytes`` is what each leaves in memory;
    a ``broken`` function answers 503."""

    cores: int = 4
    service_s: float = 0.2
    thrash: float = 0.0
    ageing: float = 0.0
    leak_bytes: int = 0
    status: int = 200
    broken: frozenset[str] = frozenset()


class ScriptedServer:
    """One server: a pool of sessions in front of the cores."""

    def __init__(self, device: Device, pool: int, functions: Sequence[str]) -> None:
        self.device, self.served = device, 0
        self._sessions = {name: asyncio.Semaphore(pool) for name in functions}
        self._cores = asyncio.Semaphore(device.cores)
        self._running = 0
        self._draw = random.Random(5)
        self.app = Starlette(routes=[Route(f"/v1/{name}", self._serve, methods=["POST"]) for name in functions])

    async def _serve(self, request: Request) -> Response:
        function = request.url.path.removeprefix("/v1/")
        if function in self.device.broken:
            return Response(status_code=503)
        async with self._sessions[function]:
            self._running += 1
            try:
                async with self._cores:
                    self.served += 1
                    await asyncio.sleep(self._service_s())
            finally:
                self._running -= 1
        return Response(status_code=self.device.status)

    def _service_s(self) -> float:
        device = self.device
        crowd = 1 + device.thrash * max(0, self._running - device.cores)
        return device.service_s * self._draw.uniform(0.9, 1.1) * crowd * (1 + device.ageing * self.served)


@dataclass
class ScriptedMeter:
    """Says what a script says: all cores are busy, each session takes 1 MB, and strangers use as many cores in each
    measurement as the list says."""

    server: ScriptedServer
    pool: int
    strangers: list[float] = field(default_factory=list)

    def start(self) -> None:
        pass

    def stop(self) -> Usage:
        cores = self.server.device.cores
        strangers = self.strangers.pop(0) if self.strangers else 0.0
        busy = min(float(min(self.pool, cores)), cores - strangers)
        return Usage(busy, 0.0, busy + strangers, cores, self.memory_bytes(), 10_000 * MB)

    def memory_bytes(self) -> int:
        return 500 * MB + self.pool * MB + self.server.served * self.server.device.leak_bytes


@dataclass
class ScriptedBench:
    """Starts scripted servers; ``at_start`` is called with the pool size before each."""

    device: Device
    at_start: Callable[[int], None] = lambda pool: None
    open_servers: list[int] = field(default_factory=list)

    def describe(self) -> str:
        return f"a script of {self.device.cores} cores"

    @asynccontextmanager
    async def serve(self, functions: Sequence[str], pool: int) -> AsyncIterator[Site]:
        self.at_start(pool)
        sizes = dict(pair.split("=") for pair in server_variables(functions, pool)["ONPREM_POOL_SIZES"].split(","))
        assert set(sizes.values()) == {str(pool)}
        server = ScriptedServer(self.device, pool, functions)
        self.open_servers.append(pool)
        try:
            transport = httpx.ASGITransport(server.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://scripted", timeout=None) as client:
                yield Site(lambda name: http_sender(client, name, [PICTURE]), ScriptedMeter(server, pool))
        finally:
            self.open_servers.remove(pool)
