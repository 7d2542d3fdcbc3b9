"""The on-prem server of the demo with one fault put in on purpose. Without one the demo runs ``crossfade onprem``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import uvicorn

from crossfade.demo.faults import Faulty, parse_fault
from onprem_backend.app import create_app
from onprem_backend.settings import settings_from_environment


def main() -> None:
    """Serve until a signal ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--fault", required=True)
    arguments = parser.parse_args()
    settings = settings_from_environment(os.environ, models_dir=arguments.models, device="auto", engine="torch")
    app = Faulty(create_app(settings), parse_fault(arguments.fault))
    print(f"this on-prem server is wrong on purpose: {arguments.fault}", flush=True)
    uvicorn.run(app, host="127.0.0.1", port=arguments.port, log_level="warning", server_header=False)


if __name__ == "__main__":
    main()
