"""Tell how far something is that may take long."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is."""

_EVERY_S = 5.0
_log = logging.getLogger(__name__)


def no_progress(_done: int, _total: int) -> None:
    """Tell nobody."""


def logged(doing: str, clock: Callable[[], float] = time.monotonic) -> Progress:
    """Return a progress that says every five seconds what is done, and nothing of what is over sooner.

    As a warning, because those come to a person on a command line that has set up no log.
    """
    told_s = clock()

    def tell(done: int, total: int) -> None:
        nonlocal told_s
        now_s = clock()
        if now_s - told_s >= _EVERY_S:
            told_s = now_s
            _log.warning("%s: %s of %s", doing, f"{done:,}", f"{total:,}")

    return tell
