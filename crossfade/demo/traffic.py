"""Send the demo's pictures to the gateway as a client would, a few at a time, and note what came back."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import httpx

from crossfade.demo.pictures import Upload, uploads

CLIENTS = 3
MAX_IN_FLIGHT = 24
"""Pairs that may wait for their shadow before the clients pause: this machine also runs both backends."""
PAUSE_S = 0.25
REQUEST_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Sent:
    """What the clients saw: answers by (route, status), and failures to answer at all."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        """Return a sentence for everything that a healthy run does not show."""
        bad = [
            f"{count} answers of {route} had status {status}"
            for (route, status), count in self.answers.items()
            if status != 200
        ]
        return bad + self.failures[:5]


async def send_all(gateway: str, counts: Mapping[str, int], advance: Callable[[str], None]) -> Sent:
    """Send ``counts[route]`` uploads of every route, spread evenly, and call ``advance(route)`` after each answer."""
    sent = Sent()
    order = iter(_interleaved(counts))
    async with httpx.AsyncClient(base_url=gateway, timeout=REQUEST_TIMEOUT_S, trust_env=False) as client:
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(_client(client, order, sent, advance), name=f"client-{number}")
        return sent


async def in_flight(client: httpx.AsyncClient) -> int:
    """Return how many received requests are neither recorded nor skipped yet."""
    status = (await client.get("/-/status")).json()
    return sum(int(route["account"]["in_flight"]) for route in status["routes"].values())


async def wait_drained(gateway: str, timeout_s: float) -> bool:
    """Wait until every received request is recorded or skipped; False when that took longer than ``timeout_s``."""
    async with httpx.AsyncClient(base_url=gateway, timeout=5, trust_env=False) as client:
        for _ in range(int(timeout_s / PAUSE_S)):
            if await in_flight(client) == 0:
                return True
            await asyncio.sleep(PAUSE_S)
    return False


async def _client(
    client: httpx.AsyncClient, order: Iterator[tuple[str, Upload]], sent: Sent, advance: Callable[[str], None]
) -> None:
    for route, upload in order:
        await _wait_for_room(client)
        try:
            answer = await client.post(
                f"/v1/{route}", content=upload.body, headers={"Content-Type": upload.content_type}
            )
            sent.answers[route, answer.status_code] += 1
        except httpx.HTTPError as error:
            sent.failures.append(f"{route}, {upload.name}: no answer ({type(error).__name__})")
        advance(route)


async def _wait_for_room(client: httpx.AsyncClient) -> None:
    while await in_flight(client) > MAX_IN_FLIGHT:  # noqa: ASYNC110 - another process's state, there is no event for it
        await asyncio.sleep(PAUSE_S)


def _interleaved(counts: Mapping[str, int]) -> Iterator[tuple[str, Upload]]:
    """Yield every upload of every route so that all routes run from the first second to the last."""
    sources = {route: uploads(route, count) for route, count in counts.items()}
    places = sorted((index / count, route) for route, count in counts.items() for index in range(count))
    for _, route in places:
        yield route, next(sources[route])
