"""Large bodies wait on disk: whole for the shadow and the store, out of memory, bounded, nameless, never in the way."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import os
import stat
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shadow.courtesy import Courtesy
from shadow.exchange import Body, Exchange, SkipReason
from shadow.rule import MirrorLimits
from shadow.spool import BLOCK_BYTES, CALM_S, Spool, is_whole, let_go, nameless_files
from shadow.tee import ByteBudget, Tee
from tests.fakes.shadow_server import Received, ShadowServer, answers, read_request, waits
from tests.shadow.bench import Bench, exchange_of, mirroring, targets_of

pytestmark = pytest.mark.anyio

MEBIBYTE = 1024 * 1024
LIMITS = MirrorLimits(max_concurrent=2, spool_above_bytes=100_000, spool_budget_bytes=8 * MEBIBYTE)
PIECE = 65_536


def teed(bench: Bench, data: bytes) -> tuple[Body, SkipReason | None]:
    """Feed the data as the gateway does, piece by piece."""
    tee = Tee(bench.budget, 64 * MEBIBYTE, bench.disk)
    for at in range(0, len(data), PIECE):
        tee.feed(data[at : at + PIECE])
    return tee.finish(), tee.lost


def send(bench: Bench, exchange: Exchange) -> None:
    """Hand over what was teed: its reservation is there already."""
    bench.received[exchange.route] += 1
    bench.budget.try_reserve(exchange.primary.body.held_bytes if exchange.primary.body else 0)
    bench.mirror.tap(exchange)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what another thread does has no event here
            await asyncio.sleep(0.001)


def _hold(event: threading.Event) -> None:
    assert event.wait(30)


def files_held() -> list[str]:
    """Return the modes of all nameless files that this process has open."""
    modes = []
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}").endswith("(deleted)"):
                modes.append(stat.filemode(os.stat(f"/proc/self/fd/{number}").st_mode))
        except FileNotFoundError:
            continue
    return modes


async def test_the_digest_of_a_body_on_disk_is_made_off_the_loop_and_known_when_the_file_is_gone() -> None:
    data = os.urandom(MEBIBYTE)
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url), limits=LIMITS) as bench:
        hold = threading.Event()
        bench.disk.submit(partial(_hold, hold))  # the writer thread does nothing meanwhile
        body, _ = teed(bench, data)
        digest = asyncio.create_task(asyncio.to_thread(lambda: body.sha256))
        await asyncio.sleep(0)
        assert not digest.done()
        hold.set()
        assert await digest == hashlib.sha256(data).hexdigest()
        send(bench, exchange_of(body=body))
        await bench.drained()
        await until(lambda: bench.disk.used_bytes == 0)
        assert body.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [100_001, BLOCK_BYTES, 4 * BLOCK_BYTES, 3 * MEBIBYTE + 7])
async def test_a_large_body_waits_on_disk_and_reaches_shadow_and_store_whole(size: int, tmp_path: Path) -> None:
    data, gate, before = os.urandom(size), asyncio.Event(), len(files_held())
    async with (
        ShadowServer(waits(gate, answers(os.urandom(size)))) as server,
        mirroring(targets_of(server.url), limits=LIMITS, open_file=nameless_files(str(tmp_path))) as bench,
    ):
        body, lost = teed(bench, data)
        assert (lost, body.on_disk, body.held_bytes) == (None, True, 0)
        exchange = exchange_of(body=body)
        send(bench, exchange)
        await until(lambda: bench.budget.used_bytes == exchange.held_bytes)
        assert bench.disk.disk.used_bytes == size
        assert os.listdir(tmp_path) == []
        assert files_held()[before:] == ["-rw-------"]
        gate.set()
        await bench.drained()
        (stored,) = bench.store.saved
        assert b"".join(stored.request.body) == server.received[0].body == data
        assert stored.shadow is not None
        assert stored.shadow.body is not None
        assert stored.shadow.body.size_bytes == len(b"".join(stored.shadow.body)) == size
        await until(lambda: len(files_held()) == before)


async def test_a_large_body_stays_in_memory_until_that_is_scarce() -> None:
    memory = ByteBudget(8 * MEBIBYTE)
    disk = Spool(memory, above_bytes=100_000, total_bytes=8 * MEBIBYTE, spare_bytes=MEBIBYTE)
    bodies = []
    for size in (MEBIBYTE - 100_001, 100_001, 100_000, 100_001):
        tee = Tee(memory, MEBIBYTE, disk)
        tee.feed(bytes(size))
        bodies.append(tee.finish())
    assert [body.on_disk for body in bodies] == [False, False, False, True]
    let_go(bodies[-1])
    await disk.aclose()


async def test_a_small_body_never_touches_the_disk() -> None:
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url), limits=LIMITS) as bench:
        body, _ = teed(bench, bytes(100_000))
        assert (body.on_disk, bench.disk.disk.used_bytes) == (False, 0)
        send(bench, exchange_of(body=body))


async def test_budget_full_when_the_disks_share_is_used_up() -> None:
    limits = replace(LIMITS, spool_budget_bytes=300_000)
    async with ShadowServer(answers()) as server, mirroring(targets_of(server.url), limits=limits) as bench:
        body, lost = teed(bench, bytes(300_001))
        assert (lost, body.chunks, body.size_bytes) == (SkipReason.BUDGET_FULL, None, 300_001)
        await until(lambda: (bench.budget.used_bytes, bench.disk.disk.used_bytes) == (0, 0))
        body, lost = teed(bench, bytes(300_000))
        assert (lost, body.on_disk) == (None, True)
        send(bench, exchange_of(body=body))


async def test_budget_full_when_the_disk_fails_and_over_when_it_works_again(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    async with (
        ShadowServer(answers()) as server,
        mirroring(targets_of(server.url), limits=LIMITS, open_file=nameless_files(str(folder))) as bench,
    ):
        for n in range(3):
            send(bench, exchange_of(f"id-{n}", body=teed(bench, bytes(200_000))[0]))
        await bench.drained()
        assert bench.skipped() == {SkipReason.BUDGET_FULL: 3}
        folder.mkdir()
        send(bench, exchange_of("after", body=teed(bench, bytes(200_000))[0]))
        await bench.drained()
        assert bench.account().recorded == 1


async def test_a_disk_that_fails_now_and_then_is_told_of_once_until_it_is_calm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that is full takes a little whenever a file has gone: two lines for each would fill the log."""
    caplog.set_level(logging.INFO)
    now_s, folder, memory = [0.0], tmp_path / "now-and-then", ByteBudget(MEBIBYTE)
    courtesy, open_file = Courtesy(clock=lambda: now_s[0]), nameless_files(str(folder))
    disk = Spool(memory, above_bytes=10, total_bytes=MEBIBYTE, courtesy=courtesy, open_file=open_file)

    async def put(*, works: bool) -> None:
        if works:
            folder.mkdir(exist_ok=True)
        elif folder.exists():
            folder.rmdir()
        tee = Tee(memory, MEBIBYTE, disk)
        tee.feed(bytes(1000))
        body = tee.finish()
        assert await is_whole(body) is works
        let_go(body)

    for _ in range(2):
        for _ in range(5):
            await put(works=False)
            now_s[0] += CALM_S / 2
            await put(works=True)
        now_s[0] += CALM_S / 2
        await put(works=True)
    await disk.aclose()
    said = [record.getMessage() for record in caplog.records if record.name == "shadow.spool"]
    assert (
        said
        == [
            f"spooling to disk fails ({os.strerror(errno.ENOENT)}): large bodies are not mirrored",
            "spooling to disk works again",
        ]
        * 2
    )


