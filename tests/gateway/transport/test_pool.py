"""Connections are lent last-used first, never past the caps; whatever is cancelled, no socket and no slot is lost."""

from __future__ import annotations

import asyncio
import random

import httpx
import pytest

from gateway.transport.connection import Connection
from gateway.transport.own import OwnTransport
from gateway.transport.pool import Origin, Pool, PoolLimits
from tests.fakes.shadow_server import Received, ShadowServer, answers, black_hole, endless, never_answers, read_request
from tests.gateway.transport.line import Line, closed, line, open_sockets, says, until

pytestmark = pytest.mark.anyio


async def held(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
    """Answer a request with the number of its connection's first request, when its body comes to an end."""
    number = b"%d" % len(received)
    while True:
        received.append(await read_request(reader))
        await asyncio.sleep(0.02)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(number), number))


async def test_the_connection_used_last_is_used_first() -> None:
    async with line(held) as server:
        await asyncio.gather(*(server.ask() for _ in range(3)))
        assert (server.opened, server.transport.pool.idle) == (3, 3)
        last = (await server.ask())[1]
        assert [(await server.ask())[1] for _ in range(5)] == [last] * 5
        assert server.opened == 3


async def test_never_more_connections_than_the_cap_and_everyone_is_served_in_turn() -> None:
    most, order = 0, list[int]()

    async def ask(number: int) -> None:
        assert (await server.ask())[0] == 200
        order.append(number)

    async with line(held, pool=PoolLimits(per_server=3)) as server:
        asking = [asyncio.create_task(ask(number)) for number in range(12)]
        while not all(task.done() for task in asking):
            most = max(most, server.transport.pool.open)
            await asyncio.sleep(0)
        await asyncio.gather(*asking)
        assert (most, server.opened) == (3, 3)
        assert [number // 3 for number in order] == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3


async def test_a_server_without_a_slot_gets_the_idle_one_of_another() -> None:
    async with (
        closed(OwnTransport(pool=PoolLimits(total=2))) as transport,
        ShadowServer(answers(b"a")) as one,
        ShadowServer(answers(b"b")) as other,
    ):
        first, second = Line(transport, one.url, one), Line(transport, other.url, other)
        for _ in range(3):
            assert (await first.ask())[1] == b"a"
            assert (await second.ask())[1] == b"b"
        assert (transport.pool.open, transport.pool.idle) == (2, 2)
        assert [body for _, body in await asyncio.gather(*(first.ask() for _ in range(4)))] == [b"a"] * 4
        assert (await second.ask())[1] == b"b"
        assert transport.pool.open <= 2


async def test_a_waiter_gets_the_slot_of_a_connection_that_ended() -> None:
    async with line(says(b"HTTP/1.1 200 OK\r\n\r\nbye", then="close"), pool=PoolLimits(per_server=1)) as server:
        seen = await asyncio.gather(*(server.ask() for _ in range(5)))
        assert [body for _, body in seen] == [b"bye"] * 5
        assert server.opened == 5


async def test_too_many_waiters_are_refused_at_once() -> None:
    async with line(never_answers(), pool=PoolLimits(per_server=1, waiting=2)) as server:
        asking = [asyncio.create_task(server.ask()) for _ in range(3)]
        await until(lambda: server.transport.pool.waiting == 2)
        with pytest.raises(httpx.PoolTimeout):
            await server.ask()
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
        await until(lambda: server.transport.pool.open == 0)


async def test_idle_connections_end_before_the_server_would_end_them() -> None:
    async with line(answers(), pool=PoolLimits(idle_s=1.0)) as server:
        await server.ask()
        assert server.transport.pool.idle == 1
        await until(lambda: server.transport.pool.open == 0)
        await server.ask()
        assert server.opened == 2


async def test_an_idle_connection_that_the_server_closed_is_not_used() -> None:
    ended = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, received: list[Received]) -> None:
        received.append(await read_request(reader))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await ended.wait()

    async with line(script) as server:
        await server.ask()
        ended.set()
        await until(lambda: server.transport.pool.idle == 0)
        await server.ask()
        assert (server.opened, len(server.received)) == (2, 2)


