"""A gateway whose shadow calls are made by workers: it hands over, never waits, and knows what became of everything."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from gateway.settings import Settings
from shadow.exchange import SkipReason
from shadow.rule import StreamRule
from shadow.stream import BYTES, STREAM, Stream
from shadow.transit import Parcel
from tests.fakes.backend import Backend
from tests.gateway.harness import Running, one_route, running
from tests.gateway.redis_server import RedisServer, redis_running


def streamed(cloud: Backend, redis: RedisServer, folder: Path, **bounds: int) -> Settings:
    rule = StreamRule(f"redis://127.0.0.1:{redis.port}/0", **bounds)
    settings = replace(one_route(cloud.url), stream=rule, store_url=f"sqlite:///{folder}/crossfade.db")
    return replace(settings, bodies_dir=str(folder / "bodies"))


def account(status: Any) -> Any:
    found = status["routes"]["all"]["account"]
    assert found["balanced"], found
    return found


def skipped(gateway: Running, reason: SkipReason, count: int) -> Any:
    """Wait until so many are skipped for the reason; the account balances at every look before."""
    deadline_s = time.monotonic() + 30
    while (found := account(gateway.status()))["skipped"].get(reason) != count:
        assert time.monotonic() < deadline_s, found
        time.sleep(0.05)  # the books are settled once a second
    return found


def send(gateway: Running, count: int, body: bytes = b"x" * 20_000) -> float:
    """Send so many requests; return what the slowest but one in ten took, in seconds."""
    took_s = []
    with gateway.client() as client:
        for _ in range(count):
            began_s = time.monotonic()
            assert client.request("POST", "/", [(b"Authorization", b"Bearer s3cret")], body).body == b"cloud"
            took_s.append(time.monotonic() - began_s)
    return sorted(took_s)[count * 9 // 10 - 1 if count > 1 else 0]


def test_what_is_handed_over_is_in_flight_until_a_worker_stored_it_and_redis_reads_none_of_it(
    cloud: Backend, redis_server: RedisServer, tmp_path: Path
) -> None:
    with running(streamed(cloud, redis_server, tmp_path), mirror=True) as gateway:
        send(gateway, 3, b"a picture of a person")
        with redis_server.connect() as client:
            gateway.wait_status(lambda _: client.xlen(STREAM) == 3)
            text = repr(client.xrange(STREAM))
        found = account(gateway.status())
    assert (found["received"], found["in_flight"], found["recorded"]) == (3, 3, 0)
    for private in ("person", "s3cret", "Authorization", "authorization", "cloud"):
        assert private not in text


@pytest.mark.parametrize("bounds", [{"max_length": 4}, {"max_bytes": 100_000}])
def test_queue_full_when_the_stream_has_no_room(
    cloud: Backend, redis_server: RedisServer, tmp_path: Path, bounds: dict[str, int]
) -> None:
    with running(streamed(cloud, redis_server, tmp_path, **bounds), mirror=True) as gateway:
        send(gateway, 10)
        with redis_server.connect() as client:
            gateway.wait_status(lambda status: account(status)["skipped"].get(SkipReason.QUEUE_FULL) == 6)
            assert client.xlen(STREAM) == 4
            assert int(client.get(BYTES)) <= 100_000
        assert account(gateway.status())["in_flight"] == 4


def test_store_failed_while_redis_is_down_and_lost_what_it_took_with_it(
    cloud: Backend, redis_server: RedisServer, tmp_path: Path
) -> None:
    with running(streamed(cloud, redis_server, tmp_path), mirror=True) as gateway:
        send(gateway, 5)
        with redis_server.connect() as client:
            gateway.wait_status(lambda _: client.xlen(STREAM) == 5)
        redis_server.kill()
        assert send(gateway, 20) < 0.5, "Redis down costs production nothing"
        down = account(gateway.wait_status(lambda status: status["mirror"]["in_flight"] == 0))
        refused = down["skipped"][SkipReason.STORE_FAILED]
        assert refused >= 1
        redis_server.start()
        found = skipped(gateway, SkipReason.LOST, 25 - refused)
        assert (found["received"], found["in_flight"]) == (25, 0)
        deadline_s = time.monotonic() + 30
        while account(gateway.status())["in_flight"] == 0:  # it recovers by itself
            assert time.monotonic() < deadline_s
            send(gateway, 1)
            time.sleep(0.1)


def test_a_redis_that_hangs_costs_production_nothing(cloud: Backend, redis_server: RedisServer, tmp_path: Path) -> None:
    with running(streamed(cloud, redis_server, tmp_path), mirror=True) as gateway:
        send(gateway, 1)
        redis_server.pause()
        try:
            assert send(gateway, 50) < 0.5
            assert account(gateway.status())["received"] == 51
        finally:
            redis_server.resume()


@pytest.mark.anyio
async def test_after_a_failover_the_new_primary_is_asked_though_the_old_one_stays(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    address = tmp_path / "primary.sock"
    (tmp_path / "other").mkdir()
    parcel = Parcel("id", "2026-01-01", b"sealed", 6)
    with redis_running(tmp_path / "other") as other:
        for server, name in ((redis_server, "a.sock"), (other, "b.sock")):
            server.kill()
            server.start("--unixsocket", str(tmp_path / name))
        address.symlink_to(tmp_path / "a.sock")
        stream = Stream(f"unix://{address}", max_length=10, max_bytes=1000)
        assert await stream.add(parcel, "owner")
        with redis_server.connect() as admin:
            admin.replicaof("127.0.0.1", "1")  # it keeps its connections, and refuses every entry on them
        address.unlink()
        address.symlink_to(tmp_path / "b.sock")
        with pytest.raises(ResponseError):
            await stream.add(parcel, "owner")
        assert await stream.add(parcel, "owner")
        await stream.aclose()
