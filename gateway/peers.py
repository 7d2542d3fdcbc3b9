"""How the workers of one gateway know each other's numbers, so that whoever is asked can answer for the whole.

Each worker listens on a Unix socket in the gateway's private folder and gives every connection one snapshot as JSON.
A worker that does not answer in time, because it is being restarted, is left out and shown as missing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.place import Place

ANSWER_S = 1.0
MAX_BYTES = 16 * 1024 * 1024

Snapshot = dict[str, Any]


class Peers:
    """The other workers. ``snapshot`` returns this worker's own numbers: plain values, taken when somebody asks."""

    def __init__(self, place: Place, snapshot: Callable[[], Snapshot]) -> None:
        self.place = place
        self._snapshot = snapshot
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen for the others; in a gateway of one there is nobody."""
        if self.place.folder is not None:
            self._server = await asyncio.start_unix_server(self._answer, self._path(self.place.number))

    async def aclose(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def gather(self) -> dict[int, Snapshot]:
        """Return the snapshots of all workers that answer, by number; always with this one's own."""
        others = [number for number in range(self.place.count) if number != self.place.number]
        answers = await asyncio.gather(*(self._ask(number) for number in others))
        found = {number: answer for number, answer in zip(others, answers, strict=True) if answer is not None}
        return {self.place.number: self._snapshot(), **found}

    async def _ask(self, number: int) -> Snapshot | None:
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self._path(number), limit=MAX_BYTES)
                try:
                    answer: Snapshot = json.loads(await reader.read(-1))
                    return answer
                finally:
                    writer.close()
        except (OSError, TimeoutError, ValueError):
            return None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                writer.write(json.dumps(self._snapshot()).encode())
                await writer.drain()
        except (OSError, TimeoutError):
            return  # who asked has gone, and will ask again
        finally:
            writer.close()

    def _path(self, number: int) -> str:
        assert self.place.folder is not None, "only a gateway of several workers has peers"
        return str(Path(self.place.folder) / f"{number}.sock")
