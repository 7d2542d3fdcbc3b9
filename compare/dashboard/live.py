"""What moves: traffic, the mirror's health, limits that were hit, a job's progress, each second, by EventSource.

One look a second serves every page that is open. A look asks the gateways (``gateways`` blocks; it is injected) and the
store; what does not answer is said, not guessed. The words are made here, so that a page only puts text into places.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from compare.dashboard.errors import TOO_MANY_EYES, as_problem
from compare.dashboard.phrases import language_of, translate
from compare.dashboard.snapshot import GatewayView, Progress, Snapshot
from compare.dashboard.views.livewords import live_bars, live_texts

INTERVAL_S = 1.0
MAX_PAGES = 64
_WINDOW = 6


class Feed:
    """Looks once a second, however many pages are open. Owned by the app; touched on its event loop only."""

    def __init__(
        self,
        gateways: Callable[[], GatewayView],
        progress: Callable[[], Mapping[str, Progress]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gateways, self._progress, self._clock = gateways, progress, clock
        self._received: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=_WINDOW)
        self._lock = anyio.Lock()
        self._last: Snapshot | None = None
        self._looked_s = float("-inf")
        self._pages = 0

    async def look(self) -> Snapshot:
        """Return a snapshot that is at most a second old."""
        async with self._lock:
            if self._last is None or self._clock() - self._looked_s >= INTERVAL_S * 0.9:
                self._last = await anyio.to_thread.run_sync(self._snapshot, self._last)
                self._looked_s = self._clock()
            return self._last

    def _snapshot(self, last: Snapshot | None) -> Snapshot:
        gateway, progress = self._gateways(), self._progress()
        if gateway.reached:
            self._received.append((self._clock(), gateway.received))
        before = last.progress if last is not None else progress
        comparing = {route for route, p in progress.items() if p.measured > before.get(route, p).measured}
        return Snapshot(gateway, progress, self._rates() if gateway.reached else {}, frozenset(comparing))

    def _rates(self) -> Mapping[str, float | None]:
        (then_s, then), (now_s, now) = self._received[0], self._received[-1]
        if now_s <= then_s:
            return dict.fromkeys(now)
        # A gateway that began anew counts from zero: its rate is known again after the next looks.
        grown = {route: n - then.get(route, 0) for route, n in now.items()}
        return {route: n / (now_s - then_s) if n >= 0 else None for route, n in grown.items()}

    async def stream(self, request: Request) -> Response:
        """Answer with events until the page is closed."""
        if self._pages >= MAX_PAGES:
            return as_problem(TOO_MANY_EYES)
        headers = {"x-accel-buffering": "no"}
        return StreamingResponse(self._events(request), media_type="text/event-stream", headers=headers)

    async def _events(self, request: Request) -> AsyncIterator[bytes]:
        self._pages += 1
        language = language_of(request)
        try:
            while not await request.is_disconnected():
                snapshot = await self.look()
                texts = {name: translate(text, language) for name, text in live_texts(snapshot).items()}
                said = {"texts": texts, "bars": live_bars(snapshot), "reached": snapshot.gateway.reached}
                yield f"data: {json.dumps(said)}\n\n".encode()
                await anyio.sleep(INTERVAL_S)
        finally:
            self._pages -= 1
