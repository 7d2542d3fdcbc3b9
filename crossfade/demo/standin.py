"""The cloud stand-in: the same model server in another process, behind a face like an Azure ML online endpoint.

It demands a Bearer key, adds the latency of a distant data centre, and says in its ``Server`` header and its banner
that it stands in for a cloud. It runs ONNX models on onnxruntime, so the two sides really are two implementations.
Run it with ``python -m crossfade.demo.standin``.
"""

from __future__ import annotations

import argparse
import asyncio
import hmac
import json
import math
import os
import random
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from onprem_backend.app import create_app
from onprem_backend.settings import settings_from_environment

SERVER_NAME = "crossfade-cloud-stand-in"
MEDIAN_LATENCY_S = 0.150
LATENCY_SIGMA = 0.25
"""Shape of the lognormal extra latency: the 95th percentile is exp(1.645 * 0.25) = 1.5 times the median."""
KEY_VARIABLE = "CLOUD_KEY"


class CloudFace:
    """ASGI wrapper: Bearer key, extra latency. Health paths need neither."""

    def __init__(self, app: ASGIApp, key: str, draw: random.Random) -> None:
        self._app, self._expected, self._draw = app, f"Bearer {key}".encode(), draw

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/v2/health"):
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, self._expected):
            await _refuse(send)
            return
        await asyncio.sleep(self._draw.lognormvariate(math.log(MEDIAN_LATENCY_S), LATENCY_SIGMA))
        await self._app(scope, receive, send)


async def _refuse(send: Send) -> None:
    body = json.dumps({"error": {"code": "Unauthorized", "message": "Access denied: a valid Bearer key is required."}})
    headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})


def main() -> None:
    """Serve until a signal ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--models", type=Path, required=True)
    arguments = parser.parse_args()
    settings = settings_from_environment(
        os.environ, models_dir=arguments.models, device="cpu", engine="onnxruntime", server_name=SERVER_NAME
    )
    app = CloudFace(create_app(settings), os.environ[KEY_VARIABLE], random.Random(11))  # noqa: S311 - latency, no secret
    print(f"{SERVER_NAME}: this process stands in for a metered cloud endpoint; it is not one", flush=True)
    uvicorn.run(app, host="127.0.0.1", port=arguments.port, log_level="warning", server_header=False)


if __name__ == "__main__":
    main()
