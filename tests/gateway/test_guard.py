"""What guards a client's connection, on a real socket."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from gateway.guard import GOODBYE_S, Guard
from gateway.head import HeadLimits
from gateway.problem import Problem

pytestmark = pytest.mark.anyio
SIZE = 16_000_000


def _no_problem(problem: Problem) -> None:
    raise AssertionError(problem)


async def test_a_drain_breaks_no_connection_whose_client_still_reads() -> None:
    loop = asyncio.get_running_loop()
    guard = Guard(loop, HeadLimits(), lambda: b"", _no_problem)

    class _Ending(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            ending = cast(asyncio.Transport, transport)
            ending.write(b"x" * SIZE)
            ending.close()
            assert ending.get_write_buffer_size() > 0
            guard.say_goodbye(ending)

    async with asyncio.timeout(60), await loop.create_server(_Ending, "127.0.0.1", 0) as server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await asyncio.sleep(GOODBYE_S * 1.3)
        assert len(await reader.read(-1)) == SIZE
        writer.close()
