"""The model server as a process."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

import uvicorn

from onprem_backend.app import create_app
from onprem_backend.catalog import SPECS, ModelSpec
from onprem_backend.settings import Settings, unknown_variables
from onprem_backend.tracing import tracer_from_environment

DEVICE_BROKEN_STATUS = 70
"""The exit status when the device is lost and the supervisor has to start the process again (EX_SOFTWARE)."""
_SHUTDOWN_S = 15

_log = logging.getLogger("onprem_backend")


def serve(settings: Settings, host: str, port: int, *, specs: Sequence[ModelSpec] = SPECS) -> None:
    """Serve ``specs`` until the process is told to end, or its device is lost: then the requests at hand are answered,
    and the process ends with ``DEVICE_BROKEN_STATUS``. Blocking."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    for name, near in unknown_variables(os.environ).items():
        _log.warning("%s is no setting and does nothing%s", name, f"; did you mean {near}?" if near else "")
    _check_device(settings)
    server: uvicorn.Server
    broken = False

    def end() -> None:
        nonlocal broken
        broken = True
        server.should_exit = True

    tracer = tracer_from_environment(os.environ, settings.server_name)
    config = uvicorn.Config(
        create_app(settings, specs=specs, tracer=tracer, on_broken=end),
        host=host,
        port=port,
        server_header=False,
        access_log=False,
        timeout_graceful_shutdown=_SHUTDOWN_S,
    )
    server = uvicorn.Server(config)
    server.run()
    if broken:
        _log.critical("the device is lost: ending with status %d", DEVICE_BROKEN_STATUS)
        logging.shutdown()
        sys.stdout.flush()
        os._exit(DEVICE_BROKEN_STATUS)  # a thread that hangs in the driver would keep a regular exit waiting forever
    if not server.started:
        sys.exit(3)  # as uvicorn.run does: the reason is in the log


def _check_device(settings: Settings) -> None:
    """End the process, saying what to do, when the device that was asked for is not there."""
    if settings.device in ("auto", "cpu"):
        return
    from onprem_backend.runtime import resolve_device

    try:
        resolve_device(settings.device, allow_cpu_fallback=settings.allow_cpu_fallback)
    except RuntimeError as error:
        _log.critical("%s; name another device, or let it go on with the CPU: ONPREM_ALLOW_CPU_FALLBACK=1", error)
        sys.exit(3)