async def test_a_cancellation_at_any_moment_loses_no_socket_and_no_slot() -> None:
    """Cancel after every possible number of turns of the loop: queued, connecting, sending, waiting, reading."""
    before = open_sockets()
    async with line(answers(b"x" * 100), pool=PoolLimits(per_server=2)) as server:
        for turns in range(60):
            asking = [asyncio.create_task(server.ask()) for _ in range(5)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)
            await until(lambda: server.transport.pool.open == server.transport.pool.idle <= 2)
            assert server.transport.pool.waiting == 0
            if turns % 2:
                assert (await server.ask())[0] == 200
        assert await server.ask() == (200, b"x" * 100)
        await until(lambda: open_sockets() - before <= 2 + 2 + 1)


async def test_cancelling_at_random_under_load_keeps_the_account() -> None:
    chance = random.Random(5)
    async with line(held, pool=PoolLimits(per_server=4)) as server:
        asking = [asyncio.create_task(server.ask()) for _ in range(60)]
        while left := [task for task in asking if not task.done()]:
            chance.choice(left).cancel()
            await asyncio.sleep(chance.choice([0, 0, 0.001, 0.005]))
            assert server.transport.pool.open <= 4
        results = await asyncio.gather(*asking, return_exceptions=True)
        assert all(isinstance(result, (tuple, asyncio.CancelledError)) for result in results)
        await until(lambda: server.transport.pool.open == server.transport.pool.idle)
        seen = await asyncio.gather(*(server.ask() for _ in range(8)))
        assert [status for status, _ in seen] == [200] * 8


async def test_a_cancellation_while_connecting_leaves_no_socket() -> None:
    before = open_sockets()
    with black_hole() as url:
        async with closed(OwnTransport()) as transport:
            server = Line(transport, url)
            for turns in range(20):
                asking = asyncio.create_task(server.ask())
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.wait({asking})
                assert transport.pool.open == 0
    await until(lambda: open_sockets() <= before)


async def test_p14_aborted_downloads_and_error_replies_drain_no_pool() -> None:
    error = b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops"
    async with (
        closed(OwnTransport(pool=PoolLimits(total=4, per_server=4))) as transport,
        ShadowServer(endless()) as stream,
        ShadowServer(says(error)) as failing,
        ShadowServer(answers()) as good,
    ):
        for number in range(20):
            response = await Line(transport, stream.url, stream).start()
            if number % 2:
                await anext(aiter(response.stream))  # type: ignore[arg-type]
            await response.aclose()
        for _ in range(20):
            assert (await Line(transport, failing.url, failing).ask())[0] == 500
        async with asyncio.timeout(20):
            assert (await Line(transport, good.url, good).ask())[0] == 200
        await until(lambda: transport.pool.open == transport.pool.idle == 2)
        assert failing.connections == good.connections == 1


async def test_a_connection_that_ends_while_it_is_handed_on_is_not_used() -> None:
    """The pool alone, to hold the moment: a connection is put back, handed to a waiter, and lost before it wakes."""
    loop = asyncio.get_running_loop()
    made: list[Connection] = []
    pool, server = Pool(PoolLimits(per_server=1)), Origin("server.test", 80)

    async def connect(on_lost: object) -> Connection:
        assert callable(on_lost)
        made.append(Connection(loop, on_lost))
        return made[-1]

    first = await pool.open_one(server, connect, None)
    waiting = asyncio.create_task(pool.open_one(server, connect, 1.0))
    await until(lambda: pool.waiting == 1)
    pool.put_back(first, loop.time())
    first.connection_lost(None)
    second = await waiting
    assert (second is made[1], pool.open, pool.idle) == (True, 1, 0)
    second.connection_lost(None)
    await pool.aclose()
    assert pool.open == 0
