"""A real uvicorn on a free port, in a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette

from compare.dashboard.server import guard
from tests.prompt_server import PromptServer

STOP_TIMEOUT_S = 15.0


@contextmanager
def running(app: Starlette, host: str = "127.0.0.1") -> Iterator[str]:
    """Yield the address of the app as it is guarded for ``host``; on the way out the server has ended.

    The socket listens before the server runs, so that nobody has to wait: early connections queue.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = PromptServer(
            uvicorn.Config(
                guard(app, host), log_level="critical", lifespan="off", ws="none", timeout_graceful_shutdown=1
            )
        )
        thread = threading.Thread(target=server.run, args=([listener],), name="dashboard under test")
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(STOP_TIMEOUT_S)
            assert not thread.is_alive()
