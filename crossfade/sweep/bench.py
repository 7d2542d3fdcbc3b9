"""Where a sweep runs: a bench starts a server with a pool size and lends a site to load it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx

from crossfade.demo.pictures import Upload, uploads
from crossfade.demo.processes import (
    POLL_S,
    READY_TIMEOUT_S,
    Processes,
    ProcessFailed,
    Spec,
    child_environment,
    free_port,
)
from crossfade.sweep.gpu import find_nvidia_smi, read_gpus
from crossfade.sweep.load import Send
from crossfade.sweep.meter import Meter, ServerMeter
from crossfade.sweep.proc import core_count, memory_limit_bytes

SWITCHES = {
    "classify": "ENABLE_CLASSIFY",
    "remove-background": "ENABLE_REMOVER",
    "face-blur": "ENABLE_FACEBLUR",
    "restore": "ENABLE_RESTORE",
    "erase": "ENABLE_ERASER",
}
"""The model server's functions and the variables that switch them on."""
PICTURES = 40


@dataclass(frozen=True, slots=True)
class Site:
    """A running server: ``send(function)`` makes the sender of a function's requests, ``meter`` watches it."""

    send: Callable[[str], Send]
    meter: Meter


class Bench(Protocol):
    """Starts servers, one after another."""

    def describe(self) -> str:
        """Return what the servers run on, for a person."""
        ...

    def serve(self, functions: Sequence[str], pool: int) -> AbstractAsyncContextManager[Site]:
        """Run a server of ``functions`` with ``pool`` sessions each until the block ends."""
        ...


class OnpremBench:
    """Starts ``crossfade onprem`` on loopback, with only the functions that are measured.

    The server inherits this process's environment, so its other settings (``ONPREM_THREADS``, ``ONPREM_DEVICE``, …)
    are measured as they are set. ``folder`` gets its log.
    """

    def __init__(self, models: Path, folder: Path, *, query: str = "", seed: int = 1) -> None:
        self._models, self._folder, self._query, self._seed = models, folder, query, seed
        self._nvidia_smi = find_nvidia_smi()
        self._pictures: dict[str, tuple[Upload, ...]] = {}

    def describe(self) -> str:
        """Return cores, memory and GPUs of this machine."""
        state = read_gpus(self._nvidia_smi) if self._nvidia_smi else None
        return f"{core_count():g} cores, {memory_limit_bytes() / 1e9:.0f} GB, {state.name if state else 'no GPU'}"

    @asynccontextmanager
    async def serve(self, functions: Sequence[str], pool: int) -> AsyncIterator[Site]:
        """Start the server and wait until it is ready. Raises ``ProcessFailed``."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        spec = Spec(
            f"onprem-{pool}",
            "crossfade.cli",
            ["onprem", "--port", str(port), "--models", str(self._models)],
            f"{url}/v2/health/live",
        )
        pictures = {name: self._pictures_of(name) for name in functions}
        with Processes(self._folder, child_environment(server_variables(functions, pool))) as processes:
            processes.start(spec)
            await asyncio.to_thread(processes.wait_ready)
            await wait_models(url)
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
            async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits, trust_env=False) as client:  # noqa: S113 - the load has its own deadline
                yield Site(
                    lambda name: http_sender(client, name, pictures[name], self._query),
                    ServerMeter(processes.pid(spec.name), self._nvidia_smi),
                )

    def _pictures_of(self, function: str) -> tuple[Upload, ...]:
        """Make the pictures of a function, once: drawing them takes longer than a short load."""
        if function not in self._pictures:
            self._pictures[function] = tuple(uploads(function, PICTURES, self._seed))
        return self._pictures[function]


async def wait_models(url: str) -> None:
    """Wait until the server's models are ready. Raises ``ProcessFailed`` when none of them can be, or after 120 s."""
    async with httpx.AsyncClient(base_url=url, timeout=5, trust_env=False) as client:
        try:
            async with asyncio.timeout(READY_TIMEOUT_S):
                while (answer := await client.get("/v2/health/ready")).status_code != 200:
                    states = answer.json().get("models", {})
                    if states and "loading" not in states.values():
                        named = ", ".join(f"{name} is {state}" for name, state in states.items())
                        raise ProcessFailed(f"the server has no model to run: {named}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise ProcessFailed(f"the server was not ready after {READY_TIMEOUT_S:g} s") from None


def server_variables(functions: Sequence[str], pool: int) -> dict[str, str]:
    """Return the variables that give a server ``functions`` alone, each with ``pool`` sessions."""
    switches = {variable: str(int(name in functions)) for name, variable in SWITCHES.items()}
    sizes = ",".join(f"{name}={pool}" for name in functions)
    return {**switches, "ONPREM_POOL_SIZES": sizes, "ONPREM_POOL_SIZE": str(pool)}


def http_sender(client: httpx.AsyncClient, function: str, pictures: Sequence[Upload], query: str = "") -> Send:
    """Return a sender that posts the pictures one after another, from the first again after the last."""
    path = f"/v1/{function}" + (f"?{query}" if query else "")

    async def send(index: int) -> int:
        picture = pictures[index % len(pictures)]
        try:
            answer = await client.post(path, content=picture.body, headers={"content-type": picture.content_type})
        except httpx.TransportError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
        return answer.status_code

    return send