async def test_a_full_disk_costs_an_answer_its_bytes_and_a_request_its_mirror_until_it_has_room_again(
    tmp_path: Path,
) -> None:
    data, full = os.urandom(200_000), [True]
    with_room = nameless_files(str(tmp_path))

    def open_file() -> IO[bytes]:
        return open("/dev/full", "r+b", buffering=0) if full else with_room()

    async with (
        ShadowServer(answers(data)) as server,
        mirroring(targets_of(server.url), limits=LIMITS, open_file=open_file) as bench,
    ):
        cut = (await bench.mirrored(exchange_of("small request"))).shadow
        send(bench, exchange_of("large request", body=teed(bench, data)[0]))
        await bench.drained()
        assert (bench.account().recorded, bench.skipped()) == (1, {SkipReason.BUDGET_FULL: 1})
        full.clear()
        send(bench, exchange_of("after", body=teed(bench, data)[0]))
        await bench.drained()
        after = bench.store.saved[-1]
        assert b"".join(after.request.body) == server.received[-1].body == data
    assert after.shadow is not None
    assert cut is not None
    for leg in (cut, after.shadow):
        assert leg.body is not None
        assert (leg.failure, leg.status, leg.body.size_bytes) == (None, 200, len(data))
        assert leg.body.sha256 == hashlib.sha256(data).hexdigest()
    assert cut.body is not None
    assert cut.body.chunks is None
    assert b"".join(after.shadow.body or ()) == data


