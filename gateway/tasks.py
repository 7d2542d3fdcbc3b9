"""Work that goes on beside the requests for as long as the gateway lives."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from typing import Any

_log = logging.getLogger(__name__)


def keep_running(stack: AsyncExitStack, work: Coroutine[Any, Any, None], name: str) -> None:
    """Run the work until the stack is closed. A defect that ends it earlier is logged at once."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_defect)
    stack.push_async_callback(_cancel, task)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _log_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("%s ended by a defect", task.get_name(), exc_info=task.exception())
