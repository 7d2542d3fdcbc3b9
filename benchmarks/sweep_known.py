"""Draw the sweep of a server whose truth is known: 4 cores, 0.2 s a request, slower beyond 4 sessions. Seconds, exact.

    python -m benchmarks.sweep_known docs/sweep-known.png

The server is scripted and time is virtual, so the plot is the same on every machine: what a knee looks like.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from crossfade.sweep.output import Files
from crossfade.sweep.run import Options, run
from tests.crossfade.sweep.scripted import Device, ScriptedBench
from tests.crossfade.sweep.virtual_time import VirtualLoop


def main() -> None:
    """Sweep the scripted server and write the plot."""
    options = Options(("restore",), (1, 2, 3, 4, 5, 6), (5, 10, 15, 20, 25), timeout_s=3.0)
    device = Device(cores=4, service_s=0.2, thrash=0.15)
    raise SystemExit(run(options, Files(png=Path(sys.argv[1])), ScriptedBench(device), Console(), VirtualLoop))


if __name__ == "__main__":
    main()