class StuckDisk:
    """Files whose writes wait until ``release``: pipes that nobody reads."""

    def __init__(self) -> None:
        self._read_end, self._write_end = os.pipe()
        self._reading = threading.Thread(target=self._read, name="stuck-disk")

    def open_file(self) -> IO[bytes]:
        return os.fdopen(os.dup(self._write_end), "wb", buffering=0)

    def release(self) -> None:
        """Let all writes go through from now on."""
        self._reading.start()

    def close(self) -> None:
        """End, once all files are closed."""
        os.close(self._write_end)
        self._reading.join()
        os.close(self._read_end)

    def _read(self) -> None:
        while os.read(self._read_end, MEBIBYTE):
            pass


async def _answer_by_id(
    bodies: dict[bytes, bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: list[Received]
) -> None:
    while True:
        body = bodies[(await read_request(reader)).values(b"x-request-id")[0]]
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()


async def _mirror_with_a_held_disk(bodies: dict[bytes, bytes]) -> None:
    limits = replace(LIMITS, max_concurrent=6, byte_budget_bytes=2 * MEBIBYTE, spool_budget_bytes=16 * MEBIBYTE)
    async with (
        ShadowServer(partial(_answer_by_id, bodies)) as server,
        mirroring(targets_of(server.url, timeout_s=30), limits=limits) as bench,
    ):
        hold = threading.Event()
        bench.disk.submit(partial(_hold, hold))
        for name in bodies:
            bench.send(exchange_of(name.decode()))
        if sum(len(body) for body in bodies.values() if len(body) > limits.spool_above_bytes) > 2 * MEBIBYTE:
            await until(lambda: bench.disk.is_behind)
            await asyncio.sleep(0.1)  # whoever reads on would lose what it reads now
        _, lost = teed(bench, bytes(50_000))  # production's, which waits for nothing
        assert lost is None
        bench.budget.release(50_000)
        hold.set()
        await bench.drained(30)
        legs = {exchange.id: exchange.shadow for exchange in bench.store.saved}
    for name, body in bodies.items():
        leg = legs[name.decode()]
        assert leg is not None
        assert (leg.failure, b"".join(leg.body or ())) == (None, body)


@settings(max_examples=8, deadline=None)
@example([1_500_000] * 6)
@given(st.lists(st.integers(0, 1_500_000), min_size=1, max_size=6))
def test_no_answer_is_lost_to_a_slow_disk_and_production_has_room_meanwhile(sizes: list[int]) -> None:
    asyncio.run(_mirror_with_a_held_disk({b"id-%d" % n: os.urandom(size) for n, size in enumerate(sizes)}))


async def test_an_answer_does_not_wait_for_ever_for_a_disk_that_hangs() -> None:
    limits = replace(LIMITS, byte_budget_bytes=MEBIBYTE)
    async with (
        ShadowServer(answers(bytes(3 * MEBIBYTE))) as server,
        mirroring(targets_of(server.url, timeout_s=0.5), limits=limits) as bench,
    ):
        hold = threading.Event()
        bench.disk.submit(partial(_hold, hold))
        stored = await bench.mirrored(exchange_of())
        hold.set()
    assert stored.shadow is not None
    assert not b"".join(stored.shadow.body or ()), "hash and size, or what the timeout left of it"


async def test_a_disk_that_hangs_holds_up_no_tee_and_shows_as_a_full_budget() -> None:
    limits, disk = replace(LIMITS, byte_budget_bytes=2 * MEBIBYTE), StuckDisk()
    async with mirroring(targets_of("http://127.0.0.1:9"), limits=limits, open_file=disk.open_file) as bench:
        bodies = [teed(bench, bytes(500_000)) for _ in range(20)]  # returns, though nothing can be written
        assert [lost for _, lost in bodies[:4]] == [None] * 4
        assert {lost for _, lost in bodies[4:]} == {SkipReason.BUDGET_FULL}
        for n, (body, lost) in enumerate(bodies):
            skipped = exchange_of(f"id-{n}", body=body, skipped=lost)
            primary = replace(skipped.primary, body=None)
            send(bench, replace(skipped, primary=primary))
        await bench.mirror.aclose(0.1)
        assert bench.skipped() == {SkipReason.BUDGET_FULL: 16, SkipReason.SHUTDOWN: 4}
        disk.release()
    disk.close()
