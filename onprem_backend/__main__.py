"""``python -m onprem_backend``: serve the models of a folder. The environment sets what the options do not."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from onprem_backend.server import serve
from onprem_backend.settings import ENGINES, PRECISIONS, settings_from_environment


def main() -> int:
    """Parse the command line and serve; return the exit status."""
    parser = argparse.ArgumentParser(prog="onprem_backend", description="Serve picture models over HTTP.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9002)
    parser.add_argument("--models", type=Path, help="the models folder (default: models)")
    parser.add_argument("--engine", choices=ENGINES, help="what runs the ONNX models (default: torch)")
    parser.add_argument("--device", help="auto, cpu, cuda or cuda:N (default: auto)")
    parser.add_argument("--precision", choices=PRECISIONS, help="what models that can do with less compute in")
    arguments = parser.parse_args()
    try:
        settings = settings_from_environment(
            os.environ,
            models_dir=arguments.models,
            engine=arguments.engine,
            device=arguments.device,
            precision=arguments.precision,
        )
    except ValueError as error:
        parser.error(str(error))
    serve(settings, arguments.host, arguments.port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
