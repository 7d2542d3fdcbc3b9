"""Give exchanges to the store, many at a time and beside the calls: a slow store takes no place of a call, and has
enough to write to write in batches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from shadow.account import Stamp
from shadow.errors import StoreError, StreamFull
from shadow.exchange import Exchange, SkipReason

_log = logging.getLogger(__name__)


class ExchangeStore(Protocol):
    """Where exchanges go. The implementation redacts, and answers in bounded time."""

    async def save(
        self, exchange: Exchange, secret_names: frozenset[str] = frozenset(), stamp: Stamp | None = None
    ) -> int:
        """Write the exchange, with the account that the stamp is of, and return its sequence. Raises ``StoreError``."""


class Saver:
    """Saves up to ``at_once`` exchanges at a time, each in a task of its own. ``stamp`` returns the account of the
    exchange's run and route as of now, to be stored with it; ``note_defect`` is called where an error of ours was
    caught."""

    def __init__(
        self,
        store: ExchangeStore,
        at_once: int,
        stamp: Callable[[Exchange], Stamp] | None,
        note_defect: Callable[[str, Exchange], None],
    ) -> None:
        self.works = True
        self.tasks: set[asyncio.Task[None]] = set()
        self._store = store
        self._stamp = stamp
        self._note_defect = note_defect
        self._places = asyncio.Semaphore(at_once)

    async def take_place(self) -> None:
        """Wait until one more can be saved; ``begin`` must follow."""
        await self._places.acquire()

    def begin(
        self, exchange: Exchange, secret_names: frozenset[str], settle: Callable[[SkipReason | None], None]
    ) -> None:
        """Save the exchange in the place that was taken, and say once that it is recorded (``None``), or why not."""
        task = asyncio.create_task(self._keep(exchange, secret_names, settle), name="mirror-save")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _keep(
        self, exchange: Exchange, secret_names: frozenset[str], settle: Callable[[SkipReason | None], None]
    ) -> None:
        outcome: SkipReason | None = SkipReason.LOST
        try:
            outcome = await self._save(exchange, secret_names)
        except asyncio.CancelledError:
            outcome = SkipReason.SHUTDOWN
            raise
        except Exception:
            self._note_defect("saving failed", exchange)
        finally:
            self._places.release()
            settle(outcome)

    async def _save(self, exchange: Exchange, secret_names: frozenset[str]) -> SkipReason | None:
        try:
            stamp = self._stamp(exchange) if self._stamp is not None else None
            await self._store.save(exchange, secret_names, stamp)
        except StreamFull:
            return SkipReason.QUEUE_FULL
        except StoreError as error:
            self._note_state(works=False, detail=str(error))
            return SkipReason.STORE_FAILED
        self._note_state(works=True)
        return None

    def _note_state(self, *, works: bool, detail: str = "") -> None:
        # One line per change of state: an outage under load must not flood the log.
        if works is not self.works:
            self.works = works
            _log.log(
                logging.INFO if works else logging.ERROR,
                "the store %s",
                "works again" if works else f"failed, exchanges are lost: {detail}",
            )
