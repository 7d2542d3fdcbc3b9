"""The answer to an album: one line of JSON per picture, in the order they become ready.

``application/x-ndjson``. Each line has the picture's ``index`` in the album, its ``name``, ``status`` and
``headers``, and then either ``media_type`` and ``body`` (base64), or ``document``, or ``problem`` (RFC 9457). The last
line is ``{"done": true, "pictures": N, "failed": M}``; an answer without it was cut off. One line per picture was
preferred to multipart/mixed because every client can read it while it comes; the price is a third more bytes.

At most ``window`` pictures are on their way at a time, and a client that reads slowly holds the next ones back.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onprem_backend.albums import Item
from onprem_backend.clients import until_disconnect
from onprem_backend.pictures import Ask, Pictures
from onprem_backend.problems import Problem

MEDIA_TYPE = "application/x-ndjson"

_log = logging.getLogger("onprem_backend")


class AlbumAnswer(Response):
    """Streams an album's results. ``held`` is what the album holds until its last result is sent."""

    media_type = MEDIA_TYPE

    def __init__(self, pictures: Pictures, ask: Ask, items: Sequence[Item], window: int, held: ExitStack) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._pictures = pictures
        self._ask = ask
        self._items = deque(enumerate(items))
        self._window = window
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the last picture, or until the client has gone."""
        with self._held:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            try:
                await until_disconnect(receive, self._send_lines(send))
            except ClientDisconnect:
                return  # nobody is left to be told

    async def _send_lines(self, send: Send) -> None:
        async with aclosing(self._lines()) as lines:
            async for line in lines:
                await send({"type": "http.response.body", "body": line, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _lines(self) -> AsyncGenerator[bytes, None]:
        count = len(self._items)
        failed = 0
        running: set[asyncio.Task[tuple[bytes, bool]]] = set()
        try:
            while self._items or running:
                while self._items and len(running) < self._window:
                    index, item = self._items.popleft()
                    running.add(asyncio.create_task(self._line(index, item), name=f"album-picture-{index}"))
                ready, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in ready:
                    line, good = task.result()
                    failed += not good
                    yield line
            yield _encode({"done": True, "pictures": count, "failed": failed})
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _line(self, index: int, item: Item) -> tuple[bytes, bool]:
        """Return one picture's line, and whether it is a result."""
        head = {"index": index, "name": item.name}
        try:
            response = await self._answer(item)
        except Problem as problem:
            document = problem.document()
            if problem.retry_after_s is not None:
                document["retry_after_s"] = problem.retry_after_s
            return _encode({**head, "status": problem.status, "problem": document}), False
        except Exception:  # the boundary of one picture's work: the album goes on
            _log.exception("picture %d of an album failed", index)
            fallen = Problem("internal_error", "the server failed; its log says why")
            return _encode({**head, "status": fallen.status, "problem": fallen.document()}), False
        return await self._pictures.in_codec(lambda: _encode({**head, **_described(response)})), True

    async def _answer(self, item: Item) -> Response:
        with self._pictures.budget.reservation() as reservation:
            reservation.take(item.size_bytes)
            image = await self._pictures.in_codec(item.read)
            mask = None if item.mask is None else await self._pictures.in_codec(item.mask)
            return await self._pictures.answer(self._ask, image, mask)


def _described(response: Response) -> dict[str, object]:
    """Turn one picture's answer into the members of a line."""
    kept = ("x-model", "x-frames", "x-faces", "x-face-boxes", "server-timing")
    headers = {name: response.headers[name] for name in kept if name in response.headers}
    described: dict[str, object] = {"status": response.status_code, "headers": headers}
    body = bytes(response.body)
    if response.media_type == "application/json":
        return {**described, "document": json.loads(body)}
    return {**described, "media_type": response.media_type, "body": base64.b64encode(body).decode("ascii")}


def _encode(line: dict[str, object]) -> bytes:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
