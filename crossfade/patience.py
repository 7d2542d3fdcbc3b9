"""Wait for a call so long and no longer. A database that refuses says so at once; one that hangs says nothing for hours
(a stopped server, a network that swallows packets), and whoever watches production must not hang with it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from shadow.errors import StoreError

T = TypeVar("T")


class StoreHangs(StoreError):
    """A call of the store has not come back in time."""


class Patience:
    """Makes one call after the other, each in a thread of its own. Not safe to share between threads.

    A call that does not come back in time is left to itself, and until it does every other is refused: so no two are
    ever under way, and what a late one still does is seen by the next.
    """

    def __init__(self, most_s: float) -> None:
        """Wait ``most_s`` for each call."""
        self._most_s = most_s
        self._last: Future[object] | None = None

    def __call__(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, or raise what it raises. Raises ``StoreHangs``."""
        if self._last is not None and not self._last.done():
            raise StoreHangs("a call of the store still hangs")
        result: Future[T] = Future()
        self._last = result  # type: ignore[assignment]

        def run() -> None:
            try:
                result.set_result(work())
            except BaseException as error:  # handed over, and raised where it is waited for
                result.set_exception(error)

        threading.Thread(target=run, name="store call", daemon=True).start()
        try:
            return result.result(self._most_s)
        except TimeoutError:
            if result.done():
                raise
            raise StoreHangs(f"a call of the store has not come back for {self._most_s:g} s") from None
