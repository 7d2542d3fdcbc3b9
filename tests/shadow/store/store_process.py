"""A writer in a process of its own: saves, and says what is safe. Run it as a module (``python -m``)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from shadow.store.store import Store
from tests.shadow.bench import body_of, exchange_of

CONCURRENT = 8


async def write(folder: Path, name: str, count: int) -> None:
    """Save ``count`` exchanges, eight at a time, each body a file of its own; print each id once saved."""
    store = Store.open(f"sqlite:///{folder}/crossfade.db", folder / "bodies")
    left = iter(range(count))

    async def save_some() -> None:
        for number in left:
            exchange = exchange_of(f"{name}-{number}", body=body_of(f"{name}-{number}".encode() * 2000))
            await store.save(exchange)
            print(exchange.id, flush=True)

    async with asyncio.TaskGroup() as group:
        for number in range(CONCURRENT):
            group.create_task(save_some(), name=f"saver-{number}")
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
