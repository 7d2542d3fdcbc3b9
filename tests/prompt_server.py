"""A server that ends as soon as it is told to, for the many tests that run one for a moment."""

from __future__ import annotations

import asyncio

import uvicorn

LOOK_S = 0.01


class PromptServer(uvicorn.Server):
    """Looks a hundred times a second whether it is to end; uvicorn itself looks ten times."""

    async def main_loop(self) -> None:
        """Run until it is told to end."""
        turns = 0
        while not await self.on_tick(turns % 10):  # each tenth look renews the Date field
            turns += 1
            await asyncio.sleep(LOOK_S)
