"""``crossfade shadow work``: take exchanges from the stream, call the shadow, store both answers."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import socket
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from crossfade.composition import ConfigFile, gateway_settings, load_checked
from crossfade.worker_page import listen, parse_address, serve
from gateway.app import open_transport
from gateway.backend_tls import ClientContexts
from gateway.fleet import Fleet
from gateway.generation import all_servers
from gateway.mirror_servers import MirrorServers
from gateway.mirroring import MIRROR_DRAIN_S, configure, open_memory
from gateway.settings import Settings
from gateway.tasks import keep_running
from shadow.errors import StoreError
from shadow.mirror import SAVE_GRACE_S, Mirror
from shadow.store.store import Store
from shadow.stream import Stream
from shadow.worker import Worker

POLL_S = 1.0
MIN_CLAIM_S, MAX_CLAIM_S = 1, 86400

_log = logging.getLogger(__name__)


def work(config: Path, claim_after_s: float | None, metrics: str | None = None) -> int:
    """Work until SIGTERM or SIGINT, then finish what is under way; return how many exchanges were stored. ``metrics``
    is where the pages are (``worker_page.parse_address``).

    Raises ``ValueError`` when the config cannot be used or has no stream, the store cannot be opened, nothing can
    listen there, or ``claim_after_s`` is out of bounds.
    """
    if claim_after_s is not None and not MIN_CLAIM_S <= claim_after_s <= MAX_CLAIM_S:
        raise ValueError(f"--claim-after is {claim_after_s:g}, but must be {MIN_CLAIM_S} to {MAX_CLAIM_S} seconds")
    settings = gateway_settings(load_checked(config, os.environ))
    if settings.stream is None:
        raise ValueError(
            f"{config}: mirror.transport is in-process, so the gateways make the shadow calls themselves; "
            "set it to redis://host:port/db for workers"
        )
    listener = listen(parse_address(metrics)) if metrics is not None else None
    return asyncio.run(_work(ConfigFile(config, os.environ), settings, claim_after_s, listener))


async def _work(
    source: ConfigFile, settings: Settings, claim_after_s: float | None, listener: socket.socket | None
) -> int:
    async with AsyncExitStack() as stack:
        worker, mirror, stream, follow = await _build(settings, claim_after_s or _longest_s(settings), stack)
        if listener is not None:
            keep_running(stack, serve(worker, mirror, stream, listener), "pages")
            host, port = listener.getsockname()[:2]
            _log.info("metrics on http://%s:%d/metrics", host, port)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, lambda: setattr(worker, "stopping", True))
        stack.push_async_callback(worker.flush)
        keep_running(stack, worker.report(), "report")
        keep_running(stack, worker.hold(), "hold")
        keep_running(stack, _follow(source, follow), "reload")
        await mirror.start()
        stack.push_async_callback(mirror.aclose, MIRROR_DRAIN_S)
        _log.info("taking exchanges from the stream")
        await worker.run(mirror.tap)
    _log.info("stored %d exchanges", worker.work.recorded)
    return worker.work.recorded


async def _build(
    settings: Settings, claim_after_s: float, stack: AsyncExitStack
) -> tuple[Worker, Mirror, Stream, Callable[[Settings], None]]:
    assert settings.stream is not None
    assert settings.store_url is not None
    assert settings.bodies_dir is not None
    limits, rule, rng = settings.mirror, settings.stream, random.SystemRandom()
    try:
        store = Store.open(settings.store_url, settings.bodies_dir, settings.keep_bodies_days, key=settings.store_key)
    except StoreError as error:
        raise ValueError(f"the store cannot be opened: {error}") from error
    stack.push_async_callback(store.aclose)
    stream = Stream(rule.url, max_length=rule.max_length, max_bytes=rule.max_bytes)
    stack.push_async_callback(stream.aclose)
    budget, disk = open_memory(limits, stack)
    transport = open_transport(settings)
    stack.push_async_callback(transport.aclose)
    name = f"{socket.gethostname()}-{os.getpid()}"
    worker = Worker(
        stream, store.reader().parts, budget, name=name, at_once=limits.max_concurrent, claim_after_s=claim_after_s
    )
    mirror = Mirror(
        transport=transport,
        store=store,
        budget=budget,
        limits=limits,
        clock=time.monotonic,
        rng=rng,
        stamp=worker.stamp_of,
        settled=worker.settled,
        disk=disk,
    )
    fleet, contexts = Fleet(time.monotonic, rng), ClientContexts()
    servers = MirrorServers(fleet, time.monotonic, rng)

    def follow(settings: Settings) -> None:
        fleet.configure(settings.backends)
        configure(settings, all_servers(settings, contexts), mirror, servers, store)

    follow(settings)
    return worker, mirror, stream, follow


def _longest_s(settings: Settings) -> float:
    """Return after how long an entry can be taken to be in dead hands: a shadow call, a control call, a save."""
    return 2 * max(backend.timeout_s for backend in settings.backends.values()) + 2 * SAVE_GRACE_S


async def _follow(source: ConfigFile, follow: Callable[[Settings], None]) -> None:
    """Take up changes of routes and backends in the config file."""
    seen = source.fingerprint()
    while True:
        await asyncio.sleep(POLL_S)
        if (now := source.fingerprint()) == seen:
            continue
        seen = now
        try:
            follow(source.load())
        except ValueError as error:
            _log.error("the config is not taken up: %s", error)
