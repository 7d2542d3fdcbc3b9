"""Work that lasts only as long as its client is there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

R = TypeVar("R")


async def until_disconnect(receive: Receive, work: Coroutine[None, None, R]) -> R:
    """Do the work, but only as long as the client is there. The body has been read, so all that can come is its
    leaving. Raises ``ClientDisconnect``, and what the work raises."""
    working = asyncio.create_task(work, name="request-work")
    watching = asyncio.create_task(_disconnected(receive), name="request-watch")
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
