"""Take up new settings while requests are served.

States: *applied* is the generation that new requests use; *rejected* is the message of the last settings that could not
be applied, until better ones come. Only the poll changes them. What cannot happen: a half-applied configuration, or a
broken one in use.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from gateway.generation import Generation
from gateway.settings import Settings, SettingsSource

POLL_S = 0.25

_log = logging.getLogger(__name__)


class Reloader:
    """Owns the current generation, at first the one given, which was built from the settings with this fingerprint.
    ``build`` makes one from settings or raises ``ValueError``; ``count`` is told of each change whether it was
    applied."""

    def __init__(
        self,
        source: SettingsSource,
        build: Callable[[Settings], Generation],
        *,
        current: Generation,
        fingerprint: str,
        count: Callable[[bool], None],
        poll_s: float = POLL_S,
    ) -> None:
        self._source = source
        self._build = build
        self._count = count
        self._poll_s = poll_s
        self._asked = asyncio.Event()
        self._seen = fingerprint
        self._current = current
        self._applied = fingerprint
        self._rejected: str | None = None

    def current(self) -> Generation:
        """Return the generation that a new request is to use."""
        return self._current

    def status(self) -> dict[str, str | None]:
        """Return what is applied and what was refused, for the status page."""
        return {
            "applied": self._applied,
            "applied_at": self._current.applied_at.isoformat(),
            "rejected": self._rejected,
        }

    def request(self) -> None:
        """Load the settings soon, changed or not: a file that they name may have changed."""
        self._seen = ""
        self._asked.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._asked.wait()
            self._asked.clear()
            await self.poll()

    async def poll(self) -> None:
        """Look once for a change and take it up. A source that cannot be read is a rejected change."""
        try:
            seen = self._source.fingerprint()
        except (ValueError, OSError) as error:
            self._seen = ""  # so that the next readable state is looked at, changed or not
            self._reject(error)
            return
        if seen == self._seen:
            return
        self._seen = seen  # before loading: what changes during the load is seen by the next poll
        try:
            self._current = self._build(await asyncio.to_thread(self._source.load))
        except (ValueError, OSError) as error:
            self._reject(error)
        except Exception as error:  # a defect must not end the task: later changes are still taken up
            _log.exception("the settings met a defect")
            self._reject(ValueError(f"the settings met a defect ({type(error).__name__}); the log says where"))
        else:
            self._applied, self._rejected = seen, None
            self._count(True)
            _log.info("new settings applied")

    def _reject(self, error: Exception) -> None:
        message = str(error) if isinstance(error, ValueError) else f"the settings cannot be read: {error}"
        if message == self._rejected:
            return
        self._rejected = message
        self._count(False)
        _log.error("new settings rejected, the old ones stay: %s", message)
